//! How a lock is held: the settings, who holds it, and what extends it.

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
    /// How long to hold the lock at most. Heartbeats do not make it end later, and then it is lost. Default: no limit.
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
    /// How.
    pub auto_extend: AutoExtend,
    /// Who holds the lock, and hears what becomes of it.
    pub holder: Arc<dyn Holder>,
    /// Where the heartbeats run.
    pub runtime: Handle,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("auto_extend", &self.auto_extend)
            .finish_non_exhaustive()
    }
}

/// The backend of a lock that extends itself.
pub(crate) trait Extender: Send + Sync + 'static {
    /// Counts as an operation until what it gives is dropped. Fails once the backend is being closed.
    fn begin(&self) -> Result<Box<dyn Send>, Error>;

    /// Extends locks, which end at `end` else, within the time that an operation may take. Gives the end of the time that this has,
    /// too.
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

/// Whoever holds locks that extend themselves. The methods must not block.
pub trait Holder: Send + Sync + 'static {
    /// Whether the lock is still wanted; asked before each heartbeat.
    fn presence(&self) -> Presence {
        Presence::Present
    }

    /// The lock is held until this time, as far as is known now, whatever becomes of heartbeats until then: whoever looks at the clock
    /// after it knows that the lock is lost before anybody says so.
    fn held_until(&self, end: Instant) {
        let _ = end;
    }

    /// The lock ends at this time now, on the store's clock, in milliseconds since the Unix epoch.
    fn extended(&self, expires_at_ms: i64);

    /// The lock is lost, or one of those that were granted together. The error is of the kind `LockLost`. `place` is that of the
    /// one that is gone, in the order of the claims, if the store has said so. Nothing is told after it.
    fn lost(&self, error: Error, place: Option<usize>);
}

/// Whether a [`Holder`] still works under its lock.
#[derive(Debug)]
pub enum Presence {
    /// It does.
    Present,
    /// It does not seem to, for this reason. The lock is not extended until it does again.
    Stalled(Error),
    /// It never will again. The lock ends by itself, and nobody wants to know.
    Gone,
}
