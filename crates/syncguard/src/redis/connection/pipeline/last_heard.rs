//! Knows when a server was heard last, and keeps the calls that wait until it is heard again.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// After this silence, the server is asked for a sign of life before it is sent anything else. The devices on the way
/// forget connections after minutes; a process may have been frozen for hours.
pub(super) const LONG: Duration = Duration::from_secs(5);

/// After this silence, the socket is read before anything is written to it: the server may have ended the connection while the
/// reader's thread was busy with something else. Calls that follow each other faster cost no such look.
const SHORT: Duration = Duration::from_millis(1);

/// When the server was heard last, by two clocks, because neither is enough: the first stands still while the machine is
/// suspended, and somebody may set the second.
pub(super) struct LastHeard {
    at: Instant,
    wall: SystemTime,
    /// When the socket was looked at last.
    looked: Instant,
}

impl LastHeard {
    pub(super) fn now() -> Self {
        let now = Instant::now();
        Self {
            at: now,
            wall: SystemTime::now(),
            looked: now,
        }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn is_long_ago(&self, now: Instant) -> bool {
        let past = now.saturating_duration_since(self.at);
        past > LONG || self.wall.elapsed().is_ok_and(|past| past > LONG)
    }

    /// Whether the socket is to be looked at before it is written to. If so, it counts as looked at from now on.
    pub(super) fn looks_now(&mut self, now: Instant) -> bool {
        let past = now.saturating_duration_since(self.at.max(self.looked));
        let is_time = past > SHORT;
        if is_time {
            self.looked = now;
        }
        is_time
    }
}

/// A question for a sign of life that was sent and is not answered yet.
pub(super) struct Probe {
    /// The bytes of the calls that are held back until the answer comes.
    pub(super) held: Vec<u8>,
    /// How many calls are held back.
    pub(super) calls: usize,
    /// When to give up. `None` if other calls wait, too: then [`Liveness`](super::super::liveness::Liveness) decides.
    pub(super) until: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn either_clock_tells() {
        let heard = LastHeard::now();
        assert!(!heard.is_long_ago(Instant::now()));
        // A machine that was suspended: only the clock of the wall went on.
        let wall = SystemTime::now() - LONG * 2;
        assert!(
            LastHeard {
                wall,
                ..LastHeard::now()
            }
            .is_long_ago(Instant::now())
        );
        // A clock that was set back.
        let wall = SystemTime::now() + LONG * 2;
        assert!(
            !LastHeard {
                wall,
                ..LastHeard::now()
            }
            .is_long_ago(Instant::now())
        );
        tokio::time::advance(LONG * 2).await;
        assert!(heard.is_long_ago(Instant::now()));
        assert!(LastHeard { wall, ..heard }.is_long_ago(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_counts_for_a_moment() {
        let mut heard = LastHeard::now();
        assert!(!heard.looks_now(Instant::now()));
        for _ in 0..3 {
            tokio::time::advance(SHORT * 2).await;
            assert!(heard.looks_now(Instant::now()));
            assert!(!heard.looks_now(Instant::now()));
        }
    }
}
