//! How often to look whether another process has written to the file.

use std::time::Duration;

use tokio::time::Instant;

use crate::random;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(25);

/// A quiet time is divided by this to get the pause until the next look: the shortest pause for the first 100 ms, the
/// longest after 2.5 s. So a release is noticed late only if the wait for it was long.
const SHARE: u32 = 100;

/// How many times as long as a look took its pause is at least, so that operations have the connection most of the
/// time, also if somebody waits for very many locks.
const REST: u32 = 4;

/// The times of looks.
pub(super) struct Pace {
    /// When the last thing happened that lets a release be expected soon.
    last_event: Instant,
    next: Instant,
}

impl Pace {
    /// Looks at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last_event: now,
            next: now,
        }
    }

    /// When to look next.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Something has happened after which a release is expected soon: somebody has begun to wait, or this backend has freed a
    /// lock, of which the next look tells.
    pub(super) fn poll_soon(&mut self, now: Instant) {
        self.last_event = now;
        self.next = self.next.min(now + SHORTEST);
    }

    /// A look that began at `began` has shown whether others have written.
    pub(super) fn has_looked(&mut self, began: Instant, now: Instant, others_wrote: bool) {
        if others_wrote {
            self.last_event = now;
        }
        let pause = ((now - self.last_event) / SHARE).clamp(SHORTEST, LONGEST);
        // Jitter, so that processes do not look in step, always the same one first.
        let scatter = 0.5 + random::unit().unwrap_or(0.5);
        self.next = now + pause.mul_f64(scatter).max((now - began) * REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pause after a look so long after others have written.
    fn pause(quiet: Duration) -> Duration {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.has_looked(start, start, true);
        let now = start + quiet;
        pace.has_looked(now, now, false);
        pace.next() - now
    }

    #[test]
    fn looks_become_rare_when_nothing_happens() {
        for (quiet, shortest, longest) in [
            (0, MS / 2, MS * 3 / 2),
            (100, MS / 2, MS * 3 / 2),
            (1000, MS * 5, MS * 15),
            (2500, MS * 25 / 2, MS * 75 / 2),
            (3_600_000, MS * 25 / 2, MS * 75 / 2),
        ] {
            let pause = pause(MS * quiet);
            assert!((shortest..=longest).contains(&pause), "{quiet}: {pause:?}");
        }
    }

    #[test]
    fn a_hint_brings_the_next_one_forward() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let now = start + MS * 60_000;
        pace.has_looked(now, now, false);
        pace.poll_soon(now);
        assert!(pace.next() <= now + MS);
        pace.has_looked(now, now, false);
        assert!(pace.next() <= now + MS * 3 / 2);
    }

    #[test]
    fn a_long_look_is_followed_by_a_longer_pause() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.has_looked(start, start + MS * 10, true);
        assert_eq!(pace.next(), start + MS * 50);
    }
}
