//! Extending a lock.

use super::reply;
use super::statement::{Param, Plan, Row, Statement};
use super::tables::Tables;
use crate::backend::{Absence, ExtendOutcome, Ttl};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::time::TIME_TOLERANCE_MS;

/// Extends an owner's lock.
#[derive(Debug)]
pub struct Extend(Statement);

impl Extend {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let columns = &["lock_id", "outcome", "expires_at_ms"];
        Self(Statement::new(include_str!("extend.sql"), tables, columns))
    }

    /// The statement that makes the lock of `lock_id` end `ttl` from now, and removes it if it is expired.
    pub fn plan<'a>(&'a self, lock_id: &'a LockId, ttl: Ttl) -> Plan<'a> {
        self.0.bind(vec![
            Param::Text(lock_id.as_str()),
            Param::BigInt(TIME_TOLERANCE_MS),
            Param::BigInt(ttl.as_millis()),
        ])
    }
}

/// What its row says.
///
/// # Errors
/// `Internal` for a row that makes no sense or is another owner's.
pub fn outcome(lock_id: &LockId, row: Option<&Row>) -> Result<ExtendOutcome, Error> {
    if row.is_none() {
        return Ok(ExtendOutcome::Absent(Absence::NotFound));
    }
    reply::check_owner(row, lock_id)?;
    match reply::text(row, 1)? {
        "extended" => Ok(ExtendOutcome::Extended {
            expires_at_ms: reply::number(row, 2)?,
        }),
        "expired" => Ok(ExtendOutcome::Absent(Absence::Expired)),
        _ => Err(reply::malformed()),
    }
}
