//! Frees a key, whoever holds it.

use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;

/// Frees a key.
#[derive(Debug)]
pub struct ForceRelease(Statement);

impl ForceRelease {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let sql = include_str!("force_release.sql");
        Self(Statement::telling(sql, tables, &["outcome", "told"]))
    }

    /// The statement that frees the lock stored as `name`.
    pub fn plan<'a>(&'a self, name: &'a str) -> Plan<'a> {
        self.0.bind(vec![Param::Text(name)])
    }
}

/// Reads from its row whether somebody held the key.
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
