//! The extension's functions.

use std::future::pending;
use std::sync::Arc;

use super::acquire::Failure;
use super::arguments::{KeyArgument, ReleaseArguments};
use super::data::{ForceReleaseResult, ReleaseResult, StatusResult};
use super::error::ForrstError;
use super::owner::owns;
use crate::backend::{Absence, Backend, LockRecord, Lookup, Owner, ReleaseOutcome};
use crate::error::Error;
use crate::operation::{self, CallOptions};

/// Frees a lock for its owner.
///
/// The lock is looked up and its owner compared; what is then released is that very lock, by its
/// id. A lock that was taken by somebody else in between is not touched.
///
/// # Errors
/// `LOCK_NOT_FOUND`, `LOCK_OWNERSHIP_MISMATCH`, or `LOCK_ALREADY_RELEASED` when somebody freed the
/// lock after it was looked up; what the store failed with.
pub async fn release(
    backend: &Arc<dyn Backend>,
    arguments: &ReleaseArguments,
) -> Result<ReleaseResult, Failure> {
    let key = arguments.key.as_str();
    let record = lookup(backend, &arguments.key)
        .await?
        .ok_or_else(|| ForrstError::not_found(key))?;
    let stored = record.owner.as_ref().map(Owner::as_str);
    if !owns(stored, arguments.owner.as_str()) {
        return Err(ForrstError::ownership_mismatch(key).into());
    }
    let call = CallOptions::default();
    let outcome = operation::release(backend, &record.lock_id, call, pending()).await?;
    Ok(outcome_of_release(key, outcome)?)
}

/// What the release of a lock means that was there, and the caller's, a moment ago.
///
/// # Errors
/// `LOCK_NOT_FOUND` when its time ran out meanwhile, `LOCK_ALREADY_RELEASED` when somebody freed it.
pub fn outcome_of_release(
    key: &str,
    outcome: ReleaseOutcome,
) -> Result<ReleaseResult, ForrstError> {
    match outcome {
        ReleaseOutcome::Released => Ok(ReleaseResult::new(key)),
        ReleaseOutcome::Absent(Absence::Expired) => Err(ForrstError::not_found(key)),
        ReleaseOutcome::Absent(Absence::NotFound) => Err(ForrstError::already_released(key)),
    }
}

/// Frees a lock whoever owns it. Whether the caller may do that is for the server to decide first.
///
/// # Errors
/// `LOCK_NOT_FOUND`; what the store failed with.
pub async fn force_release(
    backend: &Arc<dyn Backend>,
    key: &KeyArgument,
) -> Result<ForceReleaseResult, Failure> {
    let call = CallOptions::default();
    if operation::force_release(backend, key.key(), call, pending()).await? {
        Ok(ForceReleaseResult::new(key.as_str()))
    } else {
        Err(ForrstError::not_found(key.as_str()).into())
    }
}

/// Who holds a lock.
///
/// # Errors
/// What the store failed with.
pub async fn status(backend: &Arc<dyn Backend>, key: &KeyArgument) -> Result<StatusResult, Error> {
    let record = lookup(backend, key).await?;
    Ok(StatusResult::of(key.as_str(), record.as_ref()))
}

async fn lookup(
    backend: &Arc<dyn Backend>,
    key: &KeyArgument,
) -> Result<Option<LockRecord>, Error> {
    let lookup = Lookup::Key(key.key().clone());
    operation::lookup(backend, &lookup, CallOptions::default(), pending()).await
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;
