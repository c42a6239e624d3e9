//! Reading a lock.

use std::collections::HashMap;
use std::slice;

use serde_json::Value;

use super::labels;
use crate::asking::inspection::LockRecord;
use crate::postgres::group::Grouped;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::lock_id::LockId;

/// Reads the lock on a key, or the lock with a lock id.
#[derive(Debug)]
pub struct Lookup {
    by_key: Statement,
    by_lock_id: Statement,
}

impl Lookup {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let by = |column| {
            let sql = include_str!("lookup.sql").replace("{column}", column);
            Statement::new(&sql, tables, &["lock", "now_ms"])
        };
        Self {
            by_key: by("key"),
            by_lock_id: by("lock_id"),
        }
    }

    /// The statement that reads the lock stored as `name`.
    pub fn plan_by_key<'a>(&'a self, name: &'a str) -> Plan<'a> {
        self.by_key.bind(vec![Param::Text(name)])
    }

    /// The statement that reads the lock with `lock_id`.
    pub fn plan_by_lock_id<'a>(&'a self, lock_id: &'a LockId) -> Plan<'a> {
        self.by_lock_id.bind(vec![Param::Text(lock_id.as_str())])
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
    Ok(found.filter(|record| lock_id.is_none_or(|asked| *asked == record.lock_id)))
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
        is_shared: key.reader_id().is_some(),
        key,
        expires_at_ms: row["expires_at_ms"].as_i64()?,
        acquired_at_ms: row["acquired_at_ms"].as_i64()?,
        fence: Fence::parse(row["fence"].as_str()?).ok()?,
        labels: labels::shown(&lock_id, |name| row[name].as_str()),
        read_at_ms,
        lock_id,
    })
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

    fn replies(row: Option<&Row>) -> Result<HashMap<&str, Self::Reply>, Error> {
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
