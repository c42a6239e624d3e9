//! Says how a lock is held: the settings of heartbeats, who hears of them, and what extends the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::asking::limit::Limit;
use crate::asking::outcome::ExtendOutcome;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::values::ttl::Ttl;

/// How a lock extends itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AutoExtend {
    /// The time from one heartbeat to the next. Default: a third of the TTL.
    pub every: Option<Duration>,
    /// The longest time to hold the lock. Heartbeats extend it no further, so it is lost then. Default: no limit.
    pub max: Option<Duration>,
}

impl AutoExtend {
    /// Checks the settings for locks that last `ttl`.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field.
    pub fn check(&self, ttl: Ttl) -> Result<(), Error> {
        let positive = |field: Option<Duration>, name: &str| match field {
            Some(Duration::ZERO) => Err(Error::invalid(format!("{name} must be positive"))),
            _ => Ok(()),
        };
        positive(self.every, "auto_extend.every")?;
        positive(self.max, "auto_extend.max")?;
        if self.every.is_some_and(|every| every >= ttl.as_duration()) {
            return Err(Error::invalid(
                "auto_extend.every must be shorter than the ttl",
            ));
        }
        Ok(())
    }
}

/// A request to extend a lock by heartbeats from the moment it is granted, until it is released or lost:
/// [`AcquireRequest::hold`](crate::AcquireRequest::hold).
#[derive(Clone)]
pub struct Hold {
    /// How often and for how long.
    pub auto_extend: AutoExtend,
    /// Hears what becomes of the lock.
    pub holder: Arc<dyn Holder>,
    /// The runtime on which the heartbeats run.
    pub runtime: Handle,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("auto_extend", &self.auto_extend)
            .finish_non_exhaustive()
    }
}

/// What heartbeats need of a backend.
pub(crate) trait Extender: Send + Sync + 'static {
    /// Begins an operation, which lasts until the result is dropped. Fails once the backend is being closed.
    fn begin(&self) -> Result<Box<dyn Send>, Error>;

    /// Extends locks, which would end at `end`. It may take until then, and no longer than an operation may. Also gives when its time
    /// is over.
    fn extend<'a>(
        &'a self,
        lock_ids: Batch<LockId>,
        ttl: Ttl,
        end: Instant,
    ) -> (Arc<Limit>, BoxFuture<'a, Result<ExtendOutcome, Error>>);

    /// How many locks to extend at a time.
    fn at_once(&self) -> usize;

    /// Whose clock decides when a lock expires.
    fn time_authority(&self) -> TimeAuthority;

    /// The error of an extension that was not answered in time.
    fn timed_out(&self, after: Duration) -> Error;
}

/// Holds locks that extend themselves. The methods must not block.
pub trait Holder: Send + Sync + 'static {
    /// Whether the holder still works under the lock. This is asked before each heartbeat.
    fn presence(&self) -> Presence {
        Presence::Present
    }

    /// Tells until when the lock is held if no heartbeat succeeds before. Whoever looks at the clock after that time knows that the lock is
    /// lost, even before anybody says so.
    fn held_until(&self, end: Instant) {
        let _ = end;
    }

    /// Tells that the lock was extended, and when it ends now by the store's clock, in milliseconds since the Unix epoch.
    fn extended(&self, expires_at_ms: i64);

    /// Tells that the lock is lost, or one of several that were granted together. The error is of the kind `LockLost`. `place` says which
    /// one is gone, in the order of the claims, if the store has said so. Nothing is told after this.
    fn lost(&self, error: Error, place: Option<usize>);
}

/// Whether a [`Holder`] still works under its lock.
#[derive(Debug)]
pub enum Presence {
    /// The holder works.
    Present,
    /// The holder does not seem to work, for this reason. The lock is not extended until it does again.
    Stalled(Error),
    /// The holder will never work again. The lock ends by itself, and nobody wants to know.
    Gone,
}
