//! When one who waits for several things gathers them, and for how long.

use std::time::Duration;

use tokio::time::Instant;

use crate::values::claim::Claim;

/// After so long, and a second refusal, it gathers: at the first, nobody has passed it yet.
const PATIENCE: Duration = Duration::from_millis(250);
const REFUSALS: u32 = 2;
/// For how long it does at first, and at most. Each time it is twice as long as before.
const FIRST_WINDOW: Duration = Duration::from_millis(500);
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// How many windows long it leaves the others alone after one in vain.
const RESTS: u32 = 3;
/// After so long, one whom readers refuse takes the gate before them, and waits behind it so long at most. Then it rests for as long.
const PATIENCE_WITH_READERS: Duration = Duration::from_millis(50);
const GATE_WINDOW: Duration = Duration::from_secs(60);

/// What a waiter gathers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathers {
    /// The several locks that it wants.
    Several,
    /// The gate and its one lock, once readers have made it wait.
    PastReaders,
    Nothing,
}

/// When to gather.
#[derive(Debug)]
pub(super) struct Gathering {
    /// How often what it wants was not free since it last gathered.
    refusals: u32,
    window: Duration,
    rests_until: Instant,
    /// Whether those who share what it wants have refused it last.
    pub(super) by_readers: bool,
    gathers: Gathers,
}

impl Gathering {
    pub(super) fn new(claims: &[Claim], now: Instant) -> Self {
        Self {
            refusals: 0,
            window: FIRST_WINDOW,
            rests_until: now,
            by_readers: false,
            gathers: match claims {
                [_] => Gathers::PastReaders,
                _ => Gathers::Several,
            },
        }
    }

    /// As this, for one of the locks that are gathered: it has the gate, or waits for that itself.
    pub(super) fn of_part(&self, claims: &[Claim], now: Instant) -> Self {
        let of_part = Self::new(claims, now);
        match self.gathers {
            Gathers::Several => of_part,
            Gathers::PastReaders | Gathers::Nothing => Self {
                gathers: Gathers::Nothing,
                ..of_part
            },
        }
    }

    /// Notes that something it wants is held, or asked for by another.
    pub(super) fn was_refused(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// For how long to gather now, if it is time to, after having waited for so long.
    pub(super) fn window(&self, waited: Duration) -> Option<Duration> {
        let (is_time, window) = match self.gathers {
            Gathers::Several => {
                let is_time = self.refusals >= REFUSALS && waited >= PATIENCE;
                (is_time, self.window)
            }
            Gathers::PastReaders => {
                let is_time = self.by_readers && waited >= PATIENCE_WITH_READERS;
                (is_time, GATE_WINDOW)
            }
            Gathers::Nothing => return None,
        };
        (is_time && self.rests_until <= Instant::now()).then_some(window)
    }

    /// When it is to take the gate, if readers have refused it, and it came at that time.
    pub(super) fn gate_at(&self, start: Instant) -> Option<Instant> {
        let may = self.gathers == Gathers::PastReaders && self.by_readers;
        may.then(|| self.rests_until.max(start + PATIENCE_WITH_READERS))
    }

    /// Notes that it had all that it wanted for a time, or less, and not what it waits for.
    pub(super) fn was_in_vain(&mut self, window: Duration) {
        if self.gathers == Gathers::PastReaders {
            self.rests_until = Instant::now() + window;
            return;
        }
        self.refusals = 0;
        self.window = (self.window * 2).min(LONGEST_WINDOW);
        self.rests_until = Instant::now() + window * RESTS;
    }
}
