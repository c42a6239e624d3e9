//! The liveness predicate, its tolerance, and the clock.

use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// Whose clock decides when a lock expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeAuthority {
    /// One clock for all: the store's.
    Server,
    /// Each client's own clock; the clocks must be synchronised.
    Client,
}

/// How long past its expiry a lock still counts as held, in milliseconds
/// (docs/format.md, "Liveness predicate"). Not configurable.
pub const TIME_TOLERANCE_MS: i64 = 1000;

/// Whether a lock that expires at `expires_at_ms` is held at `now_ms`.
///
/// Generic, so that both `i64` milliseconds and JavaScript's numbers can use it. Any numbers will do: a store may hold,
/// and a server may answer, a time that no clock shows.
///
/// ```
/// use syncguard::{TIME_TOLERANCE_MS, is_live};
/// assert!(is_live(10_000, 10_999, TIME_TOLERANCE_MS));
/// assert!(!is_live(10_000, 11_000, TIME_TOLERANCE_MS));
/// ```
pub fn is_live<T: Milliseconds>(expires_at_ms: T, now_ms: T, tolerance_ms: T) -> bool {
    expires_at_ms > now_ms.minus(tolerance_ms)
}

/// Whether somebody holds a lock that expires at `expires_at_ms`, at `now_ms`: what counts as held in the stores that decide here.
pub(crate) fn is_held(expires_at_ms: i64, now_ms: i64) -> bool {
    is_live(expires_at_ms, now_ms, TIME_TOLERANCE_MS)
}

/// The same for a store that compares by itself: what expires later is held.
pub(crate) fn held_after_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(TIME_TOLERANCE_MS)
}

/// A number of milliseconds.
pub trait Milliseconds: PartialOrd {
    /// The difference, or the nearest number there is.
    fn minus(self, other: Self) -> Self;
}

impl Milliseconds for i64 {
    fn minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Milliseconds for f64 {
    fn minus(self, other: Self) -> Self {
        self - other
    }
}

/// How much longer a lock that expires at `expires_at_ms` counts as held, the tolerance included.
pub(crate) fn held_for(expires_at_ms: i64, now_ms: i64) -> Duration {
    let left_ms = expires_at_ms
        .saturating_sub(now_ms)
        .saturating_add(TIME_TOLERANCE_MS);
    Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
}

/// Milliseconds since the Unix epoch from the reply of Redis' `TIME`: seconds and microseconds.
pub fn redis_server_time_ms(seconds: i64, microseconds: i64) -> i64 {
    seconds * 1000 + microseconds.div_euclid(1000)
}

/// The clock of a backend whose store has none.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            // A clock before 1970 is wrong, but the same for everybody who reads it.
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_live_until_the_tolerance_has_passed() {
        assert!(is_live(1000, 999, 0));
        assert!(!is_live(1000, 1000, 0));
        assert!(is_live(1000, 1999, TIME_TOLERANCE_MS));
        assert!(!is_live(1000, 2000, TIME_TOLERANCE_MS));
        assert!(!is_live(f64::NAN, 0.0, 1000.0));
        // Times of no clock.
        assert!(is_live(0, i64::MIN, TIME_TOLERANCE_MS));
        assert!(!is_live(i64::MIN, i64::MIN, TIME_TOLERANCE_MS));
        assert!(!is_live(i64::MIN, i64::MAX, TIME_TOLERANCE_MS));
    }

    #[test]
    fn a_lock_is_held_in_the_same_milliseconds_whoever_compares() {
        for now_ms in [10_998, 10_999, 11_000, 11_001, i64::MIN, i64::MAX] {
            let is_compared = 10_000 > held_after_ms(now_ms);
            assert_eq!(is_held(10_000, now_ms), is_compared, "{now_ms}");
            assert_eq!(is_held(10_000, now_ms), now_ms < 11_000, "{now_ms}");
        }
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_it_is_live() {
        let ms = |expires_at_ms, now_ms| held_for(expires_at_ms, now_ms).as_millis();
        assert_eq!(ms(10_000, 9_700), 1300);
        assert_eq!(ms(10_000, 10_999), 1);
        assert_eq!(ms(10_000, 11_000), 0);
        assert_eq!(ms(10_000, 60_000), 0);
        assert_eq!(ms(i64::MAX, i64::MIN), i64::MAX.unsigned_abs().into());
    }

    #[test]
    fn redis_time_is_cut_to_whole_milliseconds() {
        assert_eq!(
            redis_server_time_ms(1_700_000_000, 999_999),
            1_700_000_000_999
        );
        assert_eq!(redis_server_time_ms(1, 999), 1000);
    }

    #[test]
    fn the_system_clock_is_past_2020() {
        assert!(SystemClock.now_ms() > 1_577_836_800_000);
    }
}
