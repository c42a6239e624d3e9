//! Freeing a key, whoever holds it.

use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::error::Error;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("force_release.sql");

/// The statement that frees the lock stored as `name`.
pub fn call<'a>(statements: &'a Statements, name: &'a str) -> Call<'a> {
    statements.call(
        Operation::ForceRelease,
        vec![Param::Text(name), Param::BigInt(TIME_TOLERANCE_MS)],
    )
}

/// What its row says: whether somebody held it.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub fn outcome(row: Option<&Row>) -> Result<bool, Error> {
    if row.is_none() {
        return Ok(false);
    }
    match reply::text(row, 0)? {
        "released" => Ok(true),
        "expired" => Ok(false),
        _ => Err(reply::malformed()),
    }
}
