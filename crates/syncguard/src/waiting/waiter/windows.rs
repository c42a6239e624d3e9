//! Decides when a waiter gathers its locks, and for how long.

use std::time::Duration;

use tokio::time::Instant;

use crate::values::claim::Claim;

/// A waiter for several locks gathers when it has waited for so long, and was refused so often: at the first refusal, nobody has passed it
/// yet.
const PATIENCE: Duration = Duration::from_millis(250);
const REFUSALS: u32 = 2;
/// How long it gathers at first, and at most. The first doubles each time.
const FIRST_WINDOW: Duration = Duration::from_millis(500);
/// The same for several slots of one key: the waiter has to get each of them from all who want any, and in half a second it often does not.
const FIRST_WINDOW_OF_SLOTS: Duration = Duration::from_millis(1_500);
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// While it gets one lock after another, it has at least so many times as long for each that is left as the longest wait for one took.
const WAITS_FOR_EACH: u32 = 2;
/// After it has gathered in vain, the waiter rests for so many times as long.
const RESTS: u32 = 3;
/// A waiter whom readers refuse takes the gate when it has waited for so long.
const PATIENCE_WITH_READERS: Duration = Duration::from_millis(50);
/// How long it then waits for the key at most. If that was in vain, it rests for as long.
const GATE_WINDOW: Duration = Duration::from_secs(60);

/// What a waiter gathers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathers {
    /// All its locks: there are several.
    Several,
    /// The gate and its one lock, to get past readers.
    PastReaders,
    /// Nothing: it waits for the gate itself, or for the lock behind it.
    Nothing,
}

/// What a waiter knows of its gatherings.
#[derive(Debug)]
pub(super) struct Gathering {
    /// How often the waiter was refused since it last gathered.
    refusals: u32,
    /// How long it gathers the next time, at least.
    window: Duration,
    /// The longest wait for one of its locks, of those that it has got while it gathered.
    longest_wait: Duration,
    rests_until: Instant,
    /// Whether the last refusal was because of readers.
    pub(super) by_readers: bool,
    gathers: Gathers,
}

/// Claims of one key are beside each other.
fn has_several_of_a_key(claims: &[Claim]) -> bool {
    claims.windows(2).any(|pair| match pair {
        [one, other] => one.key == other.key,
        _ => false,
    })
}

impl Gathering {
    pub(super) fn new(claims: &[Claim], now: Instant) -> Self {
        Self {
            refusals: 0,
            window: match has_several_of_a_key(claims) {
                true => FIRST_WINDOW_OF_SLOTS,
                false => FIRST_WINDOW,
            },
            longest_wait: Duration::ZERO,
            rests_until: now,
            by_readers: false,
            gathers: match claims {
                [_] => Gathers::PastReaders,
                _ => Gathers::Several,
            },
        }
    }

    /// Makes the same for the waiter for one part. One of several locks may have readers of its own.
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

    /// Notes that a lock that the waiter wants is held, or asked for by another.
    pub(super) fn was_refused(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// How long to gather now. `None` if it is not time to, after having waited for `waited`.
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

    /// Notes that the waiter has got one of its locks after it had waited `waited` for it. The first that it has now, it has had for `so_far`.
    /// Gives how long the window is in all, which was to be `window`, while `left` locks are missing.
    pub(super) fn has_got_one(
        &mut self,
        waited: Duration,
        so_far: Duration,
        window: Duration,
        left: u32,
    ) -> Duration {
        self.longest_wait = self.longest_wait.max(waited);
        let needed = so_far + self.longest_wait * (WAITS_FOR_EACH * left);
        window.max(needed.min(LONGEST_WINDOW))
    }

    /// When a waiter that came at `start` is to take the gate, if readers have refused it.
    pub(super) fn gate_at(&self, start: Instant) -> Option<Instant> {
        let may = self.gathers == Gathers::PastReaders && self.by_readers;
        may.then(|| self.rests_until.max(start + PATIENCE_WITH_READERS))
    }

    /// Notes that the waiter has gathered for so long and did not get all of its locks.
    pub(super) fn was_in_vain(&mut self, gathered: Duration) {
        // A machine that was suspended meanwhile does not rest for longer.
        let gathered = gathered.min(LONGEST_WINDOW);
        if self.gathers == Gathers::PastReaders {
            self.rests_until = Instant::now() + gathered.max(PATIENCE_WITH_READERS);
            return;
        }
        self.refusals = 0;
        self.window = (self.window * 2).min(LONGEST_WINDOW);
        self.rests_until = Instant::now() + gathered * RESTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::claim::Slots;
    use crate::values::key::Key;

    #[test]
    fn several_slots_of_a_key_get_more_time() {
        let key = |name| Key::new(name).unwrap();
        let slot = |name| Claim::slot(key(name), Slots::new(4).unwrap()).unwrap();
        let plain = || Claim::new(key("k")).unwrap();
        let first_window = |claims: &[Claim]| {
            let mut gathering = Gathering::new(claims, Instant::now());
            for _ in 0..REFUSALS {
                gathering.was_refused();
            }
            gathering.window(PATIENCE)
        };
        for (claims, window) in [
            ([plain(), slot("s")], FIRST_WINDOW),
            ([slot("s"), slot("t")], FIRST_WINDOW),
            ([slot("s"), slot("s")], FIRST_WINDOW_OF_SLOTS),
        ] {
            assert_eq!(first_window(&claims), Some(window));
        }
    }
}
