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
    /// A label to store with it. Default: [this process](Owner::of_process).
    pub owner: Option<Owner>,
    /// Extends the lock by itself while it is held. Default: it ends with its TTL.
    ///
    /// Heartbeats run on the tokio runtime that took the lock, and connections on the one that opened them. Where blocking code
    /// may hold up that runtime, give the backend a runtime of its own and make every call of it in a task there:
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use syncguard::sqlite::{SqliteBackend, SqliteConfig};
    /// # use syncguard::{AutoExtend, Backend, Key, LockOptions};
    /// # let folder = tempfile::tempdir()?;
    /// # let file = SqliteConfig::file(folder.path().join("locks.db"));
    /// # let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(file)?);
    /// # let key = Key::new("account:4711")?;
    /// # let options = LockOptions {
    /// #     ttl: syncguard::Ttl::from_millis(3_000)?,
    /// #     auto_extend: Some(AutoExtend::default()),
    /// #     ..LockOptions::default()
    /// # };
    /// use syncguard::lock;
    /// use tokio::runtime::Builder;
    ///
    /// let locks = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let locks = Box::leak(Box::new(locks)); // until the process ends
    /// let guard = locks.spawn(async move { lock(&backend, &key, &options).await }).await??;
    /// # let first = guard.expires_at_ms();
    /// # let compute = || {
    /// #     // Until a heartbeat has extended the lock, or it is lost.
    /// #     while guard.expires_at_ms() == first && guard.assert_held().is_ok() {
    /// #         std::thread::sleep(std::time::Duration::from_millis(5));
    /// #     }
    /// # };
    /// compute(); // may block
    /// guard.assert_held()?;
    /// locks.spawn(guard.release()).await??;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub auto_extend: Option<AutoExtend>,
    /// For how long nobody else may get the lock, from its grant on, even if it is released earlier. At most its TTL. Default: a
    /// release frees it at once.
    pub min_hold: Duration,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT,
            retry: RetryPolicy::default(),
            owner: Some(Owner::of_process()),
            auto_extend: None,
            min_hold: Duration::ZERO,
        }
    }
}

/// Acquires what is claimed, waiting as `options` say while others hold it: the lock on a key (`&Key`), a slot of one
/// ([`Claim::slot`](crate::Claim::slot)), or several of both, all or nothing.
///
/// Waiters of this process for the same key on the same backend are served in the order in which they came. Only the first of
/// them asks the store, at the pace of the most eager one, so that nobody waits longer than if it had asked by itself. A waiter
/// for several keys waits for the one that stood in the way, and keeps nobody from the others. When that is in vain, it takes
/// them one after another, for a while at a time (docs/several-keys.md, "Who is served first"). Between processes there is no
/// order. Whoever does not wait (no retries, or no time) does not queue either.
///
/// Dropping the future cancels: what the store may have granted is released in the background.
///
/// # Errors
/// `AcquisitionTimeout` when others held it for too long. Otherwise the store's last error, with how long and how
/// often it was tried. An attempt that the time limit cut short is reported only if there was no other error.
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
