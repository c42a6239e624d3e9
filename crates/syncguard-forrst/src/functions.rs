//! The extension's functions.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use super::acquire::Failure;
use super::arguments::{KeyArgument, ReleaseArguments};
use super::data::{ForceReleaseResult, ReleaseResult, StatusResult};
use syncguard::operation::{self, CallOptions};
use syncguard::{Backend, Error, LockRecord, Lookup, Operation, Owner};

/// Releases a lock for its owner.
///
/// Looks the lock up, compares its owner, and then releases that lock by its lock id. If somebody else has acquired the
/// key in between, their lock is not touched.
///
/// # Errors
/// Those of [`ReleaseArguments::owned`] and [`ReleaseResult::of`]; what the store failed with, and
/// `Aborted` when `cancelled` completes first.
pub async fn release(
    backend: &Arc<dyn Backend>,
    arguments: &ReleaseArguments,
    cancelled: impl Future<Output = ()>,
) -> Result<ReleaseResult, Failure> {
    let mut cancelled = pin!(cancelled);
    let found = lookup(backend, &arguments.key, cancelled.as_mut()).await?;
    let owned = arguments.owned(found, |record| {
        record.labels.owner.as_ref().map(Owner::as_str)
    })?;
    let call = CallOptions::default();
    let operation = Operation::Release([owned.lock_id.clone()].into());
    let outcome = operation::run(backend, operation, call, cancelled).await?;
    Ok(ReleaseResult::of(arguments.key.as_str(), outcome)?)
}

/// Releases a lock, whoever owns it. Before calling this, the server must check that the caller may do that.
///
/// # Errors
/// `LOCK_NOT_FOUND`; what the store failed with.
pub async fn force_release(
    backend: &Arc<dyn Backend>,
    key: &KeyArgument,
) -> Result<ForceReleaseResult, Failure> {
    let call = CallOptions::default();
    let operation = Operation::ForceRelease(key.key().clone());
    let released = operation::run(backend, operation, call, pending()).await?;
    Ok(ForceReleaseResult::of(key.as_str(), released)?)
}

/// Says who holds a lock.
///
/// # Errors
/// What the store failed with.
pub async fn status(backend: &Arc<dyn Backend>, key: &KeyArgument) -> Result<StatusResult, Error> {
    let record = lookup(backend, key, pending()).await?;
    Ok(StatusResult::of(key.as_str(), record.as_ref()))
}

async fn lookup(
    backend: &Arc<dyn Backend>,
    key: &KeyArgument,
    cancelled: impl Future<Output = ()>,
) -> Result<Option<LockRecord>, Error> {
    let operation = Operation::Lookup(Lookup::Key(key.key().clone()));
    operation::run(backend, operation, CallOptions::default(), cancelled).await
}
