//! Acquires a lock, or those of several callers.

use std::collections::HashMap;
use std::slice;
use std::time::Duration;

use serde_json::{Value, json};

use super::labels::{self, Labelled, StoredLabels};
use super::lookup::HeldRow;
use super::mark;
use super::release::Release;
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::postgres::group::Grouped;
use crate::postgres::names::PrimaryKeys;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::due::Due;
use crate::values::fence::Fence;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// Acquires a lock.
#[derive(Debug)]
pub struct Acquire {
    /// Grants the lock whatever is done.
    always: Labelled,
    /// Grants it only while a period is still to be done. It needs columns that older tables of fence counters lack.
    due: Labelled,
}

impl Acquire {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let columns = &["outcome", "fence", "expires_at_ms", "free_in_ms", "lock"];
        let sql = include_str!("acquire.sql");
        Self {
            always: Labelled::new([&of_due(sql, None), "{}"], 5, tables, columns),
            due: Labelled::new([&of_due(sql, Some("$6")), "{}"], 6, tables, columns),
        }
    }

    /// Makes the statement that tries to acquire the lock and stores `labels` with it. With `due`, it grants the lock only if
    /// that period is still to be done.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a parameter of the statement"
    )]
    pub fn plan<'a>(
        &'a self,
        claim: &'a Claim,
        ttl: Ttl,
        names: &'a PrimaryKeys,
        due: Option<&'a Due>,
        labels: Option<&'a StoredLabels>,
    ) -> Plan<'a> {
        let mut params = vec![
            Param::Text(&names.lock),
            Param::Text(&names.fence),
            Param::Text(claim.key.as_str()),
            Param::Text(claim.lock_id.as_str()),
            Param::BigInt(ttl.as_millis()),
        ];
        let Some(due) = due else {
            return self.always.bind(params, labels);
        };
        params.push(Param::Text(due.as_stored()));
        self.due.bind(params, labels)
    }
}

/// What came of the attempt to acquire one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempted {
    /// The lock was granted or refused.
    Done(AcquireOutcome),
    /// Another acquisition came between: the caller asks again.
    Overtaken,
    /// An expired lock has left its row: [`AcquireAll`](super::AcquireAll) takes that over.
    Expired,
}

/// Completes acquire.sql. `due` names the parameter that holds a period: then the statement grants the lock only if that
/// period is still to be done. Without it, the statement grants the lock in any case.
///
/// The snapshot may be older than what is stored by now, as with the counter. So the last version of the row decides: if
/// somebody stored a mark after the snapshot, nothing is granted, and the next attempt sees the mark.
pub(super) fn of_due(sql: &str, due: Option<&str>) -> String {
    let Some(due) = due else {
        return with_due(sql, [""; 7]);
    };
    let is_done = |row: &str| {
        format!(
            "{row}done_due IS NOT NULL\n          AND NOT (left({row}done_due, 1) = left({due}::text, 1) AND {row}done_due < {due}::text COLLATE \"C\")"
        )
    };
    with_due(
        sql,
        [
            &format!("   {due} due"),
            "\n    done,",
            " AND done IS NULL",
            &format!(
                ",\n      (\n        SELECT concat_ws(' ', done_at_ms, done_lock_id, done_due) FROM {{fences}}\n        \
                 WHERE fence_key = $2 AND {}\n      ) AS done",
                is_done("")
            ),
            &format!("\n      AND NOT coalesce({}, false)", is_done("last.")),
            "WHEN done IS NOT NULL THEN 'done'\n    WHEN has_turn THEN 'again'\n    ",
            "done, ",
        ],
    )
}

fn with_due(sql: &str, texts: [&str; 7]) -> String {
    let places = [
        "{due_param}",
        "{done}",
        "{is_due}",
        "{done_read}",
        "{still_due}",
        "{done_outcome}",
        "{done_detail}",
    ];
    let each = places.into_iter().zip(texts);
    each.fold(sql.to_owned(), |sql, (place, text)| {
        sql.replace(place, text)
    })
}

/// Reads the row of [`Acquire`].
///
/// # Errors
/// `Internal` when the fence counter has no number left, and for a row that makes no sense.
pub fn outcome(claim: &Claim, row: Option<&Row>) -> Result<Attempted, Error> {
    Ok(Attempted::Done(match reply::text(row, 0)? {
        "acquired" => AcquireOutcome::one(Grant {
            lock_id: claim.lock_id.clone(),
            slot: None,
            fence: Fence::parse(reply::text(row, 1)?)?,
            expires_at_ms: reply::number(row, 2)?,
        }),
        "locked" => locked(
            reply::optional(row, 3)?,
            reply::optional(row, 4)?.map(HeldRow::in_row),
        )?,
        "done" => AcquireOutcome::Done(mark::done(row, 1)?),
        "exhausted" => return Err(exhausted(reply::number(row, 1)?)),
        "again" => return Ok(Attempted::Overtaken),
        "over" => return Ok(Attempted::Expired),
        _ => return Err(reply::malformed()),
    }))
}

/// The error for a fence counter that has no number left.
pub(super) fn exhausted(counter: i64) -> Error {
    match Fence::from_counter(counter.saturating_add(1)) {
        Err(error) => error,
        Ok(_) => reply::malformed(),
    }
}

/// The outcome where another lock is in the way, which ends in so many milliseconds.
fn locked(ms: Option<&str>, held: Option<HeldRow>) -> Result<AcquireOutcome, Error> {
    let HeldRow { labels, is_shared } = held.unwrap_or_default();
    Ok(AcquireOutcome::Locked {
        claim: 0,
        free_in: ms.map(free_in).transpose()?,
        labels,
        is_shared,
    })
}

pub(super) fn free_in(ms: &str) -> Result<Duration, Error> {
    let ms: i64 = ms.parse().map_err(|_| reply::malformed())?;
    // Negative: the statement found the lock live, and read the clock again after that.
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// A group of acquisitions, as one statement.
#[derive(Debug)]
pub(in crate::postgres) struct Acquisitions {
    labelled: Statement,
    /// Where nobody gives a label: older tables lack their columns.
    plain: Statement,
    release: Release,
}

impl Acquisitions {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        let statement = |labelled| {
            let sql = labels::of_group(include_str!("acquire_group.sql"), labelled);
            Statement::new(&sql, tables, &["outcomes"])
        };
        Self {
            labelled: statement(true),
            plain: statement(false),
            release: Release::new(tables),
        }
    }
}

/// One acquisition of a group, with the names under which its lock is stored, and its labels as they are stored.
pub(in crate::postgres) struct NamedRequest {
    claim: Claim,
    ttl: Ttl,
    names: PrimaryKeys,
    labels: Option<StoredLabels>,
}

impl NamedRequest {
    pub(in crate::postgres) fn new(
        claim: &Claim,
        ttl: Ttl,
        names: &PrimaryKeys,
        labels: Option<&StoredLabels>,
    ) -> Self {
        Self {
            claim: claim.clone(),
            ttl,
            names: names.clone(),
            labels: labels.cloned(),
        }
    }

    fn to_json(&self) -> Value {
        let Self {
            claim, ttl, names, ..
        } = self;
        let mut asked = json!({
            "lock": names.lock,
            "fence": names.fence,
            "key": claim.key.as_str(),
            "id": claim.lock_id.as_str(),
            "ttl": ttl.as_millis(),
        });
        if let (Some(labels), Some(members)) = (&self.labels, asked.as_object_mut()) {
            labels.add_to(members);
        }
        asked
    }
}

impl Grouped for Acquisitions {
    const IS_URGENT: bool = false;

    type Item = NamedRequest;
    /// As JSON, and whether any of them has labels.
    type Params = (String, bool);
    type Reply = AcquireOutcome;
    type Outcome = AcquireOutcome;

    fn lock_ids(named: &NamedRequest) -> &[LockId] {
        slice::from_ref(&named.claim.lock_id)
    }

    /// One statement can acquire each key only once.
    fn agree(request: &NamedRequest, other: &NamedRequest) -> bool {
        request.names.lock != other.names.lock
    }

    fn params<'a>(requests: impl Iterator<Item = &'a NamedRequest>) -> (String, bool) {
        let mut labelled = false;
        let requests = requests.map(|request| {
            labelled |= request.labels.is_some();
            request.to_json()
        });
        (Value::Array(requests.collect()).to_string(), labelled)
    }

    fn plan<'a>(&'a self, (text, labelled): &'a (String, bool)) -> Plan<'a> {
        let statement = match labelled {
            true => &self.labelled,
            false => &self.plain,
        };
        statement.bind(vec![Param::Text(text)])
    }

    fn replies<'a>(
        row: Option<&'a Row>,
        _params: &'a Self::Params,
    ) -> Result<HashMap<&'a str, AcquireOutcome>, Error> {
        let each = reply::list(row, 0)?.map(|text| {
            let mut parts = text.split(' ');
            let lock = text.splitn(4, ' ').nth(3);
            let mut part = || parts.next().ok_or_else(reply::malformed);
            let lock_id = part()?;
            let outcome = match part()? {
                "locked" => locked(Some(part()?), lock.map(HeldRow::in_hex))?,
                fence => AcquireOutcome::one(Grant {
                    slot: None,
                    // The cause is left out, because it would show the text.
                    lock_id: LockId::parse(lock_id).map_err(|_| reply::malformed())?,
                    fence: Fence::parse(fence)?,
                    expires_at_ms: part()?.parse().map_err(|_| reply::malformed())?,
                }),
            };
            Ok((lock_id, outcome))
        });
        each.collect()
    }

    fn outcome(mut found: Batch<Option<AcquireOutcome>>) -> Result<Option<AcquireOutcome>, Error> {
        Ok(found.pop().flatten())
    }

    /// Releases what was granted to a caller who no longer waits, because nobody else would.
    fn undo<'a>(&'a self, named: &'a NamedRequest, outcome: &AcquireOutcome) -> Vec<Plan<'a>> {
        match outcome {
            AcquireOutcome::Acquired(_) => vec![self.release.plan(&named.claim.lock_id, false)],
            AcquireOutcome::Locked { .. } | AcquireOutcome::Done(_) => Vec::new(),
        }
    }
}
