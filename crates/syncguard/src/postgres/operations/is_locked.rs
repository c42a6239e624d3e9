//! Asks whether a key is held.

use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;

/// How long after its expiry `is_locked` leaves a lock alone (docs/format.md, "Clean-up of expired locks").
const CLEANUP_GUARD_MS: i64 = 2000;

/// Asks whether a key is held, and may clean up.
#[derive(Debug)]
pub struct IsLocked {
    statement: Statement,
    cleanup: bool,
}

impl IsLocked {
    /// For the locks in `tables`. With `cleanup`, it deletes a lock that expired long enough ago.
    pub fn new(tables: &Tables, cleanup: bool) -> Self {
        let columns = &["outcome"];
        let statement = if cleanup {
            Statement::telling(include_str!("is_locked_cleanup.sql"), tables, columns)
        } else {
            Statement::new(include_str!("is_locked.sql"), tables, columns)
        };
        Self { statement, cleanup }
    }

    /// The statement that asks whether the lock stored as `name` is held.
    pub fn plan<'a>(&'a self, name: &'a str) -> Plan<'a> {
        let mut params = vec![Param::Text(name)];
        if self.cleanup {
            params.push(Param::BigInt(CLEANUP_GUARD_MS));
        }
        self.statement.bind(params)
    }
}

/// Reads the row. `None` if row level security may hide a lock.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub fn outcome(row: Option<&Row>) -> Result<Option<bool>, Error> {
    match reply::text(row, 0)? {
        "locked" => Ok(Some(true)),
        "free" => Ok(Some(false)),
        "unseen" => Ok(None),
        _ => Err(reply::malformed()),
    }
}
