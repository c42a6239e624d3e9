//! Grants a lock only if something is still to be done for a period, and stores when it is done.

use std::future::pending;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::asking::check::LockCheck;
use crate::asking::hold::AutoExtend;
use crate::asking::outcome::AcquireOutcome;
use crate::asking::request::AcquireRequest;
use crate::background::backend::Backend;
use crate::clock;
use crate::holding::guard::{GuardState, LockGuard};
use crate::operation::{self, CallOptions};
use crate::text::error::Error;
use crate::values::due::{DoneMark, Due};
use crate::values::key::Key;
use crate::values::owner::Owner;
use crate::values::ttl::Ttl;
use crate::waiting::waiter::Granted;

const FAR_AHEAD: &str = "due begins more than a day after this moment of the store's clock, so that nothing could be done before then: set the \
    clock right, or allow it";

/// How to acquire the lock for a period.
#[derive(Debug, Clone)]
pub struct OnceOptions {
    /// How long the lock lasts. When its holder dies, another process can take over after that time.
    pub ttl: Ttl,
    /// A label to store with it. Default: [this process](Owner::of_process).
    pub owner: Option<Owner>,
    /// Extends the lock by itself while it is held. Default: it ends with its TTL.
    pub auto_extend: Option<AutoExtend>,
    /// Whether the period may begin more than a day after this moment of the store's clock. Default: such a period is refused,
    /// because once it is done, every period before it counts as done, too.
    pub allow_ahead: bool,
}

impl Default for OnceOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT,
            owner: Some(Owner::of_process()),
            auto_extend: None,
            allow_ahead: false,
        }
    }
}

/// Whether something is to be done now, and here.
#[derive(Debug)]
pub enum OnceOutcome {
    /// It is to be done under this lock.
    Granted(OnceGuard),
    /// It was done before, for this period.
    Done(DoneMark),
    /// It was done before for a later period: the caller is late, or somebody stored that period by a wrong clock.
    Ahead(DoneMark),
    /// Somebody else holds the lock: they are doing it, or something under the same key.
    Running,
}

/// The lock under which something is done for a period. [`done`](Self::done) stores that it is done. If the guard is dropped, or
/// its process dies, the period stays open for another process.
#[derive(Debug)]
pub struct OnceGuard {
    guard: LockGuard,
    due: Due,
    /// Whether a transaction of the holder may have stored that it is done.
    may_be_done: AtomicBool,
}

/// Acquires the lock on `key` unless something was done already for its period `due`, or for a later one. The store decides that
/// in the step that grants the lock. This asks once and does not wait.
///
/// The work runs to its end **at least once** for each period that is asked for: one process at a time does it, and once it
/// is stored as done, nobody does it again. If a process dies between its last effect and [`OnceGuard::done`], or loses its
/// lock there, another one does the work again.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), syncguard::Error> {
/// # use std::sync::Arc;
/// # use syncguard::sqlite::{SqliteBackend, SqliteConfig};
/// # use syncguard::{Backend, Error, Fence};
/// # let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
/// # async fn write_report(_: Fence) -> Result<(), Error> { Ok(()) }
/// use syncguard::{Due, Key, OnceOptions, OnceOutcome, once};
///
/// let (key, due) = (Key::new("nightly-report")?, Due::new("2026-11-24")?);
/// match once(&backend, &key, due, &OnceOptions::default()).await? {
///     OnceOutcome::Granted(run) => {
///         write_report(run.fence()).await?;
///         run.done().await?;
///     }
///     OnceOutcome::Done(mark) => println!("done at {} ms", mark.done_at_ms),
///     OnceOutcome::Ahead(mark) => println!("done for a later period, {}", mark.due),
///     OnceOutcome::Running => println!("somebody else is doing it"),
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
///
/// # Errors
/// `InvalidArgument` for a number where a text is stored for the key, or the other way round, and for a period that
/// [begins more than a day](Due::is_far_ahead) after this moment of the store's clock, unless the options allow that. Otherwise as
/// [`operation::run`].
pub async fn once(
    backend: &Arc<dyn Backend>,
    key: &Key,
    due: Due,
    options: &OnceOptions,
) -> Result<OnceOutcome, Error> {
    let ttl = options.ttl;
    let (state, hold) = GuardState::new(options.auto_extend, ttl)?;
    let mut request = AcquireRequest::new(key.clone(), ttl)?;
    request.labels.owner.clone_from(&options.owner);
    request.due = Some(due.clone());
    request.hold = hold;
    let claims = request.claims.clone();
    let asked = clock::now();
    let outcome = operation::acquire(backend, request, CallOptions::DEFAULT, pending()).await?;
    Ok(match outcome {
        AcquireOutcome::Acquired(grants) => {
            let granted = Granted { grants, asked };
            let guard = LockGuard::new(backend, &claims, granted, state, None);
            let now_ms = guard.expires_at_ms() - ttl.as_millis();
            if !options.allow_ahead && due.is_far_ahead(now_ms) {
                guard.release().await?;
                return Err(Error::invalid(FAR_AHEAD));
            }
            let may_be_done = AtomicBool::new(false);
            OnceOutcome::Granted(OnceGuard {
                guard,
                due,
                may_be_done,
            })
        }
        AcquireOutcome::Done(mark) if mark.due.is_after(&due) => OnceOutcome::Ahead(mark),
        AcquireOutcome::Done(mark) => OnceOutcome::Done(mark),
        AcquireOutcome::Locked { .. } => OnceOutcome::Running,
    })
}

impl OnceGuard {
    /// The statement that stores, in a transaction of the caller's own in the database of the locks, that the period is done. The
    /// mark stands only if the transaction is committed, so whatever the transaction writes happens **exactly once**. The statement
    /// checks that the lock is held, as that of [`LockGuard::check_sql`] does: if it is not, the statement fails, and the
    /// transaction with it. `syncguard_clients::tokio_postgres::done` runs it in a transaction of `tokio-postgres`.
    ///
    /// Call [`done`](Self::done) after the commit all the same, because that frees the lock.
    ///
    /// # Errors
    /// `InvalidArgument` if the store cannot do that.
    pub fn done_sql(&self) -> Result<LockCheck, Error> {
        let check = self.guard.done_sql(&self.due)?;
        self.may_be_done.store(true, Relaxed);
        Ok(check)
    }

    /// Stores that it is done for the period, and frees the lock, in one step.
    ///
    /// # Errors
    /// `LockLost` if the lock was lost before, and no transaction with [`done_sql`](Self::done_sql) was committed: nothing is
    /// stored then, and another process may be doing it. Otherwise the store's error. If
    /// [`is_outcome_unknown`](Error::is_outcome_unknown) is true of it, it may be stored all the same.
    pub async fn done(self) -> Result<(), Error> {
        let may_be_done = self.may_be_done.into_inner();
        self.guard.finish(self.due, may_be_done).await
    }

    /// Frees the lock and leaves the period open, so that somebody can take over at once; `false` if the lock was lost before.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn leave(self) -> Result<bool, Error> {
        self.guard.release().await
    }
}

/// The lock, for its fence, its end and whether it is lost.
impl Deref for OnceGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl DerefMut for OnceGuard {
    fn deref_mut(&mut self) -> &mut LockGuard {
        &mut self.guard
    }
}
