//! The [`Backend`] trait, which every store implements.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::asking::check::LockCheck;
use crate::asking::outcome::Outcome;
use crate::asking::request::{AcquireRequest, Finish, Operation};
use crate::background::work::Work;
use crate::network::event_loop::Lane;
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::waiting::wakeups::Watch;

/// What a backend is and can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name: `"sqlite"`, `"redis"`, …
    pub backend: &'static str,
    /// Whether grants carry fencing tokens.
    pub supports_fencing: bool,
    /// Whose clock decides.
    pub time_authority: TimeAuthority,
}

/// How long one operation may take unless the backend is told otherwise.
pub const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_millis(5000);

/// A store of locks.
///
/// It carries out an [`Operation`] in one atomic step. Retrying is [`lock`](crate::lock)'s part;
/// giving up after [`operation_timeout`](Backend::operation_timeout), cancelling, and undoing an
/// acquisition whose answer came too late is the part of the functions in
/// [`operation`](crate::operation), which is how a backend should be called.
///
/// Futures may be dropped at any point; an implementation must leave nothing broken then.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What the backend is and can do.
    fn capabilities(&self) -> Capabilities;

    /// What is under way on the backend. Gives the same [`Work`] each time. Whoever wraps a backend gives that of the backend
    /// inside.
    fn work(&self) -> &Work;

    /// Why the store cannot be reached at this moment, if that is known. An operation that runs out of time says it. Must do no
    /// I/O.
    fn trouble(&self) -> Option<Error> {
        None
    }

    /// How long one operation may take.
    fn operation_timeout(&self) -> Duration {
        DEFAULT_OPERATION_TIMEOUT
    }

    /// How many heartbeats may be under way at a time. Where the backend can, it should send those that come together to the store
    /// together. Whoever wraps a backend gives the number of the backend inside.
    fn heartbeats_at_once(&self) -> usize {
        64
    }

    /// Replaces lock ids of `request` that this store could not find again by others. A request that was prepared before stays as it
    /// is. The functions in [`operation`](crate::operation) call this first; whoever calls [`run`](Self::run) directly must do so, too.
    /// Whoever wraps a backend passes it on.
    fn prepare(&self, request: &mut AcquireRequest) {
        let _ = request;
    }

    /// Carries out an operation in one attempt. The outcome is of the same kind.
    async fn run(&self, operation: &Operation) -> Result<Outcome, Error>;

    /// The lane of releases and acquisitions that are called from this thread now. Within one lane, the store carries out those of one lock
    /// in the order in which their futures are polled first, so that an acquisition need not wait until the release before it has
    /// ended. `None` says that the store may carry them out in any order.
    fn lane(&self) -> Option<Lane> {
        None
    }

    /// The statement that checks, in a transaction of the caller's own on this store, that these locks are held. With `done`, it also
    /// stores that something is done, under the only lock.
    ///
    /// # Errors
    /// `InvalidArgument` where that is not possible.
    fn check(&self, lock_ids: &[LockId], done: Option<&Finish>) -> Result<LockCheck, Error> {
        let _ = (lock_ids, done);
        Err(Error::invalid(
            "this store has no transactions in which a lock can be checked",
        ))
    }

    /// Hears when a claimed lock may have been freed, or for a claim of slots, any slot of the key. `None` if this store cannot tell.
    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let _ = claim;
        None
    }

    /// Ends connections. Operations after this fail with `Aborted`, and all waits for locks fail so at once.
    ///
    /// Before that, it waits for the operations that run, and for locks that are being released in the background because a guard was
    /// dropped or an acquisition was given up. It waits for at most twice the time that an operation may take. From the start of the
    /// wait on, the functions in [`operation`](crate::operation) start nothing new.
    async fn close(&self) {
        self.work()
            .finish(self.operation_timeout().saturating_mul(2))
            .await;
        self.shut_down().await;
    }

    /// The backend's own part of [`close`](Self::close): ends connections, and makes later operations fail with `Aborted`. Only `close`
    /// calls it, perhaps more than once.
    async fn shut_down(&self);
}
