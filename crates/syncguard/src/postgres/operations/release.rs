//! Releases a lock, or several at once.

use std::collections::HashMap;

use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::asking::request::Finish;
use crate::postgres::group::Grouped;
use crate::postgres::names::PrimaryKeys;
use crate::postgres::operations::mark::KEEP_LATER;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

/// Releases the locks with given lock ids.
#[derive(Debug)]
pub struct Release {
    /// Releases one lock, as most releases do, in the least time.
    single: Statement,
    several: Statement,
    /// Releases locks of which some may be readers'.
    leave: Statement,
    done: Statement,
}

impl Release {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let columns = &["lock_id", "outcome", "commit", "told"];
        let single = Statement::telling(include_str!("release.sql"), tables, columns);
        let done = include_str!("release_done.sql").replace("{keep_later}", KEEP_LATER);
        Self {
            single: single.urgent(),
            several: several(tables, ""),
            leave: Statement::telling(
                include_str!("leave.sql"),
                tables,
                &["outcomes", "groups", "commit"],
            )
            .urgent(),
            done: Statement::telling(&done, tables, columns).urgent(),
        }
    }

    /// Makes the statement that releases the lock with `lock_id`, which is stored under `names`, and stores that something is done.
    pub(in crate::postgres) fn plan_done<'a>(
        &'a self,
        lock_id: &'a LockId,
        done: &'a Finish,
        names: &'a PrimaryKeys,
    ) -> Plan<'a> {
        self.done.bind(vec![
            Param::Text(lock_id.as_str()),
            Param::Text(&names.lock),
            Param::Text(&names.fence),
            Param::Text(done.key.as_str()),
            Param::Text(done.due.as_stored()),
        ])
    }

    /// The statement that releases the lock with `lock_id`. Unless `durable`, the server answers before the
    /// change is on its disk.
    pub fn plan<'a>(&'a self, lock_id: &'a LockId, durable: bool) -> Plan<'a> {
        self.single.bind(params(lock_id.as_str(), durable))
    }

    /// The statement that releases the locks whose ids `lock_ids` lists, with commas between.
    pub fn plan_several<'a>(&'a self, lock_ids: &'a str, durable: bool) -> Plan<'a> {
        self.several.bind(params(lock_ids, durable))
    }

    /// The same where some of them may be shared. The row also has the keys whose groups are to be tidied after it.
    pub fn plan_leave<'a>(&'a self, lock_ids: &'a str, durable: bool) -> Plan<'a> {
        self.leave.bind(params(lock_ids, durable))
    }
}

fn several(tables: &Tables, skip: &str) -> Statement {
    let sql = include_str!("release_all.sql").replace("{skip}", skip);
    Statement::telling(&sql, tables, &["outcomes", "commit"]).urgent()
}

/// The names of the keys whose readers were released.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub(in crate::postgres) fn left_groups(row: Option<&Row>) -> Result<Vec<String>, Error> {
    match reply::optional(row, 1)? {
        None => Ok(Vec::new()),
        Some(names) => serde_json::from_str(names).map_err(|_| reply::malformed()),
    }
}

pub(super) fn params(lock_ids: &str, durable: bool) -> Vec<Param<'_>> {
    vec![
        Param::Text(lock_ids),
        Param::Text(if durable { "on" } else { "off" }),
    ]
}

/// Reads the row of one release.
///
/// # Errors
/// `Internal` for a row that makes no sense or is of another lock.
pub fn outcome(lock_id: &LockId, row: Option<&Row>) -> Result<ReleaseOutcome, Error> {
    if row.is_none() {
        return Ok(ReleaseOutcome::Absent(Absence::NotFound));
    }
    reply::check_owner(row, lock_id)?;
    outcome_of(reply::text(row, 1)?)
}

/// Reads from the row of a release of several locks what became of each.
///
/// # Errors
/// As [`outcome`].
pub fn outcomes(lock_ids: &[LockId], row: Option<&Row>) -> Result<Batch<ReleaseOutcome>, Error> {
    let found = reply::of_each(lock_ids, outcomes_by_id(row)?)?.into_iter();
    let gone = ReleaseOutcome::Absent(Absence::NotFound);
    Ok(found.map(|outcome| outcome.unwrap_or(gone)).collect())
}

fn outcomes_by_id(row: Option<&Row>) -> Result<HashMap<&str, ReleaseOutcome>, Error> {
    let each = reply::list(row, 0)?.map(|text| {
        let (lock_id, outcome) = text.split_once(' ').ok_or_else(reply::malformed)?;
        Ok((lock_id, outcome_of(outcome)?))
    });
    each.collect()
}

fn outcome_of(text: &str) -> Result<ReleaseOutcome, Error> {
    match text {
        "released" => Ok(ReleaseOutcome::Released),
        "expired" => Ok(ReleaseOutcome::Absent(Absence::Expired)),
        "gone" => Ok(ReleaseOutcome::Absent(Absence::NotFound)),
        _ => Err(reply::malformed()),
    }
}

/// A group of releases, as one statement. A row that somebody else has locked is left out of it.
#[derive(Debug)]
pub(in crate::postgres) struct Releases {
    statement: Statement,
    durable: bool,
}

impl Releases {
    pub(in crate::postgres) fn new(tables: &Tables, durable: bool) -> Self {
        Self {
            statement: several(tables, " SKIP LOCKED"),
            durable,
        }
    }
}

impl Grouped for Releases {
    const IS_URGENT: bool = true;

    type Item = Batch<LockId>;
    type Params = String;
    type Reply = ReleaseOutcome;
    /// What became of each lock; `None` for one that was not found, or was left out.
    type Outcome = Batch<Option<ReleaseOutcome>>;

    fn lock_ids(lock_ids: &Batch<LockId>) -> &[LockId] {
        lock_ids
    }

    fn params<'a>(items: impl Iterator<Item = &'a Batch<LockId>>) -> String {
        reply::joined(items.flatten())
    }

    fn plan<'a>(&'a self, lock_ids: &'a String) -> Plan<'a> {
        self.statement.bind(params(lock_ids, self.durable))
    }

    fn replies<'a>(
        row: Option<&'a Row>,
        _params: &'a Self::Params,
    ) -> Result<HashMap<&'a str, ReleaseOutcome>, Error> {
        outcomes_by_id(row)
    }

    fn outcome(found: Batch<Option<ReleaseOutcome>>) -> Result<Option<Self::Outcome>, Error> {
        Ok(Some(found))
    }
}
