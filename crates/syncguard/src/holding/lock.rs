//! Acquiring a lock, and waiting for it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crate::asking::hold::AutoExtend;
use crate::asking::request::AcquireRequest;
use crate::background::backend::Backend;
use crate::holding::guard::{GuardState, LockGuard};
use crate::text::error::Error;
use crate::values::claim::IntoClaims;
use crate::values::owner::Owner;
use crate::values::ttl::Ttl;
use crate::waiting::retry::RetryPolicy;
use crate::waiting::waiter::Waiter;

/// How to acquire a lock and how to wait for it.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// How long the lock lasts.
    pub ttl: Ttl,
    /// How to wait while others hold it.
    pub retry: RetryPolicy,
    /// A label to store with it.
    pub owner: Option<Owner>,
    /// Extends the lock by itself while it is held. Default: it ends with its TTL.
    pub auto_extend: Option<AutoExtend>,
    /// For how long to hold the lock at least, at most its TTL: if it is released earlier, it ends then, and nobody gets it
    /// before. Default: a release frees it at once.
    pub min_hold: Duration,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT,
            retry: RetryPolicy::default(),
            owner: None,
            auto_extend: None,
            min_hold: Duration::ZERO,
        }
    }
}

/// Acquires what is claimed, waiting as `options` say while others hold it: the lock on a key (`&Key`), a slot of one
/// ([`Claim::slot`](crate::Claim::slot)), or several of both, all or nothing.
///
/// Those in this process who wait for the same key on the same backend are served in the order in which they
/// came, and only the first of them asks: at the pace of the most eager of them, so that nobody waits longer than if it had
/// asked by itself. Whoever wants several things waits for the one that stood in the way, and keeps nobody from the others. Between processes there is no order. Whoever does not wait (no retries, or no time) does not queue
/// either.
///
/// Dropping the future cancels: what the store may have granted is released in the background.
///
/// # Errors
/// `AcquisitionTimeout` when others held it for too long. Otherwise the store's last error, with how long and how
/// often it was tried. That the last attempt was cut short by the time limit is reported only if there was no other
/// error.
pub async fn lock(
    backend: &Arc<dyn Backend>,
    claims: impl IntoClaims,
    options: &LockOptions,
) -> Result<LockGuard, Error> {
    if options.min_hold > options.ttl.as_duration() {
        return Err(Error::invalid("min_hold must not be longer than the ttl"));
    }
    let (state, hold) = GuardState::new(options.auto_extend, options.ttl)?;
    let mut request = AcquireRequest::of(claims.into_claims()?, options.ttl)?;
    request.labels.owner.clone_from(&options.owner);
    request.hold = hold;
    let mut waiter = Waiter::new(backend, request, options.retry)?;
    let granted = waiter.acquire(pending()).await?;
    let until = granted.asked + options.min_hold;
    let claims = waiter.claims();
    Ok(LockGuard::new(backend, claims, granted, state, Some(until)))
}
