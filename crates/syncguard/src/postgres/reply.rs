//! Reads rows, and lists with commas, of which lock ids have none.

use std::collections::HashMap;

use super::statement::Row;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

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

/// The parts of the comma-separated text in `column`; none if it is NULL.
pub(super) fn list(row: Option<&Row>, column: usize) -> Result<impl Iterator<Item = &str>, Error> {
    let text = optional(row, column)?.into_iter();
    Ok(text.flat_map(|text| text.split(',')))
}

/// What was told of each of these locks, in their order.
///
/// # Errors
/// `Internal` when other locks are told of.
pub(super) fn of_each<T>(
    lock_ids: &[LockId],
    mut by_lock_id: HashMap<&str, T>,
) -> Result<Batch<Option<T>>, Error> {
    let each = lock_ids
        .iter()
        .map(|lock_id| by_lock_id.remove(lock_id.as_str()));
    let each = each.collect();
    match by_lock_id.is_empty() {
        true => Ok(each),
        false => Err(malformed()),
    }
}

/// These lock ids with commas between.
pub(super) fn joined<'a>(lock_ids: impl IntoIterator<Item = &'a LockId>) -> String {
    let mut list = String::new();
    for lock_id in lock_ids {
        append(&mut list, lock_id.as_str());
    }
    list
}

/// Appends to such a list.
pub(super) fn append(list: &mut String, item: &str) {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(item);
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
