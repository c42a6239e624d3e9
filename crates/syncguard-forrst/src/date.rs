//! Dates as ISO 8601.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The last second that has a year of four digits.
const LATEST_SECOND: i64 = 253_402_300_799;

/// `2024-03-15T10:30:30Z`: in UTC, to the second, rounded down.
///
/// The extension writes whole seconds. Rounding down makes a holder stop too early rather than too late. A date
/// outside of the years 0 to 9999 becomes the nearest second within them; only other programs that write to the store
/// can make such locks.
pub fn iso8601(ms: i64) -> String {
    const EARLIEST_SECOND: i64 = -62_167_219_200;
    let second = ms.div_euclid(1000).clamp(EARLIEST_SECOND, LATEST_SECOND);
    OffsetDateTime::from_unix_timestamp(second)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .format(&Rfc3339)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc_to_the_second() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_710_498_630_000, "2024-03-15T10:30:30Z"),
            (1_710_498_630_999, "2024-03-15T10:30:30Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso8601(ms), text);
        }
    }

    #[test]
    fn no_number_is_too_large() {
        assert_eq!(iso8601(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(iso8601(i64::MIN), "0000-01-01T00:00:00Z");
    }
}
