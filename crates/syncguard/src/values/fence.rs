//! Fencing tokens.

use std::fmt;

use crate::text::error::{Error, ErrorKind};

/// A fencing token: a number that grows with each acquisition of one key.
///
/// It is the store's time in milliseconds, or one more than the last fence of the key where that is larger. So it goes
/// on growing when the store has lost its counters.
///
/// As text it has exactly 15 digits, so that the order of texts is the order of numbers
/// (docs/format.md, "Fence token format").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The number of digits of a fence as text.
    pub const DIGITS: usize = 15;
    /// The largest fence a lock may get: 9 × 10¹⁴.
    pub const MAX: Self = Self(900_000_000_000_000);
    /// Fences above this, 9 × 10¹³, are reported with a warning.
    pub const WARN: Self = Self(90_000_000_000_000);

    /// A counter's value as a fence.
    ///
    /// # Errors
    /// `Internal` when it is below 1 or above [`Fence::MAX`]: such a counter must not be used.
    pub fn from_counter(value: i64) -> Result<Self, Error> {
        match u64::try_from(value) {
            Ok(number) if (1..=Self::MAX.0).contains(&number) => Ok(Self(number)),
            Ok(number) if number > Self::MAX.0 => Err(Self::overflow()),
            _ => Err(Error::new(
                ErrorKind::Internal,
                format!("fence counter holds {value}, which no acquisition can have written"),
            )),
        }
    }

    /// The fence of an acquisition at `now_ms` by the store's clock, whose counter stands at `counter`, checked before
    /// anything is written. The time counts up to [`Fence::WARN`] only: a clock that has gone mad uses up a tenth of
    /// the numbers at most.
    ///
    /// # Errors
    /// `Internal` at the limit, and for a counter below zero.
    pub fn after(counter: i64, now_ms: i64) -> Result<Self, Error> {
        let next = Self::from_counter(counter.saturating_add(1))?;
        let time = Self(u64::try_from(now_ms).unwrap_or(0)).min(Self::WARN);
        Ok(next.max(time))
    }

    /// Reads the text form, as stores keep it.
    ///
    /// # Errors
    /// `Internal` when it is not 15 digits of a valid fence.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || {
            Error::new(
                ErrorKind::Internal,
                format!("stored fence is not a number of {} digits", Self::DIGITS),
            )
        };
        if text.len() != Self::DIGITS || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        Self::from_counter(text.parse().map_err(|_| malformed())?)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Whether to warn users that this key is running out of fences.
    pub fn is_near_limit(self) -> bool {
        self > Self::WARN
    }

    /// The error for a counter that has no fence left to give.
    pub fn overflow() -> Error {
        Error::new(
            ErrorKind::Internal,
            format!(
                "Fence counter exceeds the limit of {}; use a new key",
                Self::MAX
            ),
        )
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$}", self.0, width = Self::DIGITS)
    }
}

/// The fence, as text, of a whole decimal number: padded with zeros to 15 digits.
///
/// # Errors
/// `InvalidArgument` when it is negative, longer than 15 digits, or not a whole number.
pub fn format_fence(number: &str) -> Result<String, Error> {
    if number.starts_with('-') {
        return Err(Error::invalid("Fence must be non-negative"));
    }
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::invalid("Fence must be a whole number"));
    }
    let digits = number.trim_start_matches('0');
    let width = Fence::DIGITS;
    if digits.len() > width {
        return Err(Error::invalid(format!(
            "Fence exceeds {width}-digit limit: {digits}"
        )));
    }
    Ok(format!("{digits:0>width$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn the_next_fence_is_refused_before_the_limit_is_passed() {
        assert_eq!(Fence::after(899_999_999_999_999, NOW).unwrap(), Fence::MAX);
        for counter in [900_000_000_000_000, i64::MAX, -1, i64::MIN] {
            assert_eq!(
                Fence::after(counter, NOW).unwrap_err().kind(),
                ErrorKind::Internal
            );
        }
    }

    #[test]
    fn a_fence_is_the_time_unless_the_counter_is_ahead_of_it() {
        for (counter, now_ms, fence) in [
            (0, NOW, "001700000000000"),
            (41, NOW, "001700000000000"),
            (NOW - 1, NOW, "001700000000000"),
            (NOW, NOW, "001700000000001"),
            (NOW + 5, NOW, "001700000000006"),
            // Clocks of before 1970.
            (0, 0, "000000000000001"),
            (41, -NOW, "000000000000042"),
        ] {
            assert_eq!(Fence::after(counter, now_ms).unwrap().to_string(), fence);
        }
    }

    #[test]
    fn no_clock_uses_up_the_fences() {
        for now_ms in [Fence::WARN.0.cast_signed() + 1, i64::MAX] {
            assert_eq!(Fence::after(0, now_ms).unwrap(), Fence::WARN);
            let next = Fence::after(Fence::WARN.0.cast_signed(), now_ms).unwrap();
            assert_eq!(next.get(), Fence::WARN.get() + 1);
        }
    }

    #[test]
    fn warnings_start_above_the_threshold() {
        assert!(!Fence::WARN.is_near_limit());
        assert!(
            Fence::after(90_000_000_000_000, NOW)
                .unwrap()
                .is_near_limit()
        );
    }

    #[test]
    fn stored_text_must_be_a_fence() {
        assert_eq!(Fence::parse("000000000000042").unwrap().get(), 42);
        for text in [
            "",
            "42",
            "00000000000004x",
            "000000000000000",
            "999999999999999",
        ] {
            assert_eq!(Fence::parse(text).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
