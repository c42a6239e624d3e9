//! Releases a lock, or several at once.

use std::collections::HashMap;

use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::{Absence, ReleaseOutcome};
use crate::postgres::group::Grouped;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::time::TIME_TOLERANCE_MS;

/// Releases the lock with a lock id.
#[derive(Debug)]
pub struct Release(Statement);

impl Release {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let columns = &["lock_id", "outcome", "commit", "told"];
        let sql = include_str!("release.sql");
        Self(Statement::telling(sql, tables, columns).urgent())
    }

    /// The statement that releases the lock with `lock_id`. Unless `durable`, the server answers before the
    /// change is on its disk.
    pub fn plan<'a>(&'a self, lock_id: &'a LockId, durable: bool) -> Plan<'a> {
        self.0.bind(params(lock_id.as_str(), durable))
    }
}

fn params(lock_ids: &str, durable: bool) -> Vec<Param<'_>> {
    vec![
        Param::Text(lock_ids),
        Param::BigInt(TIME_TOLERANCE_MS),
        Param::Text(if durable { "on" } else { "off" }),
    ]
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

/// A group of releases, as one statement.
#[derive(Debug)]
pub(in crate::postgres) struct Releases {
    statement: Statement,
    durable: bool,
}

impl Releases {
    pub(in crate::postgres) fn new(tables: &Tables, durable: bool) -> Self {
        let sql = include_str!("release_group.sql");
        Self {
            statement: Statement::telling(sql, tables, &["outcomes", "commit"]).urgent(),
            durable,
        }
    }
}

impl Grouped for Releases {
    const IS_URGENT: bool = true;

    type Item = LockId;
    type Outcome = ReleaseOutcome;

    fn lock_id(lock_id: &LockId) -> &LockId {
        lock_id
    }

    fn text<'a>(lock_ids: impl Iterator<Item = &'a LockId>) -> String {
        let ids: Vec<_> = lock_ids.map(LockId::as_str).collect();
        ids.join(",")
    }

    fn plan<'a>(&'a self, text: &'a str) -> Plan<'a> {
        self.statement.bind(params(text, self.durable))
    }

    fn outcomes(row: Option<&Row>) -> Result<HashMap<&str, ReleaseOutcome>, Error> {
        let each = reply::list(row)?.map(|text| {
            let (lock_id, outcome) = text.split_once(' ').ok_or_else(reply::malformed)?;
            Ok((lock_id, outcome_of(outcome)?))
        });
        each.collect()
    }
}
