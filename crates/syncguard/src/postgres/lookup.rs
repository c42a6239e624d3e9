//! Reading a lock.

use super::statement::{Call, Operation, Param, Row, Statements};
use super::{owner, reply};
use crate::backend::LockRecord;
use crate::error::Error;
use crate::fence::Fence;
use crate::key::Key;
use crate::lock_id::LockId;

pub(super) const BY_KEY_SQL: &str = include_str!("lookup_by_key.sql");
pub(super) const BY_LOCK_ID_SQL: &str = include_str!("lookup_by_lock_id.sql");

/// The statement that reads the lock stored as `name`.
pub fn by_key<'a>(statements: &'a Statements, name: &'a str) -> Call<'a> {
    statements.call(Operation::LookupByKey, vec![Param::Text(name)])
}

/// The statement that reads the lock of `lock_id`.
pub fn by_lock_id<'a>(statements: &'a Statements, lock_id: &'a LockId) -> Call<'a> {
    statements.call(
        Operation::LookupByLockId,
        vec![Param::Text(lock_id.as_str())],
    )
}

/// The live lock in its row. With `lock_id`, only if it is that owner's.
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
        key: Key::new(reply::text(row, 0)?).map_err(|_| reply::malformed())?,
        expires_at_ms: reply::number(row, 2)?,
        acquired_at_ms: reply::number(row, 3)?,
        fence: Fence::parse(reply::text(row, 4)?)?,
        owner: owner::shown(&found, reply::optional(row, 5)?).map_err(|_| reply::malformed())?,
        read_at_ms: reply::number(row, 6)?,
        lock_id: found,
    };
    Ok(record.is_live().then_some(record))
}
