//! Lets a group end with the last of its readers: the second step of their release.

use std::collections::HashMap;
use std::slice;

use super::release::params;
use crate::postgres::connection::quota::Subject;
use crate::postgres::group::Grouped;
use crate::postgres::readers::beginning;
use crate::postgres::reply;
use crate::postgres::statement::{Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

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

/// A group of readers of one key who have left, as one statement: it sees all who have left before it begins.
#[derive(Debug)]
pub(in crate::postgres) struct Tidies {
    tidy: Tidy,
    durable: bool,
}

impl Tidies {
    pub(in crate::postgres) fn new(tables: &Tables, durable: bool) -> Self {
        Self {
            tidy: Tidy::new(tables),
            durable,
        }
    }
}

/// A reader who has left.
pub(in crate::postgres) struct Leaver {
    pub(in crate::postgres) lock_id: LockId,
    /// The name of the key, as a JSON array.
    pub(in crate::postgres) listed: String,
}

/// What the statement tidies, and the lock ids of those who have left.
#[derive(Debug)]
pub(in crate::postgres) struct Leavers {
    listed: String,
    lock_ids: String,
}

impl Grouped for Tidies {
    const IS_URGENT: bool = true;

    const MOST: usize = usize::MAX;

    type Item = Leaver;
    type Params = Leavers;
    type Reply = ();
    type Outcome = ();

    fn lock_ids(leaver: &Leaver) -> &[LockId] {
        slice::from_ref(&leaver.lock_id)
    }

    fn agree(leaver: &Leaver, other: &Leaver) -> bool {
        leaver.listed == other.listed
    }

    fn subject(leaver: &Leaver) -> Option<Subject<'_>> {
        beginning(&leaver.lock_id).map(Subject::Readers)
    }

    fn params<'a>(leavers: impl Iterator<Item = &'a Leaver>) -> Leavers {
        let leavers: Vec<_> = leavers.collect();
        let listed = leavers.first().map_or("[]", |leaver| &leaver.listed);
        Leavers {
            listed: listed.to_owned(),
            lock_ids: reply::joined(leavers.iter().map(|leaver| &leaver.lock_id)),
        }
    }

    fn plan<'a>(&'a self, leavers: &'a Leavers) -> Plan<'a> {
        self.tidy.plan(&leavers.listed, self.durable)
    }

    fn replies<'a>(
        _row: Option<&'a Row>,
        leavers: &'a Leavers,
    ) -> Result<HashMap<&'a str, ()>, Error> {
        let lock_ids = leavers.lock_ids.split(',');
        Ok(lock_ids.map(|lock_id| (lock_id, ())).collect())
    }

    fn outcome(mut found: Batch<Option<()>>) -> Result<Option<()>, Error> {
        Ok(found.pop().flatten())
    }
}
