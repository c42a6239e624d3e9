//! The stored form of a lock: a JSON object with lockId, expiresAtMs, acquiredAtMs, fence, key and perhaps
//! labels, in any order, and any other members that its writer added.

use serde_json::{Map, Value};

use crate::asking::inspection::LockRecord;
use crate::redis::reply::{Reply, malformed};
use crate::text::error::Error;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::{Clock as _, SystemClock, is_held};

/// The end of the object that acquire writes. What users choose, the key and labels, comes after everything
/// that the scripts' patterns look for, so it cannot imitate that.
pub(super) fn tail(key: &str, labels: &Labels) -> String {
    let mut json = tail_start(key);
    end(&mut json, labels);
    json
}

/// The first part of the tail, which ends with the text of the key.
pub(super) fn tail_start(key: &str) -> String {
    // A text is always JSON.
    let text = serde_json::to_string(key).unwrap_or_default();
    let mut json = String::with_capacity(text.len() + 64);
    json.push_str("\"key\":");
    json.push_str(text.strip_suffix('"').unwrap_or_default());
    json
}

/// The last part of the tail, which follows the text of the key.
pub(super) fn tail_end(labels: &Labels) -> String {
    let mut json = String::new();
    end(&mut json, labels);
    json
}

fn end(json: &mut String, labels: &Labels) {
    json.push('"');
    for (name, text) in labels.iter() {
        let text = serde_json::to_string(text).unwrap_or_default();
        for part in [",\"", name, "\":", &text] {
            json.push_str(part);
        }
    }
    json.push('}');
}

/// Whether a script that looks a lock up can give that reply, whatever is stored.
pub(super) fn fits(reply: &Reply) -> bool {
    match reply {
        Reply::Nil | Reply::Bulk(_) => true,
        Reply::Array(items) => {
            matches!(items.as_slice(), [Reply::Bulk(_), now] if now.integer().is_some())
        }
        Reply::Int(_) | Reply::Error(_) => false,
    }
}

/// What the reply to a lookup means.
///
/// # Errors
/// `Internal` for a reply or a stored value that makes no sense.
pub fn outcome(reply: &Reply) -> Result<Option<LockRecord>, Error> {
    let record = match reply {
        Reply::Nil => return Ok(None),
        Reply::Bulk(json) => read(json, None),
        Reply::Array(items) => match items.as_slice() {
            [Reply::Bulk(json), now] => now.integer().and_then(|now| read(json, Some(now))),
            _ => None,
        },
        Reply::Int(_) | Reply::Error(_) => None,
    };
    record.map(Some).ok_or_else(|| malformed("lookup"))
}

/// The labels in what is stored. What cannot be read has none.
pub(super) fn labels(json: &[u8]) -> Labels {
    let text = str::from_utf8(json).unwrap_or_default();
    // Most locks have none.
    if !Labels::NAMES.iter().any(|name| text.contains(name)) {
        return Labels::default();
    }
    let object: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    Labels::read(|name| object.get(name)?.as_str())
}

/// Whether this is the group of the key, in the form in which grant.lua writes it.
pub(super) fn is_groups(json: &[u8], key: &Key) -> bool {
    let lock_id = json.strip_prefix(b"{\"lockId\":\"");
    let lock_id = lock_id.and_then(|rest| str::from_utf8(rest.get(..LockId::LENGTH)?).ok());
    let lock_id = lock_id.and_then(|text| LockId::parse(text).ok());
    lock_id.is_some_and(|lock_id| lock_id.is_group_of(key.as_str()))
}

fn read(json: &[u8], now_ms: Option<i64>) -> Option<LockRecord> {
    let object: Map<String, Value> = serde_json::from_slice(json).ok()?;
    let text = |name: &str| object.get(name)?.as_str();
    let expires_at_ms = whole(object.get("expiresAtMs")?)?;
    let key = Key::stored(text("key")?).ok()?;
    let lock_id = LockId::parse(text("lockId")?).ok()?;
    Some(LockRecord {
        is_shared: key.reader_id().is_some() || lock_id.is_group_of(key.as_str()),
        key,
        lock_id,
        expires_at_ms,
        acquired_at_ms: whole(object.get("acquiredAtMs")?)?,
        fence: fence(object.get("fence")?)?,
        labels: Labels::read(text),
        read_at_ms: now_ms.unwrap_or_else(|| told_live(expires_at_ms)),
    })
}

/// A time of reading for a reply that says that the lock is live but not what time it is on the server: now if
/// the lock is live by our clock, else a time at which it is.
fn told_live(expires_at_ms: i64) -> i64 {
    let now = SystemClock.now_ms();
    if is_held(expires_at_ms, now) {
        now
    } else {
        expires_at_ms
    }
}

/// A whole number, also one written as 1.7e+12.
fn whole(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
    })
}

/// A fence as text of digits, or as a number.
fn fence(value: &Value) -> Option<Fence> {
    let counter = match value.as_str() {
        Some(text) => Reply::Bulk(text.as_bytes().to_vec()).integer()?,
        None => whole(value)?,
    };
    Fence::from_counter(counter).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;
    use crate::values::owner::Owner;

    fn bulk(json: &str) -> Reply {
        Reply::Bulk(json.as_bytes().to_vec())
    }

    #[test]
    fn members_come_in_any_order_and_any_form_of_number() {
        for json in [
            r#"{"lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":1700000001000,"acquiredAtMs":1700000000000,"fence":"000000000000042","key":"k"}"#,
            r#"{"fence":42,"key":"k","x":[],"acquiredAtMs":1.7e+12,"lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":1700000001000.0}"#,
        ] {
            let reply = Reply::Array(vec![bulk(json), Reply::Int(1_700_000_000_500)]);
            let record = outcome(&reply).unwrap().unwrap();
            assert_eq!(record.key.as_str(), "k");
            assert_eq!(record.lock_id.as_str(), "AAAAAAAAAAAAAAAAAAAAAA");
            assert_eq!(record.expires_at_ms, 1_700_000_001_000);
            assert_eq!(record.acquired_at_ms, 1_700_000_000_000);
            assert_eq!(record.fence.get(), 42);
            assert!(record.labels.is_empty());
            assert_eq!(record.read_at_ms, 1_700_000_000_500);
            // The time may be missing; the lock is live all the same.
            assert!(outcome(&bulk(json)).unwrap().unwrap().is_live());
        }
        assert_eq!(outcome(&Reply::Nil).unwrap(), None);
    }

    #[test]
    fn the_tail_is_json_whatever_users_name() {
        let name = "\"\\{}\u{1}\u{7f}é\u{2028}😀\"expiresAtMs\":1";
        let key = Key::new(name).unwrap();
        let tail = tail(key.as_str(), &Owner::new(name).unwrap().into());
        let object: Value = serde_json::from_str(&format!("{{{tail}")).unwrap();
        assert_eq!(object["key"], name);
        assert_eq!(object["owner"], name);
    }

    #[test]
    fn anything_else_is_malformed() {
        let good = r#"{"lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":1,"acquiredAtMs":1,"fence":1,"key":"k"}"#;
        assert!(outcome(&bulk(good)).is_ok());
        for (from, to) in [
            ("AAAAAAAAAAAAAAAAAAAAAA", "A"),
            ("\"expiresAtMs\":1", "\"expiresAtMs\":1.5"),
            ("\"acquiredAtMs\":1", "\"acquiredAtMs\":\"1\""),
            ("\"fence\":1", "\"fence\":\"x\""),
            ("\"fence\":1", "\"fence\":0"),
            ("\"k\"", "\"\""),
            ("\"k\"", "null"),
            ("{", "["),
        ] {
            let reply = bulk(&good.replace(from, to));
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
        for reply in [
            Reply::Int(1),
            Reply::Array(vec![]),
            Reply::Array(vec![bulk(good)]),
            Reply::Array(vec![bulk(good), Reply::Nil]),
        ] {
            assert_eq!(outcome(&reply).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
