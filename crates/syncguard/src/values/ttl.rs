//! How long locks last.

use std::time::Duration;

use crate::text::error::Error;

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
    /// `InvalidArgument` unless `ms` is from 1 to [`Ttl::MAX_MS`].
    pub fn from_millis(ms: i64) -> Result<Self, Error> {
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
}
