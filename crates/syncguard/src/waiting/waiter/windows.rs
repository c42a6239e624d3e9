//! When one who waits for several things gathers them, and for how long.

use std::time::Duration;

use tokio::time::Instant;

/// After so long, and a second refusal, it gathers: at the first, nobody has passed it yet.
const PATIENCE: Duration = Duration::from_millis(250);
const REFUSALS: u32 = 2;
/// For how long it does at first, and at most. Each time it is twice as long as before.
const FIRST_WINDOW: Duration = Duration::from_millis(500);
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// How many windows long it leaves the others alone after one in vain.
const RESTS: u32 = 3;

/// When to gather.
#[derive(Debug)]
pub(super) struct Gathering {
    /// How often what it wants was not free since it last gathered.
    refusals: u32,
    window: Duration,
    rests_until: Instant,
}

impl Gathering {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            refusals: 0,
            window: FIRST_WINDOW,
            rests_until: now,
        }
    }

    /// Notes that something it wants is held, or asked for by another.
    pub(super) fn was_refused(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// For how long to gather now, if it is time to, after having waited for so long.
    pub(super) fn window(&self, waited: Duration) -> Option<Duration> {
        let is_time = self.refusals >= REFUSALS && waited >= PATIENCE;
        (is_time && self.rests_until <= Instant::now()).then_some(self.window)
    }

    /// Notes that it had all that it wanted for a time, or less, and not what it waits for.
    pub(super) fn was_in_vain(&mut self, window: Duration) {
        self.refusals = 0;
        self.window = (self.window * 2).min(LONGEST_WINDOW);
        self.rests_until = Instant::now() + window * RESTS;
    }
}
