//! Which period, or which version, something is to be done for, once.

use std::fmt;

use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::period::period;

/// Names a period, or a version, for which something is to be done once: see [`once`](crate::once).
///
/// There are two kinds, and those of one kind have an order. **Numbers** have that of numbers: moments in milliseconds since
/// the Unix epoch, or versions such as 42. **Texts** have that of their bytes: ISO dates sort so, and versions of which each
/// part has always the same length. A text of digits alone is a number. What is done for a key stays of one kind. A time with an
/// offset, such as `2026-10-25T02:00+02:00`, is the same in UTC, `2026-10-25T00:00Z`; without one, the second 02:00 of a night in
/// which clocks go back counts as the first.
///
/// `Debug` and error messages never show it: what users choose may say more than it should.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due(Box<str>);

/// What a stored number and a stored text begin with.
const NUMBER: char = 'n';
const TEXT: char = 't';

/// How far ahead of the store's clock a period may begin.
const DAY_MS: i64 = 86_400_000;

impl Due {
    /// The longest text, in characters.
    pub const MAX_LENGTH: usize = 100;

    /// The most digits of a number; a stored one has so many, so that the order of bytes is that of numbers.
    pub const DIGITS: usize = 20;

    /// Takes `text`: a number if all of it is digits, else a text.
    ///
    /// # Errors
    /// `InvalidArgument` when it is empty, longer than [`MAX_LENGTH`](Self::MAX_LENGTH) characters (of digits, 20), or has
    /// others than the printable ones of ASCII.
    ///
    /// ```
    /// use syncguard::Due;
    /// assert!(Due::new("9")? < Due::new("10")?);
    /// assert!(Due::new("2026-11-24")? < Due::new("2026-11-25T06:00Z")?);
    /// # Ok::<(), syncguard::Error>(())
    /// ```
    pub fn new(text: &str) -> Result<Self, Error> {
        let due = Self::as_written(text)?;
        let utc = period(text).and_then(|period| period.utc);
        Ok(utc.map_or(due, |utc| Self::text(&utc)))
    }

    fn as_written(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::invalid("due must not be empty"));
        }
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(Error::invalid(
                "due must contain only printable characters of ASCII",
            ));
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let digits = text.trim_start_matches('0');
            if digits.len() > Self::DIGITS {
                return Err(Error::invalid(format!(
                    "due must not have more than {} digits",
                    Self::DIGITS
                )));
            }
            return Ok(Self::number(digits));
        }
        if text.len() > Self::MAX_LENGTH {
            return Err(Error::invalid(format!(
                "due must not have more than {} characters",
                Self::MAX_LENGTH
            )));
        }
        Ok(Self::text(text))
    }

    fn text(text: &str) -> Self {
        Self(format!("{TEXT}{text}").into())
    }

    /// That number, such as a moment in milliseconds since the Unix epoch.
    pub fn from_number(number: u64) -> Self {
        Self::number(&number.to_string())
    }

    fn number(digits: &str) -> Self {
        let width = Self::DIGITS;
        Self(format!("{NUMBER}{digits:0>width$}").into())
    }

    /// What a store has kept, as [`as_stored`](Self::as_stored) gave it.
    ///
    /// # Errors
    /// `InvalidArgument` if it is no such text.
    pub fn stored(text: &str) -> Result<Self, Error> {
        let mut chars = text.chars();
        let first = chars.next();
        let due = Self::as_written(chars.as_str())?;
        match first == due.0.chars().next() && due.0.len() == text.len() {
            true => Ok(due),
            false => Err(Error::invalid("due is not of the stored form")),
        }
    }

    /// As stores keep it: within a kind, the order of its bytes is the order.
    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// Whether both are numbers, or both are texts.
    pub fn is_of_kind(&self, other: &Self) -> bool {
        self.is_number() == other.is_number()
    }

    /// Whether something for `self` is still to be done if `last` is the last that was done.
    pub fn is_after(&self, last: &Self) -> bool {
        self.is_of_kind(last) && self > last
    }

    /// Whether it reads as a date, or as a moment in milliseconds, that begins more than a day after `now_ms`, a moment of the store's
    /// clock: a clock is wrong, or somebody has mistyped it.
    pub fn is_far_ahead(&self, now_ms: i64) -> bool {
        let period = period(&self.to_string());
        period.is_some_and(|period| period.start_ms > now_ms + DAY_MS)
    }

    fn is_number(&self) -> bool {
        self.0.starts_with(NUMBER)
    }
}

/// The text, or the number without leading zeros.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.get(1..).unwrap_or_default();
        match self.is_number() {
            true => f.write_str(match text.trim_start_matches('0') {
                "" => "0",
                digits => digits,
            }),
            false => f.write_str(text),
        }
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Due({} bytes)", self.0.len())
    }
}

/// What is stored of a key once something was done for a period of it: the last such period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneMark {
    /// The period.
    pub due: Due,
    /// When it was stored as done, on the store's clock, in milliseconds since the Unix epoch.
    pub done_at_ms: i64,
    /// The id of the lock under which it was done, so that a release that is repeated is recognised. A mark that was set by
    /// force has one that no lock had.
    pub lock_id: LockId,
}

impl DoneMark {
    /// Whether nothing is to be done for `due` any more.
    pub fn covers(&self, due: &Due) -> bool {
        !due.is_after(&self.due)
    }
}

/// What to do with the mark of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkChange {
    /// Leave it as it is.
    Keep,
    /// Remove it, so that any period is still to be done.
    Clear,
    /// Store this period as done, whatever was before.
    Set(Due),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(text: &str) -> Due {
        Due::new(text).unwrap()
    }

    #[test]
    fn numbers_have_the_order_of_numbers() {
        let numbers = [
            "0",
            "9",
            "10",
            "007",
            "1764000000000",
            "18446744073709551615",
        ];
        for number in numbers {
            for other in numbers {
                let [a, b] = [number, other].map(|text| text.parse::<u64>().unwrap());
                assert_eq!(due(number) > due(other), a > b, "{number} {other}");
                assert_eq!(due(number), Due::from_number(a));
                assert_eq!(due(number).to_string(), a.to_string());
            }
        }
    }

    #[test]
    fn texts_have_the_order_of_their_bytes() {
        let sorted = [
            " ",
            "1.10",
            "1.9",
            "2026-11-24",
            "2026-11-24T06:00Z",
            "B",
            "a",
            "a ",
            "~",
        ];
        assert!(sorted.map(due).is_sorted());
        assert_eq!(due("2026-11-24").to_string(), "2026-11-24");
    }

    #[test]
    fn no_text_comes_before_or_after_a_number() {
        let (number, text) = (due("42"), due("v42"));
        assert!(!number.is_after(&text) && !text.is_after(&number));
        assert!(!number.is_of_kind(&text));
        assert!(due("43").is_after(&number) && !number.is_after(&number));
    }

    #[test]
    fn the_hour_that_comes_twice_is_twice_due() {
        let [first, second] = ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"].map(due);
        assert!(second.is_after(&first));
        assert_eq!(first.to_string(), "2026-10-25T00:00Z");
        // It may have been stored before that was so.
        let stored = Due::stored("t2026-10-25T02:00+02:00").unwrap();
        assert_eq!(stored.to_string(), "2026-10-25T02:00+02:00");
    }

    #[test]
    fn a_date_may_begin_a_day_ahead_and_no_more() {
        // 2026-11-27T12:00Z
        let now_ms = 1_795_780_800_000;
        for text in [
            "2026-11-28",
            "2026-11-28T12:00Z",
            "2026-11-28T14:00+02:00",
            "20261128",
            "1795867200000",
            "2026-11",
            "2026-W48",
            "42",
            "20271127235959",
            "v2027-11-27",
            "report",
        ] {
            assert!(!due(text).is_far_ahead(now_ms), "{text}");
        }
        for text in [
            "2026-11-29",
            "2026-11-28T12:01Z",
            "2026-11-28 12:00:00-00:01",
            "2027-11-27",
            "20271127",
            "1795867200001",
            "2026-12",
            "2026-W49",
            "2027-W01",
        ] {
            assert!(due(text).is_far_ahead(now_ms), "{text}");
        }
    }

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        for text in ["42", "v42", "n1", "t", " "] {
            let stored = due(text);
            assert_eq!(Due::stored(stored.as_stored()).unwrap(), stored);
        }
        for bad in [
            "",
            "n",
            "n42",
            "t42",
            "x1",
            "nv42",
            "té",
            "n000000000000000000042",
        ] {
            assert!(Due::stored(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_has_no_order_is_refused_without_being_told() {
        for bad in [
            String::new(),
            "secret\n".to_owned(),
            "secr\u{e9}t".to_owned(),
            "s".repeat(Due::MAX_LENGTH + 1),
            "1".repeat(21),
        ] {
            let error = Due::new(&bad).unwrap_err();
            assert!(error.message().starts_with("due must"), "{error}");
            assert!(!error.message().contains("secr"));
        }
        assert!(Due::new(&"s".repeat(Due::MAX_LENGTH)).is_ok());
        assert!(Due::new(&format!("{:0>300}", 7)).is_ok());
        assert!(!format!("{:?}", due("secret")).contains("secret"));
    }
}
