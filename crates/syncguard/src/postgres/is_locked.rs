//! Asking whether a key is held.

use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::error::Error;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("is_locked.sql");
pub(super) const CLEANUP_SQL: &str = include_str!("is_locked_cleanup.sql");

/// How long past its expiry a lock stays where `is_locked` cleans up (docs/format.md, "Clean-up of expired
/// locks").
const CLEANUP_GUARD_MS: i64 = 2000;

/// The statement that asks whether the lock stored as `name` is held; with `cleanup`, it removes it
/// if it is long expired.
pub fn call<'a>(statements: &'a Statements, name: &'a str, cleanup: bool) -> Call<'a> {
    let mut params = vec![Param::Text(name), Param::BigInt(TIME_TOLERANCE_MS)];
    if cleanup {
        params.push(Param::BigInt(CLEANUP_GUARD_MS));
        statements.call(Operation::IsLockedCleanup, params)
    } else {
        statements.call(Operation::IsLocked, params)
    }
}

/// What its row says.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub fn outcome(row: Option<&Row>) -> Result<bool, Error> {
    match reply::text(row, 0)? {
        "locked" => Ok(true),
        "free" => Ok(false),
        _ => Err(reply::malformed()),
    }
}
