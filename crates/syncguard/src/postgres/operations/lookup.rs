//! Reading a lock.

use super::owner;
use crate::error::Error;
use crate::fence::Fence;
use crate::inspection::LockRecord;
use crate::key::Key;
use crate::lock_id::LockId;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;

const COLUMNS: &[&str] = &[
    "user_key",
    "lock_id",
    "expires_at_ms",
    "acquired_at_ms",
    "fence",
    "owner",
    "now_ms",
];

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
            Statement::new(&sql, tables, COLUMNS)
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

/// The live lock in its row. With `lock_id`, only if the row has that lock id.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub fn outcome(row: Option<&Row>, lock_id: Option<&LockId>) -> Result<Option<LockRecord>, Error> {
    if row.is_none() {
        return Ok(None);
    }
    let found = LockId::parse(reply::text(row, 1)?).map_err(|_| reply::malformed())?;
    if lock_id.is_some_and(|asked| *asked != found) {
        return Ok(None);
    }
    let record = LockRecord {
        key: Key::stored(reply::text(row, 0)?).map_err(|_| reply::malformed())?,
        expires_at_ms: reply::number(row, 2)?,
        acquired_at_ms: reply::number(row, 3)?,
        fence: Fence::parse(reply::text(row, 4)?)?,
        owner: owner::shown(&found, reply::optional(row, 5)?).map_err(|_| reply::malformed())?,
        read_at_ms: reply::number(row, 6)?,
        lock_id: found,
    };
    Ok(record.is_live().then_some(record))
}
