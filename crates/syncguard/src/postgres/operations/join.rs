//! Lets several readers join the group of one key at once.

use std::collections::HashMap;
use std::slice;

use super::acquire::Attempted;
use super::acquire_all::{AcquireAll, Claimed, grant, locked};
use super::labels::StoredLabels;
use super::release::Release;
use super::tidy::Tidy;
use crate::asking::outcome::AcquireOutcome;
use crate::postgres::connection::quota::Subject;
use crate::postgres::group::Grouped;
use crate::postgres::names::lock_name;
use crate::postgres::reply;
use crate::postgres::statement::{Plan, Row};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// A group of joins, as one statement: that for a set in which each of them is one of the readers. They are granted or refused together, so
/// they are of one key. It may wait for the row of their group, but alone each of them would wait for that, too.
#[derive(Debug)]
pub(in crate::postgres) struct Joins {
    acquire: AcquireAll,
    release: Release,
    tidy: Tidy,
}

impl Joins {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        Self {
            acquire: AcquireAll::new(tables),
            release: Release::new(tables),
            tidy: Tidy::new(tables),
        }
    }
}

/// One join, with what it asks for as the statement takes it.
pub(in crate::postgres) struct Join {
    claim: Claim,
    ttl: Ttl,
    labels: Option<StoredLabels>,
    claimed: Claimed,
    /// The storage key, in a JSON array.
    name: String,
}

impl Join {
    /// The join of the reader whose claim this is.
    ///
    /// # Errors
    /// As [`Claimed::new`].
    pub(in crate::postgres) fn new(
        claim: &Claim,
        ttl: Ttl,
        labels: Option<StoredLabels>,
    ) -> Result<Self, Error> {
        Ok(Self {
            claim: claim.clone(),
            ttl,
            labels,
            claimed: Claimed::new(slice::from_ref(claim))?,
            name: serde_json::json!([lock_name(&claim.key)?]).to_string(),
        })
    }
}

/// What all members ask for.
#[derive(Debug)]
pub(in crate::postgres) struct Joining {
    claimed: Claimed,
    ttl: Ttl,
    labels: Option<StoredLabels>,
}

impl Grouped for Joins {
    const IS_URGENT: bool = false;

    /// They take no advisory locks, and each group keeps those after it waiting for its commit.
    const MOST: usize = 128;

    type Item = Join;
    type Params = Joining;
    type Reply = Attempted;
    type Outcome = Attempted;

    fn lock_ids(join: &Join) -> &[LockId] {
        slice::from_ref(&join.claim.lock_id)
    }

    fn subject(join: &Join) -> Option<Subject<'_>> {
        Some(Subject::Key(join.claim.key.as_str()))
    }

    fn agree(join: &Join, other: &Join) -> bool {
        (&join.claim.key, join.ttl, &join.labels) == (&other.claim.key, other.ttl, &other.labels)
    }

    fn params<'a>(joins: impl Iterator<Item = &'a Join>) -> Joining {
        let joins: Vec<_> = joins.collect();
        let lock_ids: Vec<_> = joins.iter().map(|join| &join.claim.lock_id).collect();
        let first = joins.first();
        Joining {
            // If nobody waits any more, it asks for nothing.
            claimed: first.map_or_else(Claimed::nothing, |join| {
                join.claimed.with_readers(&lock_ids)
            }),
            ttl: first.map_or(Ttl::DEFAULT, |join| join.ttl),
            labels: first.and_then(|join| join.labels.clone()),
        }
    }

    fn plan<'a>(&'a self, joining: &'a Joining) -> Plan<'a> {
        let Joining {
            claimed,
            ttl,
            labels,
        } = joining;
        self.acquire.plan(claimed, *ttl, labels.as_ref())
    }

    fn replies<'a>(
        row: Option<&'a Row>,
        Joining { claimed, .. }: &'a Joining,
    ) -> Result<HashMap<&'a str, Attempted>, Error> {
        match reply::text(row, 0)? {
            "acquired" => {
                let each = reply::list(row, 1)?.map(|text| {
                    let (lock_id, text) = text.split_once(' ').ok_or_else(reply::malformed)?;
                    // The cause is left out, because it would show the text.
                    let id = LockId::parse(lock_id).map_err(|_| reply::malformed())?;
                    let grant = grant(ClaimKind::Shared, &id, text).ok_or_else(reply::malformed)?;
                    Ok((lock_id, Attempted::Done(AcquireOutcome::one(grant))))
                });
                each.collect()
            }
            // If no lock is named, it is a member's own, or is guarded. Then each of them asks alone.
            "locked" if reply::text(row, 1)?.contains('{') => {
                let told =
                    |lock_id| Ok((lock_id, Attempted::Done(locked(reply::text(row, 1)?, 1)?)));
                claimed.lock_ids.split(',').map(told).collect()
            }
            "again" => {
                let lock_ids = claimed.lock_ids.split(',');
                Ok(lock_ids
                    .map(|lock_id| (lock_id, Attempted::Overtaken))
                    .collect())
            }
            _ => Ok(HashMap::new()),
        }
    }

    fn outcome(mut found: Batch<Option<Attempted>>) -> Result<Option<Attempted>, Error> {
        Ok(found.pop().flatten())
    }

    /// Lets a reader leave who no longer waits, because nobody else would.
    fn undo<'a>(&'a self, join: &'a Join, outcome: &Attempted) -> Vec<Plan<'a>> {
        match outcome {
            Attempted::Done(AcquireOutcome::Acquired(_)) => vec![
                self.release.plan_leave(join.claim.lock_id.as_str(), false),
                self.tidy.plan(&join.name, false),
            ],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::readers::mark_readers;
    use crate::values::key::Key;

    fn join(name: &str, ttl_ms: i64) -> Join {
        let mut claims = [Claim::shared(Key::new(name).unwrap()).unwrap()];
        mark_readers(&mut claims);
        let ttl = Ttl::from_millis(ttl_ms).unwrap();
        Join::new(&claims[0], ttl, None).unwrap()
    }

    #[test]
    fn those_of_one_key_and_one_time_are_asked_for_as_one_set() {
        let joins = [join("k", 5), join("k", 5)];
        assert!(Joins::agree(&joins[0], &joins[1]));
        for other in [join("l", 5), join("k", 6)] {
            assert!(!Joins::agree(&joins[0], &other));
        }
        let joining = Joins::params(joins.iter());
        let keys: serde_json::Value = serde_json::from_str(&joining.claimed.keys).unwrap();
        assert_eq!(
            (&keys[0]["readers"], &keys[0]["take"]),
            (&2.into(), &1.into())
        );
        assert_eq!(keys.as_array().unwrap().len(), 1);
        let ids = joins.iter().map(|join| &join.claim.lock_id);
        assert_eq!(joining.claimed.lock_ids, reply::joined(ids));
        assert_eq!(Joins::params([].into_iter()).claimed.keys, "[]");
    }

    fn is_locked(attempted: &Attempted) -> bool {
        matches!(attempted, Attempted::Done(outcome) if outcome.is_locked())
    }

    #[test]
    fn each_hears_what_all_were_told() {
        let joins = [join("k", 5), join("k", 5)];
        let [one, other] = [0, 1].map(|at: usize| joins[at].claim.lock_id.as_str());
        let joining = Joins::params(joins.iter());
        let row =
            |outcome: &str, detail: &str| vec![Some(outcome.to_owned()), Some(detail.to_owned())];
        let granted = row(
            "acquired",
            &format!("{one} 000000000000007 9 1,{other} 000000000000007 9 "),
        );
        let found = Joins::replies(Some(&granted), &joining).unwrap();
        assert!(found.len() == 2 && !found.values().any(is_locked));
        let refused = row("locked", r#"0 15 {"lock_id":"x"}"#);
        let found = Joins::replies(Some(&refused), &joining).unwrap();
        assert!(is_locked(&found[one]) && is_locked(&found[other]));
        // Who was overtaken asks again, with all others.
        let again = row("again", "");
        let found = Joins::replies(Some(&again), &joining).unwrap();
        assert_eq!(
            (&found[one], &found[other]),
            (&Attempted::Overtaken, &Attempted::Overtaken)
        );
        // Each asks alone.
        for (outcome, detail) in [("locked", "0 15"), ("locked", "0 "), ("exhausted", "9")] {
            let row = row(outcome, detail);
            assert!(Joins::replies(Some(&row), &joining).unwrap().is_empty());
        }
        for detail in ["", "short 1 2 3", &format!("{one} 7 9 ")] {
            assert!(Joins::replies(Some(&row("acquired", detail)), &joining).is_err());
        }
    }
}
