//! Lengths of time as the extension writes them: `{ "value": 30, "unit": "second" }`.

use serde::Serialize;
use serde_json::Value;

use super::error::ForrstError;

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
    const ALL: [Self; 5] = [
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

    fn as_millis(self) -> i64 {
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
    value: i64,
    unit: Unit,
}

impl Duration {
    /// The longest: 36 525 days, so that every date has a year of four digits.
    pub const MAX_MS: i64 = 36_525 * 86_400_000;

    /// Reads the option `field`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` that names the field.
    pub fn parse(field: &str, json: &Value) -> Result<Self, ForrstError> {
        let members = json.as_object().ok_or_else(|| {
            ForrstError::invalid(field, "must be an object with a value and a unit")
        })?;
        if let Some(unknown) = members.keys().find(|name| !is_member(name)) {
            return Err(ForrstError::unknown_member(field, unknown));
        }
        let unit_field = format!("{field}.unit");
        let unit = members
            .get("unit")
            .and_then(Value::as_str)
            .and_then(|name| Unit::ALL.into_iter().find(|unit| unit.as_str() == name))
            .ok_or_else(|| {
                ForrstError::invalid(
                    &unit_field,
                    "must be \"millisecond\", \"second\", \"minute\", \"hour\" or \"day\"",
                )
            })?;
        let value_field = format!("{field}.value");
        let value = members
            .get("value")
            .and_then(whole_number)
            .filter(|value| *value >= 1.0)
            .ok_or_else(|| ForrstError::invalid(&value_field, "must be a positive whole number"))?;
        if value * unit.as_millis() as f64 > Self::MAX_MS as f64 {
            return Err(ForrstError::invalid(
                &value_field,
                "is too large: the longest duration is 36525 days",
            ));
        }
        // Exact: whole, and far below 2^53.
        let value = value as i64;
        Ok(Self { value, unit })
    }

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

/// A JSON number without a fractional part: `30`, and `30.0` too, which is the same in JSON.
fn whole_number(json: &Value) -> Option<f64> {
    json.as_f64().filter(|number| number.fract() == 0.0)
}

fn is_member(name: &str) -> bool {
    name == "value" || name == "unit"
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
        let one = Duration::parse("ttl", &json!({ "value": 1.0, "unit": "hour" })).unwrap();
        assert_eq!(one.in_words(), "1 hour");
        assert!(Duration::parse("ttl", &json!({ "value": 36_525, "unit": "day" })).is_ok());
    }
}
