//! Freeing a lock, or several.

use std::collections::HashMap;

use super::group::Work;
use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::backend::{Absence, ReleaseOutcome};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("release.sql");
pub(super) const GROUP_SQL: &str = include_str!("release_group.sql");

/// The statement that frees the lock of `lock_id`. Unless `durable`, it is answered before it is on
/// the server's disk.
pub fn call<'a>(statements: &'a Statements, lock_id: &'a LockId, durable: bool) -> Call<'a> {
    call_for(Operation::Release, statements, lock_id.as_str(), durable)
}

fn call_for<'a>(
    operation: Operation,
    statements: &'a Statements,
    lock_ids: &'a str,
    durable: bool,
) -> Call<'a> {
    let durable = if durable { "on" } else { "off" };
    let params = vec![
        Param::Text(lock_ids),
        Param::BigInt(TIME_TOLERANCE_MS),
        Param::Text(durable),
    ];
    statements.call(operation, params)
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
    outcome_of(reply::text(row, 1)?)
}

fn outcome_of(text: &str) -> Result<ReleaseOutcome, Error> {
    match text {
        "released" => Ok(ReleaseOutcome::Released),
        "expired" => Ok(ReleaseOutcome::Absent(Absence::Expired)),
        _ => Err(reply::malformed()),
    }
}

/// Releases that go together.
#[derive(Debug)]
pub(super) struct Releases {
    pub(super) durable: bool,
}

impl Work for Releases {
    type Item = LockId;
    type Outcome = ReleaseOutcome;

    fn lock_id(lock_id: &LockId) -> &LockId {
        lock_id
    }

    fn text<'a>(lock_ids: impl Iterator<Item = &'a LockId>) -> String {
        let ids: Vec<_> = lock_ids.map(LockId::as_str).collect();
        ids.join(",")
    }

    fn call<'a>(&self, statements: &'a Statements, text: &'a str) -> Call<'a> {
        call_for(Operation::ReleaseGroup, statements, text, self.durable)
    }

    fn outcomes(row: Option<&Row>) -> Result<HashMap<&str, ReleaseOutcome>, Error> {
        let each = reply::list(row)?.map(|text| {
            let (lock_id, outcome) = text.split_once(' ').ok_or_else(reply::malformed)?;
            Ok((lock_id, outcome_of(outcome)?))
        });
        each.collect()
    }
}
