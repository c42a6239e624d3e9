//! Whether to stay awake for what is about to come.
//!
//! Waking a sleeping thread takes 25 to 40 µs on common machines, and a lone operation waits for the I/O
//! thread when its answer arrives, and if it is handed over to the thread, then as well. A thread that
//! looks again and again instead is there at once, and burns CPU meanwhile. So it looks for a limited time,
//! and only while that has paid of late: where the store is further away, or operations come with pauses, it
//! does not, and one wait in [`PROBE`] is tried. Nor does it pay where the thread is interrupted while it
//! looks: then others need the core.

use std::time::{Duration, Instant};

/// The longest look.
const LIMIT: Duration = Duration::from_micros(300);
/// Waits without a look, after which one is tried.
const PROBE: u32 = 64;
/// Successes that are remembered.
const MEMORY: u32 = 8;
/// Two looks that are further apart than this have been interrupted.
const INTERRUPTION: Duration = Duration::from_micros(50);

/// How looking has paid.
#[derive(Default)]
pub(crate) struct Spin {
    credit: u32,
    skipped: u32,
    looking: Option<Looking>,
}

struct Looking {
    until: Instant,
    last: Instant,
}

impl Looking {
    fn was_interrupted(&self, now: Instant) -> bool {
        now - self.last > INTERRUPTION
    }
}

impl Spin {
    /// Whether to look once more, at the time `now`, for what has not come yet.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        if let Some(looking) = &mut self.looking {
            if now < looking.until && !looking.was_interrupted(now) {
                looking.last = now;
                return true;
            }
            self.looking = None;
            self.failed();
            return false;
        }
        if self.credit == 0 {
            self.skipped += 1;
            if self.skipped < PROBE {
                return false;
            }
            self.skipped = 0;
        }
        self.looking = Some(Looking {
            until: now + LIMIT,
            last: now,
        });
        true
    }

    /// What was waited for has come at the time `now`.
    pub(crate) fn came(&mut self, now: Instant) {
        match self.looking.take() {
            Some(looking) if looking.was_interrupted(now) => self.failed(),
            Some(_) => self.credit = (self.credit + 1).min(MEMORY),
            None => {}
        }
    }

    fn failed(&mut self) {
        self.credit = self.credit.saturating_sub(2);
    }
}

/// The most operations that were in flight of late.
///
/// A moment with few between two moments with many is no time to stay awake: the threads that are about to bring more
/// need the core.
#[derive(Default)]
pub(crate) struct Recent {
    now: usize,
    before: usize,
    seen: u32,
}

impl Recent {
    /// So many looks are remembered, at least.
    const MEMORY: u32 = 32;

    pub(crate) fn saw(&mut self, in_flight: usize) {
        if self.seen == Self::MEMORY {
            *self = Self {
                before: self.now,
                ..Self::default()
            };
        }
        self.seen += 1;
        self.now = self.now.max(in_flight);
    }

    pub(crate) fn get(&self) -> usize {
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for something that comes after `delay`, or never; says how long it looked.
    fn wait(spin: &mut Spin, delay: Option<Duration>) -> Duration {
        let start = Instant::now();
        let mut now = start;
        while spin.goes_on(now) {
            now += Duration::from_micros(1);
            if delay.is_some_and(|delay| now - start >= delay) {
                spin.came(now);
                break;
            }
        }
        now - start
    }

    #[test]
    fn it_looks_where_that_pays() {
        let mut spin = Spin::default();
        let soon = Some(Duration::from_micros(30));
        let looked = (0..200)
            .filter(|_| !wait(&mut spin, soon).is_zero())
            .count();
        // All but the waits before the first try.
        assert!(looked > 200 - PROBE as usize, "{looked}");
    }

    #[test]
    fn it_gives_up_where_that_does_not_pay() {
        let mut spin = Spin::default();
        (0..100).for_each(|_| {
            wait(&mut spin, Some(Duration::from_micros(30)));
        });
        let looked: Duration = (0..10 * PROBE).map(|_| wait(&mut spin, None)).sum();
        // The memory of better times, and the tries.
        assert!(looked <= LIMIT * (MEMORY + 11), "{looked:?}");
    }

    #[test]
    fn it_gives_up_where_others_need_the_core() {
        let mut spin = Spin::default();
        (0..100).for_each(|_| {
            wait(&mut spin, Some(Duration::from_micros(30)));
        });
        let start = Instant::now();
        for _ in 0..MEMORY / 4 {
            assert!(spin.goes_on(start));
            assert!(!spin.goes_on(start + INTERRUPTION * 2));
            // Also when what was waited for came during the interruption.
            assert!(spin.goes_on(start));
            spin.came(start + INTERRUPTION * 2);
        }
        for _ in 1..PROBE {
            assert_eq!(wait(&mut spin, None), Duration::ZERO);
        }
        assert!(!wait(&mut spin, None).is_zero());
    }

    #[test]
    fn no_look_is_longer_than_the_limit() {
        let mut spin = Spin::default();
        let longest = (0..PROBE * 2).map(|_| wait(&mut spin, None)).max();
        assert_eq!(longest, Some(LIMIT));
    }

    #[test]
    fn many_are_remembered_for_a_while() {
        let mut recent = Recent::default();
        recent.saw(64);
        for _ in 1..Recent::MEMORY {
            recent.saw(1);
            assert_eq!(recent.get(), 64);
        }
        for _ in 0..=Recent::MEMORY {
            recent.saw(1);
        }
        assert_eq!(recent.get(), 1);
    }
}
