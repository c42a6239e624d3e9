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
    /// What it is and can do.
    fn capabilities(&self) -> Capabilities;

    /// What is under way on it: one and the same [`Work`] each time. Whoever wraps a backend gives that
    /// of the backend inside.
    fn work(&self) -> &Work;

    /// Why the store cannot be reached at this moment, if that is known: what an operation that runs out
    /// of time waits for. Costs no I/O.
    fn trouble(&self) -> Option<Error> {
        None
    }

    /// How long one operation may take.
    fn operation_timeout(&self) -> Duration {
        DEFAULT_OPERATION_TIMEOUT
    }

    /// How many locks that extend themselves it extends at a time. Those that come together should go to the store
    /// together where they can. Whoever wraps a backend gives that of the backend inside.
    fn heartbeats_at_once(&self) -> usize {
        64
    }

    /// Gives `request` lock ids that this store can find again, where not every one will do. It changes nothing in
    /// a request that was prepared before. The functions in [`operation`](crate::operation) begin with it; whoever
    /// calls [`run`](Self::run) directly calls this first. Whoever wraps a backend passes it on.
    fn prepare(&self, request: &mut AcquireRequest) {
        let _ = request;
    }

    /// Carries out an operation: one attempt. Its outcome is of the same kind.
    async fn run(&self, operation: &Operation) -> Result<Outcome, Error>;

    /// The lane of releases and acquisitions that are made here and now. In the same lane, those that concern one lock are
    /// carried out in the order in which their futures are polled first, so that an acquisition need not wait until the
    /// release before it has ended. `None`: they may be carried out in any order.
    fn lane(&self) -> Option<Lane> {
        None
    }

    /// What checks, in a transaction of the caller's own on this store, that these locks are held; of one, it may store in the
    /// same step that something is done.
    ///
    /// # Errors
    /// `InvalidArgument` where that is not possible.
    fn check(&self, lock_ids: &[LockId], done: Option<&Finish>) -> Result<LockCheck, Error> {
        let _ = (lock_ids, done);
        Err(Error::invalid(
            "this store has no transactions in which a lock can be checked",
        ))
    }

    /// Hears when what is claimed may have been freed; of slots, when any of them may. `None`: this store cannot tell of it.
    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let _ = claim;
        None
    }

    /// Ends connections. Operations after it fail with `Aborted`, and so do those who wait for a
    /// lock, at once.
    ///
    /// Before it does, it waits for the operations that run, and for the locks that are being released
    /// in the background, after a guard was dropped or an acquisition was given up: at most for twice
    /// the time that an operation may take, and no longer than there is something to wait for. From the
    /// start of the wait on, the functions in [`operation`](crate::operation) start nothing new.
    async fn close(&self) {
        self.work()
            .finish(self.operation_timeout().saturating_mul(2))
            .await;
        self.shut_down().await;
    }

    /// The backend's own part of [`close`](Self::close), which alone calls it: ends connections and
    /// lets operations after it fail with `Aborted`. It may be called more than once.
    async fn shut_down(&self);
}
