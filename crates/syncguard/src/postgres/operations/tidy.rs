//! Lets a group end with the last of its readers: the second step of their release.

use super::release::params;
use crate::postgres::statement::{Plan, Statement};
use crate::postgres::tables::Tables;

/// Tidies the groups of keys whose readers have left.
#[derive(Debug)]
pub(in crate::postgres) struct Tidy(Statement);

impl Tidy {
    /// For the locks in `tables`.
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        let sql = include_str!("tidy.sql");
        Self(Statement::telling(sql, tables, &["freed", "commit"]).urgent())
    }

    /// The statement for the keys that are stored under these names, as a JSON array.
    pub(in crate::postgres) fn plan<'a>(&'a self, names: &'a str, durable: bool) -> Plan<'a> {
        self.0.bind(params(names, durable))
    }
}
