//! Reads rows.

use super::statement::Row;
use crate::error::{Error, ErrorKind};
use crate::lock_id::LockId;

/// The text in `column`.
pub(super) fn text(row: Option<&Row>, column: usize) -> Result<&str, Error> {
    optional(row, column)?.ok_or_else(malformed)
}

/// The text in `column`, unless it is NULL.
pub(super) fn optional(row: Option<&Row>, column: usize) -> Result<Option<&str>, Error> {
    let row = row.ok_or_else(malformed)?;
    Ok(row.get(column).ok_or_else(malformed)?.as_deref())
}

/// The whole number in `column`.
pub(super) fn number(row: Option<&Row>, column: usize) -> Result<i64, Error> {
    text(row, column)?.parse().map_err(|_| malformed())
}

/// The parts of the comma-separated text in the first column; none if it is NULL.
pub(super) fn list(row: Option<&Row>) -> Result<impl Iterator<Item = &str>, Error> {
    Ok(optional(row, 0)?
        .into_iter()
        .flat_map(|text| text.split(',')))
}

/// The error for a row that none of our statements gives.
pub(super) fn malformed() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the server's reply is malformed: it does not have the columns or values asked for",
    )
}

/// Checks that the row's first column is `lock_id`.
pub(super) fn check_owner(row: Option<&Row>, lock_id: &LockId) -> Result<(), Error> {
    if text(row, 0)? == lock_id.as_str() {
        Ok(())
    } else {
        Err(malformed())
    }
}
