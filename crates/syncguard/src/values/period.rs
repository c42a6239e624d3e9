//! Periods that are named by a date, as ISO 8601 writes it.

use std::ops::RangeInclusive;

const DAY_MS: i64 = 86_400_000;
const MINUTES: i64 = 24 * 60;

/// What a name says of its period.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// When it begins, in milliseconds since the Unix epoch; without an offset, as if it were UTC.
    pub(super) start_ms: i64,
    /// The name in UTC, if it has an offset: its bytes sort as its moments do only then.
    pub(super) utc: Option<String>,
}

/// The period that a text names; `None` if it does not read as a date.
pub(super) fn period(text: &str) -> Option<Period> {
    if text.len() == 13
        && let Some(start_ms) = number(text, 0..=i64::MAX)
    {
        return Some(Period {
            start_ms,
            utc: None,
        });
    }
    let (date, time) = match text.get(10..11) {
        Some("T" | " ") => (text.get(..10)?, Some((text.get(10..11)?, text.get(11..)?))),
        _ => (text, None),
    };
    let days = days_of(date)?;
    let Some((between, time)) = time else {
        return starting(days * DAY_MS, None);
    };
    let (clock, offset) = match time.find(['Z', '+', '-']) {
        Some(at) => (time.get(..at)?, Some(time.get(at..)?)),
        None => (time, None),
    };
    let seconds = seconds_of(clock)?;
    let minutes =
        days * MINUTES + number(clock.get(..2)?, 0..=23)? * 60 + number(clock.get(3..5)?, 0..=59)?;
    let Some(offset) = offset.filter(|offset| *offset != "Z") else {
        return starting(minutes * 60_000, None);
    };
    let minutes = minutes - minutes_of(offset)?;
    let (date, time) = (
        date_of(minutes.div_euclid(MINUTES)),
        minutes.rem_euclid(MINUTES),
    );
    let (hour, minute) = (time / 60, time % 60);
    let utc = format!("{date}{between}{hour:02}:{minute:02}{seconds}Z");
    starting(minutes * 60_000, Some(utc))
}

fn starting(start_ms: i64, utc: Option<String>) -> Option<Period> {
    (start_ms >= 0).then_some(Period { start_ms, utc })
}

/// `2026-11-24`, `20261124`, `2026-11` or `2026-W48`, in days since the Unix epoch.
fn days_of(date: &str) -> Option<i64> {
    let year = number(date.get(..4)?, 0..=9999)?;
    if let Some(week) = date.get(4..).and_then(|rest| rest.strip_prefix("-W")) {
        let week = number(week, 1..=53).filter(|_| date.len() == 8)?;
        // The first week has the 4th of January in it, and the 1st of January 1970 was a Thursday.
        let fourth = days(year, 1, 4);
        return Some(fourth - (fourth + 3).rem_euclid(7) + (week - 1) * 7);
    }
    let (month, day) = match date.len() {
        8 => (date.get(4..6)?, date.get(6..)?),
        7 => (date.get(4..)?.strip_prefix('-')?, "01"),
        10 => {
            let (month, day) = date.get(4..)?.strip_prefix('-')?.split_once('-')?;
            (month, day)
        }
        _ => return None,
    };
    let is_pair = month.len() == 2 && day.len() == 2;
    let (month, day) = (number(month, 1..=12)?, number(day, 1..=31)?);
    is_pair.then(|| days(year, month, day))
}

/// What follows the minutes of `02:00`, `02:00:00` or `02:00:00.000`.
fn seconds_of(clock: &str) -> Option<&str> {
    let seconds = clock.get(5..)?;
    let is_pair = clock.get(2..3) == Some(":");
    let is_right = match seconds.strip_prefix(':') {
        None => seconds.is_empty(),
        Some(rest) => {
            let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
            whole.len() == 2 && [whole, fraction].into_iter().all(is_digits)
        }
    };
    (is_pair && is_right).then_some(seconds)
}

/// `+02:00`, `+0200` or `+02`.
fn minutes_of(offset: &str) -> Option<i64> {
    let rest = offset.get(3..)?;
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" if rest.is_empty() => 0,
        minutes if minutes.len() == 2 => number(minutes, 0..=99)?,
        _ => return None,
    };
    let minutes = number(offset.get(1..3)?, 0..=99)? * 60 + minutes;
    match offset.get(..1)? {
        "+" => Some(minutes),
        "-" => Some(-minutes),
        _ => None,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str, range: RangeInclusive<i64>) -> Option<i64> {
    let number = is_digits(text).then(|| text.parse().ok())??;
    range.contains(&number).then_some(number)
}

/// Days since the Unix epoch of a day of the Gregorian calendar. A year begins in March here, so that its last day is the one that
/// some years have more.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// The day as ISO 8601 writes it.
fn date_of(since_epoch: i64) -> String {
    // At most a year too late: no year has fewer days.
    let mut year = 1970 + since_epoch.div_euclid(365);
    while days(year, 1, 1) > since_epoch {
        year -= 1;
    }
    let mut month = 12;
    while days(year, month, 1) > since_epoch {
        month -= 1;
    }
    let day = since_epoch - days(year, month, 1) + 1;
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written_as_the_calendar_has_them() {
        for (text, since_epoch) in [
            ("1970-01-01", 0),
            ("1972-02-29", 789),
            ("2000-02-29", 11_016),
            ("2026-12-31", 20_818),
            ("2100-03-01", 47_541),
        ] {
            assert_eq!(days_of(text), Some(since_epoch), "{text}");
            assert_eq!(date_of(since_epoch), text);
        }
        for since_epoch in 0..60_000 {
            assert_eq!(days_of(&date_of(since_epoch)), Some(since_epoch));
        }
    }
}
