//! A lock that is held, or several that were granted together.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::backend::Backend;
use crate::batch::Batch;
use crate::check::LockCheck;
use crate::claim::Claim;
use crate::due::Due;
use crate::error::{Error, ErrorKind};
use crate::fence::Fence;
use crate::holding::{AutoExtend, Hold, Holder, end_of};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::operation::{self, CallOptions};
use crate::outcome::{EvalOutcome, ExtendOutcome, Grant, ReleaseOutcome};
use crate::reply::Reply;
use crate::request::{Eval, Extension, Finish, Operation, ReleaseRequest};
use crate::ttl::Ttl;
use crate::waiting::waiter::Granted;

/// A lock that is held until it is released, dropped or lost; or several, which are extended and released together, and are
/// lost when one of them is.
///
/// Dropping releases in the background, as [`operation::release_in_background`] says.
/// [`release`](Self::release) waits for the store and reports errors. Either goes on until the lock is free or its TTL
/// is over, and ends the heartbeats first, if it has
/// any ([`LockOptions::auto_extend`](crate::LockOptions::auto_extend)).
#[derive(Debug)]
pub struct LockGuard {
    backend: Arc<dyn Backend>,
    /// Those of what is held; of a slot, with its number.
    keys: Batch<Key>,
    grants: Batch<Grant>,
    /// For how long it may last from now on, by all that it was granted for and asked to be extended by.
    lasts: Ttl,
    state: Arc<GuardState>,
    /// Before that, a release only lets it end then.
    hold_until: Option<Instant>,
    is_held: bool,
}

impl LockGuard {
    /// A guard of a lock that was granted. `state` is of the same request.
    pub(crate) fn new(
        backend: &Arc<dyn Backend>,
        claims: &[Claim],
        granted: Granted,
        ttl: Ttl,
        state: Arc<GuardState>,
    ) -> Self {
        let Granted { grants, asked } = granted;
        let ends = grants.iter().map(|grant| grant.expires_at_ms).min();
        state.expires_at_ms.fetch_max(ends.unwrap_or(0), Relaxed);
        let key = |(claim, grant): (&Claim, &Grant)| match grant.slot {
            Some(number) => claim.key.slot(number),
            None => claim.key.clone(),
        };
        let keys = claims.iter().zip(&grants).map(key).collect();
        if !state.extends_itself {
            state.ends(end_of(asked, ttl));
        }
        Self {
            backend: Arc::clone(backend),
            keys,
            grants,
            lasts: ttl,
            state,
            hold_until: None,
            is_held: true,
        }
    }

    /// Lets a release that comes before that time make the lock end then.
    pub(crate) fn hold_until(&mut self, until: Instant) {
        self.hold_until = Some(until);
    }

    /// For how much longer it is to be held at least, in whole milliseconds.
    fn left_to_hold(&self) -> Option<Ttl> {
        let left = self.hold_until?.checked_duration_since(Instant::now())?;
        let ms = left.as_nanos().div_ceil(1_000_000);
        Ttl::from_millis(i64::try_from(ms).ok()?).ok()
    }

    /// What was granted, in the order of the keys.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The keys of what is held, in order; of a slot, with its number.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Proof of ownership, for each lock in the order of the keys.
    pub fn lock_ids(&self) -> Batch<LockId> {
        let lock_id = |grant: &Grant| grant.lock_id.clone();
        self.grants.iter().map(lock_id).collect()
    }

    /// Proof of ownership of the lock; of several, of the first.
    pub fn lock_id(&self) -> &LockId {
        &self.grants[0].lock_id
    }

    /// The fencing token: give it to whatever the lock protects, and let that refuse smaller ones. Of several locks, that of
    /// the first; [`fence_of`](Self::fence_of) knows each.
    pub fn fence(&self) -> Fence {
        self.grants[0].fence
    }

    /// The fencing token of the lock on `key`, or of the slot of it. `None` if this guard does not hold it.
    pub fn fence_of(&self, key: &Key) -> Option<Fence> {
        let is_meant =
            |held: &Key| held == key || held.slot_number().is_some() && held.base() == key.as_str();
        let at = self.keys.iter().position(is_meant)?;
        Some(self.grants.get(at)?.fence)
    }

    /// When the first of its locks ends, on the store's clock, in milliseconds since the Unix epoch. Heartbeats make it later.
    pub fn expires_at_ms(&self) -> i64 {
        self.state.expires_at_ms.load(Relaxed)
    }

    /// What checks, in a transaction of the caller's own in the database of the locks, that they are held. A store that has
    /// no SQL refuses.
    ///
    /// The statement fails, and the transaction with it, unless all of them are held. Else nobody gets them before the
    /// transaction ends, whatever its time is. `syncguard_clients::tokio_postgres::check` runs it in a transaction of
    /// `tokio-postgres`; with another client, [`lose`](Self::lose) tells the guard what was found.
    ///
    /// # Errors
    /// `InvalidArgument` if the store cannot do that.
    pub fn check_sql(&self) -> Result<LockCheck, Error> {
        self.backend.check(&self.lock_ids(), None)
    }

    /// The lock was found gone, by a [check](Self::check_sql) for example: from now on it is lost.
    pub fn lose(&self, error: Error) {
        if !self.state.is_lost() {
            self.state.lost(error, None);
        }
    }

    /// Completes when the lock is lost, with an error of the kind `LockLost` that says why. Never completes once
    /// the lock has been released.
    ///
    /// A lock that extends itself is lost when the store says that it is not there any more, or when its end has come
    /// because it could not be extended. Any other is lost when its TTL is over, measured from the moment before it
    /// was acquired or last extended.
    ///
    /// The future does not borrow the guard, so that work under the lock can be raced against it.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), syncguard::Error> {
    /// # use std::sync::Arc;
    /// # use syncguard::sqlite::{SqliteBackend, SqliteConfig};
    /// # use syncguard::{AutoExtend, Backend, Error, Fence, Key, LockOptions, Operation, lock};
    /// # use syncguard::operation::{self, CallOptions};
    /// # let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
    /// # let key = Key::new("nightly-report")?;
    /// # async fn work(_: Fence) -> Result<(), Error> { Ok(()) }
    /// let options = LockOptions {
    ///     auto_extend: Some(AutoExtend::default()),
    ///     ..LockOptions::default()
    /// };
    /// let guard = lock(&backend, &key, &options).await?;
    /// tokio::select! {
    ///     done = work(guard.fence()) => {
    ///         done?;
    ///         guard.release().await?;
    ///     }
    ///     lost = guard.lost() => return Err(lost),
    /// }
    /// # let asked = Operation::IsLocked(key);
    /// # let never = std::future::pending();
    /// # assert!(!operation::run::<bool>(&backend, asked, CallOptions::DEFAULT, never).await?);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let mut status = self.state.status.subscribe();
        async move {
            loop {
                let end = match &*status.borrow_and_update() {
                    Status::Lost(error) => return error.clone(),
                    Status::Ends(end) => Some(*end),
                    Status::Held => None,
                };
                let changed = match end {
                    None => Ok(status.changed().await),
                    Some(end) => timeout_at(soon(end), status.changed()).await,
                };
                match changed {
                    Ok(Ok(())) => {}
                    // The guard is gone, and with it the lock.
                    Ok(Err(_)) => pending().await,
                    Err(_) if end.is_some_and(|end| end <= Instant::now()) => {
                        return Error::new(
                            ErrorKind::LockLost,
                            "the lock was lost: its time is over",
                        );
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Makes the lock end `ttl` from now; `false` if it is lost already, also if the store would still extend it. On a
    /// lock that extends itself this holds until the next heartbeat, which comes the later the longer the lock lasts.
    ///
    /// # Errors
    /// What the store failed with. The lock may or may not have been extended.
    pub async fn extend(&mut self, ttl: Ttl) -> Result<bool, Error> {
        let call = CallOptions::default();
        // Once the backend is closed, nothing is sent.
        let _running = self.backend.work().start()?;
        if self.state.is_lost() {
            return Ok(false);
        }
        let sent = Instant::now();
        // Heartbeats go on with the TTL that it was granted for.
        self.lasts = self.lasts.max(ttl);
        if !self.state.extends_itself {
            // The store may carry it out from now on, also if nobody hears of it.
            self.state.ends_by(end_of(sent, ttl));
        }
        let extend = Operation::Extend(Extension::new(self.lock_ids(), ttl));
        let outcome = operation::run(&self.backend, extend, call, pending()).await?;
        match outcome {
            // It was lost before the answer came, and whoever works under it may have been told.
            ExtendOutcome::Extended { .. } if self.state.is_lost() => Ok(false),
            ExtendOutcome::Extended { expires_at_ms } => {
                self.state.expires_at_ms.store(expires_at_ms, Relaxed);
                if !self.state.extends_itself {
                    self.state.ends(end_of(sent, ttl));
                }
                Ok(true)
            }
            ExtendOutcome::Absent { .. } => {
                self.state
                    .lose("the lock was lost: it was gone when it was to be extended");
                Ok(false)
            }
        }
    }

    /// Runs a script of Redis, in its Lua, only if the lock is held, by the server's clock: in one atomic step with the check. Of
    /// several locks, all must be held. Other stores refuse.
    ///
    /// `keys` are the names of your own data, as they are in the server; the script sees them as `KEYS`, from 1 on, and
    /// `arguments` as `ARGV`. In a Redis Cluster the keys must be in the hash slot of the lock, which a key prefix with a hash tag
    /// sees to. The text is sent once, and then its hash: what changes from call to call belongs into the arguments.
    ///
    /// ```no_run
    /// # async fn transfer(guard: &syncguard::LockGuard) -> Result<(), syncguard::Error> {
    /// use syncguard::Reply;
    ///
    /// let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    /// let reply = guard.eval(script, ["account:1"], ["25"]).await?;
    /// assert!(matches!(reply, Reply::Int(_)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LockLost` if the lock is not held any more: then nothing of the script has run, and [`lost`](Self::lost) completes.
    /// `InvalidArgument` for a script that the server cannot compile, for keys in other hash slots, and on other stores. What
    /// the script itself fails with is `Internal`, in the server's words; what it has written before stays. A script is
    /// sent once at most: after an error of which [`is_outcome_unknown`](Error::is_outcome_unknown) is true it may have run.
    pub async fn eval<T: Into<String>, A: Into<String>>(
        &self,
        script: &str,
        keys: impl IntoIterator<Item = T>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Reply, Error> {
        if let Status::Lost(error) = &*self.state.status.borrow() {
            return Err(error.clone());
        }
        let eval = Operation::Eval(Eval {
            locks: self.keys.iter().cloned().zip(self.lock_ids()).collect(),
            script: script.to_owned(),
            keys: keys.into_iter().map(Into::into).collect(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        });
        let call = CallOptions::default();
        match operation::run(&self.backend, eval, call, pending()).await? {
            EvalOutcome::Done(reply) => Ok(reply),
            EvalOutcome::Absent { .. } => {
                let message = "the lock was lost: it was gone when a script was to run under it";
                self.state.lose(message);
                Err(Error::new(ErrorKind::LockLost, message))
            }
        }
    }

    /// Ends the guard without releasing what it holds: that ends with its TTL, or when somebody releases it by its
    /// [`lock_ids`](Self::lock_ids). It does not extend itself any more.
    pub fn keep(mut self) -> Batch<Grant> {
        self.is_held = false;
        self.backend.work().heartbeats().stop(&self.lock_ids());
        let mut grants = std::mem::take(&mut self.grants);
        for grant in &mut grants {
            grant.expires_at_ms = self.expires_at_ms();
        }
        grants
    }

    /// Frees the lock; `false` if it was lost before, or one of several was. What the store may still hold of a lost lock is freed, too.
    ///
    /// When the store cannot be reached or its answer is lost, the release is repeated while the operation has time,
    /// and after an error in the background, until the lock is free or its TTL is over.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn release(mut self) -> Result<bool, Error> {
        let was_lost = self.state.is_lost();
        if let Some(left) = self.left_to_hold().filter(|_| !was_lost) {
            return self.end_in(left).await;
        }
        let request = self.lock_ids().into();
        Ok(self.free(request).await? && !was_lost)
    }

    /// Frees what is held; `false` if some of it was not there.
    async fn free(&mut self, request: ReleaseRequest) -> Result<bool, Error> {
        let call = CallOptions {
            lasts: Some(self.lasts),
            keys: self.keys.clone(),
            ..CallOptions::default()
        };
        let release = Operation::Release(request);
        let outcome = operation::run(&self.backend, release, call, pending()).await;
        self.is_held = false;
        let outcomes: Batch<ReleaseOutcome> = outcome?;
        if outcomes
            .iter()
            .all(|outcome| *outcome == ReleaseOutcome::Released)
        {
            return Ok(true);
        }
        self.state
            .lose("the lock was lost: it was gone when it was to be released");
        Ok(false)
    }
}

impl LockGuard {
    /// As [`check_sql`](Self::check_sql), and stores that something is done for a period.
    pub(crate) fn done_sql(&self, due: &Due) -> Result<LockCheck, Error> {
        let done = Finish {
            key: self.keys[0].clone(),
            due: due.clone(),
        };
        self.backend.check(&self.lock_ids(), Some(&done))
    }

    /// Frees the lock, and stores in the same step that something is done. A lock that is known to be lost is asked for only if
    /// that may be stored already.
    ///
    /// # Errors
    /// `LockLost` if the lock was lost before: then nothing is stored.
    pub(crate) async fn finish(mut self, due: Due, may_be_done: bool) -> Result<(), Error> {
        if may_be_done || !self.state.is_lost() {
            let (key, lock_ids) = (self.keys[0].clone(), self.lock_ids());
            let done = Some(Finish { key, due });
            if self.free(ReleaseRequest { lock_ids, done }).await? {
                return Ok(());
            }
        }
        Err(self.lost().await)
    }

    /// Lets it end by itself after that time.
    async fn end_in(mut self, left: Ttl) -> Result<bool, Error> {
        self.backend.work().heartbeats().stop(&self.lock_ids());
        let extend = Operation::Extend(Extension::new(self.lock_ids(), left));
        let call = CallOptions::default();
        let outcome = operation::run(&self.backend, extend, call, pending()).await;
        self.is_held = false;
        Ok(matches!(outcome?, ExtendOutcome::Extended { .. }))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        if self.left_to_hold().is_some() {
            self.backend.work().heartbeats().stop(&self.lock_ids());
            return;
        }
        operation::release_in_background(&self.backend, &self.lock_ids(), self.lasts);
    }
}

/// What becomes of the lock of a guard.
pub(crate) struct GuardState {
    extends_itself: bool,
    expires_at_ms: AtomicI64,
    status: watch::Sender<Status>,
}

enum Status {
    /// Until the heartbeats say otherwise.
    Held,
    /// At this time.
    Ends(Instant),
    Lost(Error),
}

impl GuardState {
    /// For a lock that is about to be acquired, with what the acquisition is to ask for.
    ///
    /// # Errors
    /// As [`AutoExtend::check`].
    pub(crate) fn new(
        auto_extend: Option<AutoExtend>,
        ttl: Ttl,
    ) -> Result<(Arc<Self>, Option<Box<Hold>>), Error> {
        if let Some(auto_extend) = auto_extend {
            auto_extend.check(ttl)?;
        }
        let state = Arc::new(Self {
            extends_itself: auto_extend.is_some(),
            expires_at_ms: AtomicI64::new(0),
            status: watch::Sender::new(Status::Held),
        });
        let hold = auto_extend.map(|auto_extend| {
            Box::new(Hold {
                auto_extend,
                holder: Arc::clone(&state) as _,
                runtime: Handle::current(),
            })
        });
        Ok((state, hold))
    }

    /// Whether [`LockGuard::lost`] completes.
    fn is_lost(&self) -> bool {
        match &*self.status.borrow() {
            Status::Held => false,
            Status::Ends(end) => *end <= Instant::now(),
            Status::Lost(_) => true,
        }
    }

    /// The lock is lost, if it was not before.
    fn lose(&self, message: &str) {
        if !self.is_lost() {
            self.lost(Error::new(ErrorKind::LockLost, message), None);
        }
    }

    fn ends(&self, end: Instant) {
        self.status.send_replace(Status::Ends(end));
    }

    /// It ends at this time, or earlier.
    fn ends_by(&self, end: Instant) {
        self.status.send_if_modified(|status| match status {
            Status::Ends(known) if end < *known => {
                *known = end;
                true
            }
            _ => false,
        });
    }
}

impl Holder for GuardState {
    fn extended(&self, expires_at_ms: i64) {
        self.expires_at_ms.store(expires_at_ms, Relaxed);
    }

    fn lost(&self, error: Error, _which: Option<usize>) {
        self.status.send_replace(Status::Lost(error));
    }
}

impl fmt::Debug for GuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardState")
            .field("extends_itself", &self.extends_itself)
            .finish_non_exhaustive()
    }
}

/// `end`, or a time before it that tokio's timers reach.
fn soon(end: Instant) -> Instant {
    end.min(Instant::now() + Duration::from_secs(24 * 3600))
}
