//! Lengths of time as the extension writes them: `{ "value": 30, "unit": "second" }`.

use serde::Serialize;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A thousandth of a second.
    Millisecond,
    /// 1000 milliseconds.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
}

impl Unit {
    pub(super) const ALL: [Self; 5] = [
        Self::Millisecond,
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Millisecond => "millisecond",
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    pub(super) fn as_millis(self) -> i64 {
        match self {
            Self::Millisecond => 1,
            Self::Second => 1000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }
}

/// A length of time: a whole number of units, at least one, at most [`Duration::MAX_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Duration {
    pub(super) value: i64,
    pub(super) unit: Unit,
}

impl Duration {
    /// The longest: 36 525 days, so that every date has a year of four digits.
    pub const MAX_MS: i64 = 36_525 * 86_400_000;

    /// Milliseconds.
    pub fn as_millis(self) -> i64 {
        self.value.saturating_mul(self.unit.as_millis())
    }

    /// `"5 seconds"`.
    pub fn in_words(self) -> String {
        let plural = if self.value == 1 { "" } else { "s" };
        format!("{} {}{plural}", self.value, self.unit.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_unit_counts() {
        for (unit, ms) in [
            ("millisecond", 3),
            ("second", 3000),
            ("minute", 180_000),
            ("hour", 10_800_000),
            ("day", 259_200_000),
        ] {
            let duration = Duration::parse("ttl", &json!({ "value": 3, "unit": unit })).unwrap();
            assert_eq!(duration.as_millis(), ms);
            assert_eq!(duration.in_words(), format!("3 {unit}s"));
            assert_eq!(
                serde_json::to_string(&duration).unwrap(),
                format!(r#"{{"value":3,"unit":"{unit}"}}"#)
            );
        }
        let hour = Duration::parse("ttl", &json!({ "value": 1.0, "unit": "hour" })).unwrap();
        assert_eq!(hour.in_words(), "1 hour");
        assert!(Duration::parse("ttl", &json!({ "value": 36_525, "unit": "day" })).is_ok());
    }
}
