//! Reading a lock.

use std::collections::HashMap;
use std::slice;

use serde_json::Value;

use super::labels;
use crate::asking::inspection::LockRecord;
use crate::postgres::group::Grouped;
use crate::postgres::names;
use crate::postgres::readers::{may_be_shared, variant};
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

/// Reads the lock on a key, or the lock with a lock id.
#[derive(Debug)]
pub struct Lookup {
    by_key: Statement,
    by_lock_id: Statement,
    /// By the lock id of one who may be a reader.
    by_reader: Statement,
}

impl Lookup {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let by = |column, is_shared| {
            let sql = variant(include_str!("lookup.sql"), is_shared);
            let sql = sql.replace("{column}", column);
            Statement::new(&sql, tables, &["lock", "now_ms"])
        };
        Self {
            by_key: by("key", false),
            by_lock_id: by("lock_id", false),
            by_reader: by("lock_id", true),
        }
    }

    /// The statement that reads the lock stored as `name`.
    pub fn plan_by_key<'a>(&'a self, name: &'a str) -> Plan<'a> {
        self.by_key.bind(vec![Param::Text(name)])
    }

    /// The statement that reads the lock with `lock_id`.
    pub fn plan_by_lock_id<'a>(&'a self, lock_id: &'a LockId) -> Plan<'a> {
        let statement = match may_be_shared(lock_id) {
            true => &self.by_reader,
            false => &self.by_lock_id,
        };
        statement.bind(vec![Param::Text(lock_id.as_str())])
    }
}

/// Reads the lock from its row, if it is live. With `lock_id`, the row must have that lock id, too.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub fn outcome(row: Option<&Row>, lock_id: Option<&LockId>) -> Result<Option<LockRecord>, Error> {
    if row.is_none() {
        return Ok(None);
    }
    let lock = serde_json::from_str(reply::text(row, 0)?).map_err(|_| reply::malformed())?;
    let found = live(&lock, reply::number(row, 1)?)?;
    let Some(asked) = lock_id else {
        return Ok(found);
    };
    Ok(found.filter(|record| *asked == record.lock_id && !record.is_group()))
}

/// Reads the lock from a row of the table, as JSON, if it is live.
fn live(row: &Value, read_at_ms: i64) -> Result<Option<LockRecord>, Error> {
    let record = record(row, read_at_ms).ok_or_else(reply::malformed)?;
    Ok(record.is_live().then_some(record))
}

/// Reads the lock from a row of the table, as JSON.
pub(super) fn record(row: &Value, read_at_ms: i64) -> Option<LockRecord> {
    let lock_id = LockId::parse(row["lock_id"].as_str()?).ok()?;
    let key = Key::stored(row["user_key"].as_str()?).ok()?;
    Some(LockRecord {
        is_shared: key.reader_id().is_some() || is_group(&key, &lock_id),
        key,
        expires_at_ms: row["expires_at_ms"].as_i64()?,
        acquired_at_ms: row["acquired_at_ms"].as_i64()?,
        fence: Fence::parse(row["fence"].as_str()?).ok()?,
        labels: labels::shown(&lock_id, |name| row[name].as_str()),
        read_at_ms,
        lock_id,
    })
}

/// Whether this is the lock id of the group of `key`.
fn is_group(key: &Key, lock_id: &LockId) -> bool {
    may_be_shared(lock_id) && names::lock_name(key).is_ok_and(|name| lock_id.is_group_of(&name))
}

/// What there is to know of a lock that is in the way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HeldRow {
    pub(super) labels: Labels,
    /// Whether it is a group.
    pub(super) is_shared: bool,
}

impl HeldRow {
    /// Reads it from a row of the table of locks, as JSON. A row that cannot be read tells nothing.
    pub(super) fn in_row(json: &str) -> Self {
        let row: Value = serde_json::from_str(json).unwrap_or_default();
        let Some(Ok(lock_id)) = row["lock_id"].as_str().map(LockId::parse) else {
            return Self::default();
        };
        let key = row["user_key"].as_str().map(Key::stored);
        Self {
            labels: labels::shown(&lock_id, |name| row[name].as_str()),
            is_shared: key.is_some_and(|key| key.is_ok_and(|key| is_group(&key, &lock_id))),
        }
    }

    /// Does the same with JSON in hexadecimal digits.
    pub(super) fn in_hex(digits: &str) -> Self {
        let pairs = digits.as_bytes().as_chunks::<2>().0.iter();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        let json = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        json.map_or_else(Self::default, |json| Self::in_row(&json))
    }
}

/// A group of lookups by lock id, as one statement.
#[derive(Debug)]
pub(in crate::postgres) struct Lookups(Statement);

impl Lookups {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        let sql = include_str!("lookup_group.sql");
        Self(Statement::new(sql, tables, &["locks", "now_ms"]))
    }
}

impl Grouped for Lookups {
    const IS_URGENT: bool = false;

    type Item = LockId;
    type Params = String;
    /// The lock, if it is live.
    type Reply = Option<LockRecord>;
    type Outcome = Option<LockRecord>;

    fn lock_ids(lock_id: &LockId) -> &[LockId] {
        slice::from_ref(lock_id)
    }

    fn params<'a>(items: impl Iterator<Item = &'a LockId>) -> String {
        reply::joined(items)
    }

    fn plan<'a>(&'a self, lock_ids: &'a String) -> Plan<'a> {
        self.0.bind(vec![Param::Text(lock_ids)])
    }

    fn replies<'a>(
        row: Option<&'a Row>,
        _params: &'a Self::Params,
    ) -> Result<HashMap<&'a str, Self::Reply>, Error> {
        let Some(locks) = reply::optional(row, 0)? else {
            return Ok(HashMap::new());
        };
        let locks: Vec<(&str, Value)> =
            serde_json::from_str(locks).map_err(|_| reply::malformed())?;
        let read_at_ms = reply::number(row, 1)?;
        let each = locks.into_iter().map(|(lock_id, lock)| {
            let found = match lock.is_null() {
                true => None,
                false => live(&lock, read_at_ms)?,
            };
            Ok((lock_id, found))
        });
        each.collect()
    }

    /// `None` if the row leaves out the lock id.
    fn outcome(found: Batch<Option<Self::Reply>>) -> Result<Option<Self::Outcome>, Error> {
        Ok(found.into_iter().next().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::owner::Owner;

    #[test]
    fn a_lock_that_is_in_the_way_is_read_from_its_row() {
        let row = r#"{"lock_id":"AAAAAAAAAAAAAAAAAAAAAA","user_key":"k","owner":"AAAAAAAAAAAAAAAAAAAAAA:mé, x"}"#;
        let hex: String = row.bytes().map(|byte| format!("{byte:02x}")).collect();
        let held = HeldRow {
            labels: Owner::new("mé, x").unwrap().into(),
            is_shared: false,
        };
        assert_eq!(HeldRow::in_row(row), held);
        assert_eq!(HeldRow::in_hex(&hex), held);
        let nothing = HeldRow::default();
        for none in ["", "{}", r#"{"lock_id":"x","owner":"x:y"}"#] {
            assert_eq!(HeldRow::in_row(none), nothing);
            assert_eq!(HeldRow::in_hex(none), nothing);
        }
        assert_eq!(HeldRow::in_row(&row.replace("AA:", "AB:")), nothing);
        let group = LockId::group("k");
        let shared = |key: &str| {
            let row = format!(r#"{{"lock_id":"{}","user_key":"{key}"}}"#, group.as_str());
            HeldRow::in_row(&row).is_shared
        };
        assert!(shared("k") && !shared("l"));
    }
}
