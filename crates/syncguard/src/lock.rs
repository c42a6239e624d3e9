//! Waiting for a lock, and holding it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::{
    AcquireOutcome, AcquireRequest, Backend, ExtendOutcome, Grant, Owner, ReleaseOutcome, Ttl,
};
use crate::error::{Error, ErrorKind};
use crate::fence::Fence;
use crate::key::Key;
use crate::lock_id::LockId;
use crate::operation::{self, CallOptions};
use crate::random;
use crate::retry::{FailedAttempt, GiveUp, RetryPolicy, RetryState, Step};

/// How to take a lock and how to wait for it.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// How long the lock lasts.
    pub ttl: Ttl,
    /// How to wait while others hold it.
    pub retry: RetryPolicy,
    /// A label to store with it.
    pub owner: Option<Owner>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT,
            retry: RetryPolicy::default(),
            owner: None,
        }
    }
}

/// Takes the lock on `key`, waiting as `options` say while others hold it.
///
/// Dropping the future cancels: what the store may have granted is released in the background.
///
/// # Errors
/// `AcquisitionTimeout` when others held it for too long. Otherwise the store's last error, with how long and how
/// often it was tried. That the last attempt was cut short by the time limit is reported only if there was no other
/// error.
pub async fn lock(
    backend: &Arc<dyn Backend>,
    key: &Key,
    options: &LockOptions,
) -> Result<LockGuard, Error> {
    let start = Instant::now();
    let elapsed_ms = || start.elapsed().as_secs_f64() * 1000.0;
    let mut retry = RetryState::new(options.retry)?;
    let mut failure: Option<Error> = None;
    loop {
        let mut request = AcquireRequest::new(key.clone(), options.ttl)?;
        request.owner.clone_from(&options.owner);
        let limit_ms = retry.attempt_timeout_ms(elapsed_ms());
        let call = CallOptions {
            timeout: Duration::try_from_secs_f64(limit_ms / 1000.0).ok(),
        };
        let outcome = operation::acquire(backend, request, call, pending()).await;
        let now_ms = elapsed_ms();
        let attempt = match outcome {
            Ok(AcquireOutcome::Acquired(grant)) => {
                return Ok(LockGuard {
                    backend: Arc::clone(backend),
                    grant,
                    ttl: options.ttl,
                    held: true,
                });
            }
            Ok(AcquireOutcome::Locked) => FailedAttempt::Locked,
            Err(error) => {
                let kind = error.kind();
                if failure.is_none() || !retry.is_cut(kind, now_ms) {
                    failure = Some(error);
                }
                FailedAttempt::Error(kind)
            }
        };
        match retry.after(attempt, now_ms, random::unit()?) {
            Step::Wait { delay_ms } => sleep(Duration::from_secs_f64(delay_ms / 1000.0)).await,
            Step::GiveUp(GiveUp::Contention(error)) => return Err(error),
            Step::GiveUp(GiveUp::Failed { effort }) => {
                let failure = failure
                    .unwrap_or_else(|| Error::new(ErrorKind::Internal, "no attempt has failed"));
                return Err(failure.after(&effort));
            }
        }
    }
}

/// A lock that is held until it is released, dropped or expired.
///
/// Dropping releases in the background, as [`operation::release_in_background`] says.
/// [`release`](Self::release) waits for the store and reports errors.
#[derive(Debug)]
pub struct LockGuard {
    backend: Arc<dyn Backend>,
    grant: Grant,
    ttl: Ttl,
    held: bool,
}

impl LockGuard {
    /// Proof of ownership.
    pub fn lock_id(&self) -> &LockId {
        &self.grant.lock_id
    }

    /// The fencing token: give it to whatever the lock protects, and let that refuse smaller ones.
    pub fn fence(&self) -> Fence {
        self.grant.fence
    }

    /// When the lock ends, on the store's clock, in milliseconds since the Unix epoch.
    pub fn expires_at_ms(&self) -> i64 {
        self.grant.expires_at_ms
    }

    /// Makes the lock end `ttl` from now; `false` if it is lost already.
    ///
    /// # Errors
    /// What the store failed with. The lock may or may not have been extended.
    pub async fn extend(&mut self, ttl: Ttl) -> Result<bool, Error> {
        let call = CallOptions::default();
        match operation::extend(&self.backend, &self.grant.lock_id, ttl, call, pending()).await? {
            ExtendOutcome::Extended { expires_at_ms } => {
                self.grant.expires_at_ms = expires_at_ms;
                self.ttl = ttl;
                Ok(true)
            }
            ExtendOutcome::Absent(_) => Ok(false),
        }
    }

    /// Ends the guard without releasing the lock: it ends with its TTL, or when somebody releases it by its
    /// [`lock_id`](Self::lock_id).
    pub fn keep(mut self) -> Grant {
        self.held = false;
        self.grant.clone()
    }

    /// Frees the lock; `false` if it was lost before.
    ///
    /// # Errors
    /// What the store failed with. If the lock was not freed, it ends with its TTL.
    pub async fn release(mut self) -> Result<bool, Error> {
        let call = CallOptions::default();
        let outcome = operation::release(&self.backend, &self.grant.lock_id, call, pending()).await;
        self.held = false;
        Ok(outcome? == ReleaseOutcome::Released)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        operation::release_in_background(&self.backend, &self.grant.lock_id, self.ttl);
    }
}
