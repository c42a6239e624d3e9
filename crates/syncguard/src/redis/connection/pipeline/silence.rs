//! When a server was heard last, and what waits for a sign of life.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// After this silence, the server is asked for a sign of life before it is sent anything else. The devices on the way
/// forget connections after minutes; a process may have been frozen for hours.
pub(super) const LONG: Duration = Duration::from_secs(5);

/// When the server was heard last, by two clocks. The first stands still while the machine is suspended, and
/// somebody may set the second.
pub(super) struct LastHeard {
    at: Instant,
    wall: SystemTime,
}

impl LastHeard {
    pub(super) fn now() -> Self {
        Self {
            at: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    pub(super) fn is_long_ago(&self) -> bool {
        // The clock of the wall costs as much again, and who calls often needs it only then.
        self.at.elapsed() > LONG || self.wall.elapsed().is_ok_and(|past| past > LONG)
    }
}

/// The server was asked for a sign of life.
pub(super) struct Probe {
    /// Calls that are not written until it has given one.
    pub(super) held: Vec<u8>,
    /// How many these are.
    pub(super) calls: usize,
    /// When to give up. `None` where other calls are under way: then [`Liveness`](super::Liveness) decides.
    pub(super) until: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn either_clock_tells() {
        let heard = LastHeard::now();
        assert!(!heard.is_long_ago());
        // A machine that was suspended: only the clock of the wall went on.
        let wall = SystemTime::now() - LONG * 2;
        assert!(
            LastHeard {
                wall,
                ..LastHeard::now()
            }
            .is_long_ago()
        );
        // A clock that was set back.
        let wall = SystemTime::now() + LONG * 2;
        assert!(
            !LastHeard {
                wall,
                ..LastHeard::now()
            }
            .is_long_ago()
        );
        tokio::time::advance(LONG * 2).await;
        assert!(heard.is_long_ago());
        assert!(LastHeard { wall, ..heard }.is_long_ago());
    }
}
