//! Extends a lock, or several at once.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::{Absence, ExtendOutcome};
use crate::postgres::group::Grouped;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::time::TIME_TOLERANCE_MS;
use crate::ttl::Ttl;

/// Extends an owner's lock.
#[derive(Debug)]
pub struct Extend(Statement);

impl Extend {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let columns = &["lock_id", "outcome", "expires_at_ms"];
        Self(Statement::new(include_str!("extend.sql"), tables, columns).urgent())
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
        return Ok(ExtendOutcome::absent(Absence::NotFound));
    }
    reply::check_owner(row, lock_id)?;
    match reply::text(row, 1)? {
        "extended" => Ok(ExtendOutcome::Extended {
            expires_at_ms: reply::number(row, 2)?,
        }),
        "expired" => Ok(ExtendOutcome::absent(Absence::Expired)),
        _ => Err(reply::malformed()),
    }
}

/// A group of extensions, as one statement.
#[derive(Debug)]
pub(in crate::postgres) struct Extensions(Statement);

impl Extensions {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        let sql = include_str!("extend_group.sql");
        Self(Statement::new(sql, tables, &["outcomes", "commit"]).urgent())
    }
}

impl Grouped for Extensions {
    const IS_URGENT: bool = true;

    type Item = (LockId, Ttl);
    type Outcome = ExtendOutcome;

    fn lock_id((lock_id, _): &(LockId, Ttl)) -> &LockId {
        lock_id
    }

    /// One statement can change each row only once.
    fn agree((one, _): &(LockId, Ttl), (other, _): &(LockId, Ttl)) -> bool {
        one != other
    }

    fn text<'a>(items: impl Iterator<Item = &'a (LockId, Ttl)>) -> String {
        let asked = items.map(|(id, ttl)| json!({"id": id.as_str(), "ttl": ttl.as_millis()}));
        Value::Array(asked.collect()).to_string()
    }

    fn plan<'a>(&'a self, text: &'a str) -> Plan<'a> {
        let params = vec![Param::Text(text), Param::BigInt(TIME_TOLERANCE_MS)];
        self.0.bind(params)
    }

    fn outcomes(row: Option<&Row>) -> Result<HashMap<&str, ExtendOutcome>, Error> {
        let each = reply::list(row)?.map(|text| {
            let (lock_id, outcome) = text.split_once(' ').ok_or_else(reply::malformed)?;
            let outcome = match outcome {
                "expired" => ExtendOutcome::absent(Absence::Expired),
                ms => ExtendOutcome::Extended {
                    expires_at_ms: ms.parse().map_err(|_| reply::malformed())?,
                },
            };
            Ok((lock_id, outcome))
        });
        each.collect()
    }
}
