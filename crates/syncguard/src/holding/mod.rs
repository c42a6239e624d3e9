//! Holding a lock: locks that extend themselves, and say when they are lost.
//!
//! A lock that extends itself does so by *heartbeats*: extensions that one task per backend sends, those of many
//! locks together ([`Heartbeats`]). The task runs while such locks are held, and at no other time.
//!
//! # When a lock is lost
//!
//! A lock is held until its *end*: the moment before its acquisition or its last extension was sent, plus its TTL.
//! The store cannot end it earlier by itself, because its own count starts later. The end is on the monotonic clock
//! of this process, so that nobody who sets a clock moves it, and a process that was stopped finds it passed.
//!
//! - The store says that it has no such lock: it is lost at once.
//! - Extensions fail: they are tried again, more often as the end comes near. When it has come, the lock is lost.
//! - An extension that was sent before the end and is not answered yet may come until [`GRACE`] after it. If it says by
//!   then that the lock was extended, but so late that the new end has passed as well, one more is sent at once. The store
//!   gives the lock to nobody before the tolerance of a second has passed (docs/decisions/tolerance.md).
//!
//! In no other case is an extension sent after the end: a holder that was stopped past it must not go on, whatever the
//! store says.

mod heartbeats;
mod held;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::Ttl;
use crate::error::Error;
use crate::time::TIME_TOLERANCE_MS;

pub(crate) use heartbeats::Heartbeats;
pub(crate) use held::end_of;

/// How long after a lock's end the answer to an extension may come that was sent before it. Half of the tolerance:
/// the other half is for the holder, who has to stop if it does not come.
const GRACE: Duration = Duration::from_millis(TIME_TOLERANCE_MS.unsigned_abs() / 2);

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

/// Whoever holds a lock that extends itself. The methods must not block.
pub trait Holder: Send + Sync + 'static {
    /// Whether the lock is still wanted; asked before each heartbeat.
    fn presence(&self) -> Presence {
        Presence::Present
    }

    /// The lock ends at this time now, on the store's clock, in milliseconds since the Unix epoch.
    fn extended(&self, expires_at_ms: i64);

    /// The lock is lost. The error is of the kind `LockLost`. Nothing is told after it.
    fn lost(&self, error: Error);
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
