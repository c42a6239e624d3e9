//! The extension's data in the answers of a server.

use serde::Serialize;

use super::date::iso8601;
use super::error::ForrstError;
use super::options::Options;
use super::owner::token_of;
use super::scope::Scope;
use syncguard::{Absence, LockRecord, Owner, ReleaseOutcome};

/// The extension's data in the response to a request that got its lock.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct AcquiredData {
    key: String,
    acquired: bool,
    owner: String,
    scope: Scope,
    expires_at: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
}

impl AcquiredData {
    /// A lock that `owner` holds until `expires_at_ms`, on the store's clock.
    ///
    /// `lost` says that the server no longer held the lock when the function ended, so others may have held it in the
    /// meantime. The JSON has this member only if it is true.
    pub fn new(options: &Options, owner: &Owner, expires_at_ms: i64, lost: bool) -> Self {
        Self {
            key: options.key.clone(),
            acquired: true,
            owner: owner.as_str().to_owned(),
            scope: options.scope,
            expires_at: iso8601(expires_at_ms),
            lost,
        }
    }
}

/// The extension's data in the response to a request that got no lock.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct RefusedData {
    key: String,
    acquired: bool,
}

impl RefusedData {
    /// The data that accompany `LOCK_ACQUISITION_FAILED`. For `LOCK_TIMEOUT` the specification has none, so there are
    /// none if the request waited.
    pub fn of(options: &Options) -> Option<Self> {
        options.block.is_none().then(|| Self {
            key: options.key.clone(),
            acquired: false,
        })
    }
}

/// The result of a release.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ReleaseResult {
    released: bool,
    key: String,
}

impl ReleaseResult {
    /// The result for the lock `key`, which the caller owned when it was looked up.
    ///
    /// # Errors
    /// `LOCK_NOT_FOUND` when its time ran out in between, `LOCK_ALREADY_RELEASED` when somebody freed it.
    pub fn of(key: &str, outcome: ReleaseOutcome) -> Result<Self, ForrstError> {
        match outcome {
            ReleaseOutcome::Released => Ok(Self {
                released: true,
                key: key.to_owned(),
            }),
            ReleaseOutcome::Absent(Absence::Expired) => Err(ForrstError::not_found(key)),
            ReleaseOutcome::Absent(Absence::NotFound) => Err(ForrstError::already_released(key)),
        }
    }
}

/// The result of a forced release.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ForceReleaseResult {
    released: bool,
    key: String,
    forced: bool,
}

impl ForceReleaseResult {
    /// The result for the lock `key`: whether there was one to release.
    ///
    /// # Errors
    /// `LOCK_NOT_FOUND` if there was none.
    pub fn of(key: &str, released: bool) -> Result<Self, ForrstError> {
        if !released {
            return Err(ForrstError::not_found(key));
        }
        Ok(Self {
            released,
            key: key.to_owned(),
            forced: true,
        })
    }
}

/// Who holds a lock.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct StatusResult {
    key: String,
    locked: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    held: Option<HeldStatus>,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct HeldStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    acquired_at: String,
    expires_at: String,
    ttl_remaining: i64,
}

impl StatusResult {
    /// Nobody holds `key`.
    pub fn free(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            locked: false,
            held: None,
        }
    }

    /// Somebody holds `key`. Times are milliseconds on the store's clock, which showed `read_at_ms`
    /// at the lookup. `label` is what is stored as the lock's owner. A lock that was not taken through the extension may have
    /// no owner here.
    pub fn held(
        key: &str,
        label: Option<&str>,
        acquired_at_ms: i64,
        expires_at_ms: i64,
        read_at_ms: i64,
    ) -> Self {
        let left_ms = expires_at_ms.saturating_sub(read_at_ms);
        Self {
            key: key.to_owned(),
            locked: true,
            held: Some(HeldStatus {
                owner: label.and_then(token_of).map(str::to_owned),
                acquired_at: iso8601(acquired_at_ms),
                expires_at: iso8601(expires_at_ms),
                // A lock counts as held for a moment past its end, so the remaining time may be negative.
                ttl_remaining: left_ms.max(0) / 1000,
            }),
        }
    }

    /// The status that a lookup of `key` has shown.
    pub fn of(key: &str, record: Option<&LockRecord>) -> Self {
        record.map_or_else(
            || Self::free(key),
            |record| {
                Self::held(
                    key,
                    record.labels.owner.as_ref().map(Owner::as_str),
                    record.acquired_at_ms,
                    record.expires_at_ms,
                    record.read_at_ms,
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;
    use serde_json::json;

    fn options() -> Options {
        let json = json!({ "key": "user:123", "ttl": { "value": 30, "unit": "second" } });
        Options::parse("payments.charge", &json).unwrap()
    }

    #[test]
    fn answers_have_the_structure_of_the_specification() {
        let owner = Owner::new("550e8400-e29b-41d4-a716-446655440000").unwrap();
        let data = AcquiredData::new(&options(), &owner, 1_710_498_630_000, false);
        let text = |json: serde_json::Result<String>| json.unwrap();
        assert_eq!(
            text(serde_json::to_string(&data)),
            concat!(
                r#"{"key":"user:123","acquired":true,"#,
                r#""owner":"550e8400-e29b-41d4-a716-446655440000","scope":"function","#,
                r#""expires_at":"2024-03-15T10:30:30Z"}"#
            )
        );
        let lost = AcquiredData::new(&options(), &owner, 0, true);
        assert!(text(serde_json::to_string(&lost)).ends_with(r#","lost":true}"#));
        assert_eq!(
            text(serde_json::to_string(&RefusedData::of(&options()))),
            r#"{"key":"user:123","acquired":false}"#
        );
        assert_eq!(
            text(serde_json::to_string(
                &ReleaseResult::of("lock:k", ReleaseOutcome::Released).unwrap()
            )),
            r#"{"released":true,"key":"lock:k"}"#
        );
        assert_eq!(
            text(serde_json::to_string(
                &ForceReleaseResult::of("lock:k", true).unwrap()
            )),
            r#"{"released":true,"key":"lock:k","forced":true}"#
        );
    }

    #[test]
    fn a_lock_that_vanished_was_freed_or_expired() {
        let code = |result: Result<ReleaseResult, ForrstError>| result.err().unwrap().code;
        let absent = |absence| ReleaseResult::of("lock:k", ReleaseOutcome::Absent(absence));
        assert_eq!(
            code(absent(Absence::NotFound)),
            ErrorCode::LockAlreadyReleased
        );
        assert_eq!(code(absent(Absence::Expired)), ErrorCode::LockNotFound);
        let forced = ForceReleaseResult::of("lock:k", false).err().unwrap();
        assert_eq!(forced.code, ErrorCode::LockNotFound);
    }

    #[test]
    fn a_status_tells_whole_seconds() {
        let held = StatusResult::held(
            "lock:payments.charge:user:123",
            Some("uuid-abc-123"),
            1_710_496_800_000,
            1_710_498_600_000,
            1_710_497_399_001,
        );
        assert_eq!(
            serde_json::to_string(&held).unwrap(),
            concat!(
                r#"{"key":"lock:payments.charge:user:123","locked":true,"owner":"uuid-abc-123","#,
                r#""acquired_at":"2024-03-15T10:00:00Z","expires_at":"2024-03-15T10:30:00Z","#,
                r#""ttl_remaining":1200}"#
            )
        );
        let over = StatusResult::held("lock:k", None, 0, 1000, 1999);
        assert_eq!(
            serde_json::to_value(&over).unwrap(),
            json!({
                "key": "lock:k",
                "locked": true,
                "acquired_at": "1970-01-01T00:00:00Z",
                "expires_at": "1970-01-01T00:00:01Z",
                "ttl_remaining": 0,
            })
        );
        assert_eq!(
            serde_json::to_string(&StatusResult::free("lock:k")).unwrap(),
            r#"{"key":"lock:k","locked":false}"#
        );
    }
}
