//! A lock that is held, or several that were granted together.

use std::future::pending;
use std::sync::Arc;

use tokio::time::Instant;

use crate::asking::check::LockCheck;
use crate::asking::outcome::{EvalOutcome, ExtendOutcome, Grant};
use crate::asking::reply::Reply;
use crate::asking::request::{Eval, Extension, Finish, Operation};
use crate::asking::sending::Sending;
use crate::background::backend::Backend;
use crate::clock;
use crate::operation::{self, CallOptions};
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::due::Due;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;
use crate::waiting::waiter::Granted;

mod looking;
mod releasing;
mod state;

use self::looking::{GuardLook, are_stored};
pub(crate) use self::state::GuardState;

/// A lock that is held until it is released, dropped or lost. A guard may also hold several locks: they are extended and released
/// together, and are lost when one of them is. If somebody releases one of them by its id, through the same backend, the guard
/// keeps the others.
///
/// Dropping a guard releases in the background, as [`operation::release_in_background`] says. [`release`](Self::release) waits for
/// the store and reports errors. Both end the heartbeats first, if there are any
/// ([`LockOptions::auto_extend`](crate::LockOptions::auto_extend)), and go on until the lock is free or its TTL is over.
#[derive(Debug)]
pub struct LockGuard {
    backend: Arc<dyn Backend>,
    /// The keys of the locks. The key of a slot has its number, and one that is shared the lock id.
    keys: Batch<Key>,
    grants: Batch<Grant>,
    /// The longest time for which a store may keep the locks from now on: the longest TTL that was asked for yet.
    lasts: Ttl,
    state: Arc<GuardState>,
    /// Asks the store whether it still has the locks, where no heartbeats would find out.
    look: Option<Arc<GuardLook>>,
    /// A release before this time makes the locks end then, and does not free them at once.
    hold_until: Option<Instant>,
}

impl LockGuard {
    /// Makes the guard of what was granted. `state` must come from the same request. A release before `hold_until` makes the locks
    /// end at that time.
    pub(crate) fn new(
        backend: &Arc<dyn Backend>,
        claims: &[Claim],
        granted: Granted,
        state: Arc<GuardState>,
        hold_until: Option<Instant>,
    ) -> Self {
        state.granted(&granted);
        let grants = granted.grants;
        let key = |(claim, grant): (&Claim, &Grant)| grant.key_of(claim);
        let mut guard = Self {
            backend: Arc::clone(backend),
            keys: claims.iter().zip(&grants).map(key).collect(),
            grants,
            lasts: state.ttl(),
            state,
            look: None,
            hold_until,
        };
        if !guard.state.extends_itself() {
            let look = Arc::new(GuardLook {
                backend: Arc::clone(backend),
                lock_ids: guard.lock_ids(),
                state: Arc::clone(&guard.state),
            });
            backend.work().looks().add(guard.lock_id(), &look);
            guard.look = Some(look);
        }
        if guard.grants.len() > 1 {
            backend.work().sets().add(&guard.lock_ids(), &guard.state);
        }
        guard
    }

    /// What was granted, in the order of the keys.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The keys of what is held, in order. The key of a slot has its number, and one that is shared the lock id.
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

    /// The fencing token of the lock on `key`, or of the slot of it or the share in it. `None` if this guard does not hold it.
    pub fn fence_of(&self, key: &Key) -> Option<Fence> {
        let is_meant = |held: &Key| held == key || held.base() == key.as_str();
        let at = self.keys.iter().position(is_meant)?;
        Some(self.grants.get(at)?.fence)
    }

    /// When the first of its locks ends, by the store's clock, in milliseconds since the Unix epoch. Heartbeats make it later.
    pub fn expires_at_ms(&self) -> i64 {
        self.state.expires_at_ms()
    }

    /// The statement that checks, in a transaction of the caller's own in the database of the locks, that they are held. A store
    /// that has no SQL refuses.
    ///
    /// Unless all of them are held, the statement fails, and the transaction with it. Otherwise nobody gets them before the
    /// transaction ends, even if their TTL is over before. `syncguard_clients::tokio_postgres::check` runs it in a transaction of
    /// `tokio-postgres`. With another client, call [`lose`](Self::lose) when the statement has found a lock gone.
    ///
    /// # Errors
    /// `InvalidArgument` if the store cannot do that.
    pub fn check_sql(&self) -> Result<LockCheck, Error> {
        self.backend.check(&self.left(), None)
    }

    /// Asks the store whether it has all of the locks. A transaction may see an older state than the store has now.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn is_stored(&self) -> Result<bool, Error> {
        are_stored(&self.backend, self.left()).await
    }

    /// Tells the guard that its lock was found gone, for example by a [check](Self::check_sql). From now on the lock is lost.
    pub fn lose(&self, error: Error) {
        self.state.lose(|| error);
    }

    /// Fails if the lock is lost at this moment, as far as this process can know: by its monotonic clock and by what the heartbeats
    /// have found out, without asking the store. To be called directly before each effect: a process that was stopped comes back
    /// in the middle of its work, and [`lost`](Self::lost) completes only once its task is polled again.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), syncguard::Error> {
    /// # use std::sync::Arc;
    /// # use syncguard::sqlite::{SqliteBackend, SqliteConfig};
    /// # use syncguard::{AutoExtend, Backend, Error, Fence, Key, LockOptions, lock};
    /// # let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
    /// # let key = Key::new("nightly-report")?;
    /// # let rows = [1, 2];
    /// # async fn store(_: u8, _: Fence) -> Result<(), Error> { Ok(()) }
    /// let options = LockOptions {
    ///     auto_extend: Some(AutoExtend::default()),
    ///     ..LockOptions::default()
    /// };
    /// let guard = lock(&backend, &key, &options).await?;
    /// for row in rows {
    ///     guard.assert_held()?;
    ///     store(row, guard.fence()).await?;
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// `LockLost` that says why.
    pub fn assert_held(&self) -> Result<(), Error> {
        self.state.loss().map_or(Ok(()), Err)
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
    /// # use syncguard::{Backend, Error, Fence, Key, Operation};
    /// # use syncguard::operation::{self, CallOptions};
    /// # let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
    /// # let key = Key::new("nightly-report")?;
    /// # async fn work(_: Fence) -> Result<(), Error> { Ok(()) }
    /// use syncguard::{AutoExtend, LockOptions, lock};
    ///
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
        self.state.lost()
    }

    /// Makes the lock end `ttl` from now. `false` if the lock is lost already, even if the store would still extend it. A lock that
    /// extends itself keeps this end until its next heartbeat, which comes later if the lock lasts longer.
    ///
    /// # Errors
    /// What the store failed with. The lock may or may not have been extended.
    pub async fn extend(&mut self, ttl: Ttl) -> Result<bool, Error> {
        // Once the backend is closed, nothing is sent.
        let _running = self.backend.work().start()?;
        if self.state.is_lost() {
            return Ok(false);
        }
        let sent = clock::now();
        // Heartbeats go on with the TTL of the grant, so a shorter one here does not bound how long the lock may last.
        self.lasts = self.lasts.max(ttl);
        self.state.extends(sent, ttl);
        match self.extend_left(ttl).await? {
            ExtendOutcome::Extended { expires_at_ms } => {
                Ok(self.state.has_extended(sent, ttl, expires_at_ms))
            }
            ExtendOutcome::Absent { .. } => {
                let message = "the lock was lost: it was gone when it was to be extended";
                self.lose(Error::new(ErrorKind::LockLost, message));
                Ok(false)
            }
        }
    }

    /// Runs a script of Redis, in its Lua, only if the lock is held, by the server's clock: in one atomic step with the check. Of
    /// several locks, all must be held. Other stores refuse.
    ///
    /// `keys` are the names of your own data, as they are in the server. The script sees them as `KEYS`, from 1 on, and
    /// `arguments` as `ARGV`. In a Redis Cluster the keys must be in the hash slot of the lock: give locks and data a key prefix
    /// with the same hash tag. The text of a script is sent only once, and its hash after that. So put what changes from call to
    /// call into the arguments.
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
    /// `InvalidArgument` for a script that the server cannot compile, for keys in other hash slots, and on other stores. `Internal`,
    /// in the server's words, if the script itself fails; what it has written before stays. A script is sent at most once: if
    /// [`is_outcome_unknown`](Error::is_outcome_unknown) is true of an error, it may have run.
    pub async fn eval<T: Into<String>, A: Into<String>>(
        &self,
        script: &str,
        keys: impl IntoIterator<Item = T>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Reply, Error> {
        self.assert_held()?;
        let eval = Operation::Eval(Eval {
            locks: self.left_by_key(),
            script: script.to_owned(),
            keys: keys.into_iter().map(Into::into).collect(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            sending: Sending::default(),
        });
        let call = CallOptions::default();
        match operation::run(&self.backend, eval, call, pending()).await? {
            EvalOutcome::Done(reply) => Ok(reply),
            EvalOutcome::Absent { .. } => {
                let message = "the lock was lost: it was gone when a script was to run under it";
                let error = Error::new(ErrorKind::LockLost, message);
                self.lose(error.clone());
                Err(error)
            }
        }
    }
}

impl LockGuard {
    /// The ids of the locks that nobody has released by their ids. The last of several stays, even if it was released so.
    fn left(&self) -> Batch<LockId> {
        self.state.left().unwrap_or_else(|| self.lock_ids())
    }

    fn left_by_key(&self) -> Batch<(Key, LockId)> {
        let left = self.left();
        let all = self.keys.iter().cloned().zip(self.lock_ids());
        all.filter(|(_, lock_id)| left.contains(lock_id)).collect()
    }

    /// Asks the store to extend what is [`left`](Self::left).
    async fn extend_left(&self, ttl: Ttl) -> Result<ExtendOutcome, Error> {
        loop {
            let left = self.left();
            let extend = Operation::Extend(Extension::new(left.clone(), ttl));
            let call = CallOptions::default();
            let outcome = operation::run(&self.backend, extend, call, pending()).await?;
            match outcome {
                // Somebody has released that lock by its id meanwhile, so the store extended nothing. Ask for the others.
                ExtendOutcome::Absent { lock, .. }
                    if left
                        .get(lock)
                        .is_some_and(|gone| !self.left().contains(gone)) => {}
                outcome => return Ok(outcome),
            }
        }
    }

    /// The statement of [`check_sql`](Self::check_sql) that also stores that something is done for a period.
    pub(crate) fn done_sql(&self, due: &Due) -> Result<LockCheck, Error> {
        let done = Finish {
            key: self.keys[0].clone(),
            due: due.clone(),
        };
        self.backend.check(&self.lock_ids(), Some(&done))
    }
}
