//! Freeing a lock.

use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::backend::{Absence, ReleaseOutcome};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("release.sql");

/// The statement that frees the lock of `lock_id`. Unless `durable`, it is answered before it is on
/// the server's disk.
pub fn call<'a>(statements: &'a Statements, lock_id: &'a LockId, durable: bool) -> Call<'a> {
    let durable = if durable { "on" } else { "off" };
    statements.call(
        Operation::Release,
        vec![
            Param::Text(lock_id.as_str()),
            Param::BigInt(TIME_TOLERANCE_MS),
            Param::Text(durable),
        ],
    )
}

/// What its row says.
///
/// # Errors
/// `Internal` for a row that makes no sense or is another owner's.
pub fn outcome(lock_id: &LockId, row: Option<&Row>) -> Result<ReleaseOutcome, Error> {
    if row.is_none() {
        return Ok(ReleaseOutcome::Absent(Absence::NotFound));
    }
    reply::check_owner(row, lock_id)?;
    match reply::text(row, 1)? {
        "released" => Ok(ReleaseOutcome::Released),
        "expired" => Ok(ReleaseOutcome::Absent(Absence::Expired)),
        _ => Err(reply::malformed()),
    }
}
