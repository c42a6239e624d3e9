//! How long locks last.

use std::time::Duration;

use super::time::{Clock, SystemClock};
use crate::text::error::Error;

/// A TTL within a year of the clock was meant as a time, unless it is shorter than a year itself.
const YEAR_MS: u64 = 31_557_600_000;

/// How long a lock lasts unless it is extended: whole milliseconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(i64);

impl Ttl {
    /// The longest TTL: about 10 000 years. Up to that, every expiry is exact as a number in JavaScript too.
    pub const MAX_MS: i64 = 315_576_000_000_000;

    /// 30 seconds.
    pub const DEFAULT: Self = Self(30_000);

    /// A TTL of that many milliseconds.
    ///
    /// # Errors
    /// `InvalidArgument` unless `ms` is from 1 to [`Ttl::MAX_MS`], and for a time, in milliseconds since 1970, within a year from now.
    pub fn from_millis(ms: i64) -> Result<Self, Error> {
        let ttl = Self::within_bounds(ms)?;
        // A clock may be wrong, and begin at 0.
        let may_be_time = ms.unsigned_abs() > YEAR_MS;
        if may_be_time && ms.abs_diff(SystemClock.now_ms()) < YEAR_MS {
            return Err(Error::invalid(
                "ttlMs is how long the lock lasts, and not when it ends: give 30_000 for 30 seconds",
            ));
        }
        Ok(ttl)
    }

    /// The same for callers whose numbers are all `f64`, as in JavaScript.
    ///
    /// # Errors
    /// As [`from_millis`](Self::from_millis), and for fractions, NaN and infinity.
    pub fn from_f64(ms: f64) -> Result<Self, Error> {
        if !(ms.is_finite() && ms.fract() == 0.0) {
            return Err(not_a_ttl());
        }
        // The cast saturates, and the saturated values are out of range.
        Self::from_millis(ms as i64)
    }

    /// A TTL of that length, which is no time by mistake. Parts of a millisecond are cut off.
    ///
    /// # Errors
    /// `InvalidArgument` for less than a millisecond, and for more than [`Ttl::MAX_MS`].
    pub fn from_duration(length: Duration) -> Result<Self, Error> {
        Self::within_bounds(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
    }

    fn within_bounds(ms: i64) -> Result<Self, Error> {
        if ms < 1 {
            return Err(not_a_ttl());
        }
        if ms > Self::MAX_MS {
            return Err(Error::invalid(format!(
                "ttlMs must not exceed {}",
                Self::MAX_MS
            )));
        }
        Ok(Self(ms))
    }

    /// Milliseconds.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    pub(crate) fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

fn not_a_ttl() -> Error {
    Error::invalid("ttlMs must be a positive integer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    #[test]
    fn ttl_is_a_positive_integer_within_bounds() {
        assert_eq!(Ttl::from_f64(1.0).unwrap().as_millis(), 1);
        assert_eq!(Ttl::from_f64(30_000.0).unwrap().as_millis(), 30_000);
        for bad in [0.0, -1.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Ttl::from_f64(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), "ttlMs must be a positive integer");
        }
        for long in [1e16, 1e300] {
            assert_eq!(
                Ttl::from_f64(long).unwrap_err().message(),
                "ttlMs must not exceed 315576000000000"
            );
        }
    }

    #[test]
    fn a_time_is_no_ttl() {
        let (now, year) = (SystemClock.now_ms(), YEAR_MS.cast_signed());
        for time in [now - year / 2, now, now + 30_000, now + year / 2] {
            let error = Ttl::from_millis(time).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("not when it ends"), "{error}");
        }
        for ttl in [year, now - 2 * year, now + 2 * year, Ttl::MAX_MS] {
            assert_eq!(Ttl::from_millis(ttl).unwrap().as_millis(), ttl);
        }
    }

    #[test]
    fn a_length_of_time_is_a_ttl_within_bounds() {
        let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let now = SystemClock.now_ms();
        for ttl in [1, now, Ttl::MAX_MS] {
            assert_eq!(Ttl::from_duration(ms(ttl)).unwrap().as_millis(), ttl);
        }
        let cut = Ttl::from_duration(Duration::from_micros(1_999)).unwrap();
        assert_eq!(cut.as_millis(), 1);
        for bad in [
            Duration::from_micros(999),
            ms(Ttl::MAX_MS + 1),
            Duration::MAX,
        ] {
            assert!(Ttl::from_duration(bad).is_err(), "{bad:?}");
        }
    }
}
