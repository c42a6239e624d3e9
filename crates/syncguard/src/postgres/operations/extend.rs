//! Extends locks: one, several at once, or several sets of them.

use std::collections::HashMap;

use super::release::left_groups;
use crate::asking::outcome::{Absence, ExtendOutcome};
use crate::postgres::connection::quota::Subject;
use crate::postgres::group::Grouped;
use crate::postgres::readers::{beginning, may_be_shared, variant};
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// Extends locks by their ids.
#[derive(Debug)]
pub struct Extend {
    alone: Statement,
    /// Where some of the locks may be shared.
    shared: Statement,
}

impl Extend {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        Self::with(tables, "")
    }

    fn with(tables: &Tables, skip: &str) -> Self {
        let sql = include_str!("extend.sql").replace("{skip}", skip);
        let of = |is_shared| {
            let sql = variant(&sql, is_shared);
            let columns: &[_] = match is_shared {
                true => &["outcomes", "groups", "commit"],
                false => &["outcomes", "commit"],
            };
            Statement::new(&sql, tables, columns).urgent()
        };
        Self {
            alone: of(false),
            shared: of(true),
        }
    }

    /// Makes the statement that extends these sets and removes expired locks.
    pub fn plan<'a>(&'a self, sets: &'a LockSets) -> Plan<'a> {
        let statement = match sets.may_be_shared {
            true => &self.shared,
            false => &self.alone,
        };
        statement.bind(vec![
            Param::Text(&sets.lock_ids),
            Param::Text(&sets.numbers),
            Param::Text(&sets.ttls),
        ])
    }
}

/// Sets of locks as parameters of the statement: lists with commas. Each set is extended as a whole or not at all.
#[derive(Debug, Default)]
pub struct LockSets {
    lock_ids: String,
    numbers: String,
    ttls: String,
    /// Whether one of them may be shared.
    may_be_shared: bool,
}

impl LockSets {
    /// Lists the locks of each set, which are to end that TTL from now.
    pub fn new<'a>(sets: impl IntoIterator<Item = (&'a [LockId], Ttl)>) -> Self {
        let mut lists = Self::default();
        for (number, (lock_ids, ttl)) in sets.into_iter().enumerate() {
            for lock_id in lock_ids {
                lists.may_be_shared |= may_be_shared(lock_id);
                reply::append(&mut lists.lock_ids, lock_id.as_str());
                reply::append(&mut lists.numbers, &number.to_string());
                reply::append(&mut lists.ttls, &ttl.as_millis().to_string());
            }
        }
        lists
    }
}

/// Reads from a row what became of one set.
///
/// # Errors
/// `Internal` for a row that makes no sense or tells of other locks.
pub fn outcome(lock_ids: &[LockId], row: Option<&Row>) -> Result<ExtendOutcome, Error> {
    let found = reply::of_each(lock_ids, rows_by_id(row)?)?;
    judge(&found)
}

/// Reads from the row the keys of readers that end sooner than before, whose groups have to be tidied.
pub(in crate::postgres) fn shortened_groups(
    lock_ids: &[LockId],
    row: Option<&Row>,
) -> Result<Vec<String>, Error> {
    match lock_ids.iter().any(may_be_shared) {
        true => left_groups(row),
        false => Ok(Vec::new()),
    }
}

/// What became of a lock that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum ExtendedRow {
    Extended {
        expires_at_ms: i64,
    },
    /// It is live, but another lock of its set is not, so it was not extended.
    Left,
    Expired,
    /// There is no such lock.
    Gone,
}

fn rows_by_id(row: Option<&Row>) -> Result<HashMap<&str, ExtendedRow>, Error> {
    let each = reply::list(row, 0)?.map(|text| {
        let (lock_id, outcome) = text.split_once(' ').ok_or_else(reply::malformed)?;
        let outcome = match outcome {
            "expired" => ExtendedRow::Expired,
            "live" => ExtendedRow::Left,
            "gone" => ExtendedRow::Gone,
            ms => ExtendedRow::Extended {
                expires_at_ms: ms.parse().map_err(|_| reply::malformed())?,
            },
        };
        Ok((lock_id, outcome))
    });
    each.collect()
}

/// The outcome for a set of which each lock was looked for.
fn judge(found: &[Option<ExtendedRow>]) -> Result<ExtendOutcome, Error> {
    let mut ends = Vec::with_capacity(found.len());
    for (lock, row) in found.iter().enumerate() {
        let absence = match row {
            Some(ExtendedRow::Extended { expires_at_ms }) => {
                ends.push(*expires_at_ms);
                continue;
            }
            Some(ExtendedRow::Left) => continue,
            Some(ExtendedRow::Expired) => Absence::Expired,
            Some(ExtendedRow::Gone) | None => Absence::NotFound,
        };
        // The store must not have extended any other lock of the set.
        return match ends.is_empty() && !found[lock..].iter().any(is_extended) {
            true => Ok(ExtendOutcome::Absent { lock, absence }),
            false => Err(reply::malformed()),
        };
    }
    match ends.iter().min() {
        Some(&expires_at_ms) if ends.len() == found.len() => {
            Ok(ExtendOutcome::Extended { expires_at_ms })
        }
        _ => Err(reply::malformed()),
    }
}

fn is_extended(row: &Option<ExtendedRow>) -> bool {
    matches!(row, Some(ExtendedRow::Extended { .. }))
}

/// A group of extensions, as one statement. A row that somebody else has locked is left out of it, unless the group is of readers of one key:
/// alone, each of them would wait for what they share.
#[derive(Debug)]
pub(in crate::postgres) struct Extensions<const OF_READERS: bool>(Extend);

impl<const OF_READERS: bool> Extensions<OF_READERS> {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        Self(Extend::with(
            tables,
            if OF_READERS { "" } else { " SKIP LOCKED" },
        ))
    }
}

impl<const OF_READERS: bool> Grouped for Extensions<OF_READERS> {
    const IS_URGENT: bool = true;

    const MOST: usize = if OF_READERS { 128 } else { 32 };

    type Item = (Batch<LockId>, Ttl);
    type Params = LockSets;
    type Reply = ExtendedRow;
    type Outcome = ExtendOutcome;

    fn lock_ids((lock_ids, _): &Self::Item) -> &[LockId] {
        lock_ids
    }

    fn subject((lock_ids, _): &Self::Item) -> Option<Subject<'_>> {
        let reader = lock_ids.first().filter(|_| OF_READERS)?;
        beginning(reader).map(Subject::Readers)
    }

    fn params<'a>(items: impl Iterator<Item = &'a Self::Item>) -> LockSets {
        LockSets::new(items.map(|(lock_ids, ttl)| (lock_ids.as_slice(), *ttl)))
    }

    fn plan<'a>(&'a self, sets: &'a LockSets) -> Plan<'a> {
        self.0.plan(sets)
    }

    fn replies<'a>(
        row: Option<&'a Row>,
        _params: &'a Self::Params,
    ) -> Result<HashMap<&'a str, ExtendedRow>, Error> {
        rows_by_id(row)
    }

    /// `None` if the row leaves out a lock, because then nobody knows whether that is gone.
    fn outcome(found: Batch<Option<ExtendedRow>>) -> Result<Option<ExtendOutcome>, Error> {
        match found.iter().all(Option::is_some) {
            true => judge(&found).map(Some),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    const IDS: [&str; 2] = ["AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"];

    fn told_of(each: [Option<&str>; 2]) -> Result<ExtendOutcome, Error> {
        let each = IDS.iter().zip(each);
        let each = each.filter_map(|(id, outcome)| Some(format!("{id} {}", outcome?)));
        let text = each.collect::<Vec<_>>().join(",");
        let row = vec![(!text.is_empty()).then_some(text), None];
        let ids = IDS.map(|id| LockId::parse(id).unwrap());
        outcome(&ids, Some(&row))
    }

    #[test]
    fn a_set_is_extended_or_says_which_lock_is_gone() {
        let extended = told_of([Some("9"), Some("8")]).unwrap();
        assert_eq!(extended, ExtendOutcome::Extended { expires_at_ms: 8 });
        for (each, lock, absence) in [
            ([Some("live"), Some("expired")], 1, Absence::Expired),
            ([Some("live"), None], 1, Absence::NotFound),
            ([Some("expired"), Some("expired")], 0, Absence::Expired),
            ([Some("live"), Some("gone")], 1, Absence::NotFound),
            ([None, None], 0, Absence::NotFound),
        ] {
            let gone = ExtendOutcome::Absent { lock, absence };
            assert_eq!(told_of(each).unwrap(), gone);
        }
    }

    #[test]
    fn a_row_that_makes_no_sense_extends_nothing() {
        for each in [
            [Some("9"), None],
            [Some("9"), Some("expired")],
            [Some("expired"), Some("9")],
            [Some("9"), Some("live")],
            [Some("live"), Some("live")],
            [Some("soon"), Some("9")],
        ] {
            assert_eq!(told_of(each).unwrap_err().kind(), ErrorKind::Internal);
        }
        let row = vec![Some(format!("{} 9", IDS[0])), None];
        assert!(outcome(&[LockId::parse(IDS[1]).unwrap()], Some(&row)).is_err());
    }

    #[test]
    fn sets_are_listed_lock_by_lock() {
        let ids = IDS.map(|id| LockId::parse(id).unwrap());
        let ttl = |ms| Ttl::from_millis(ms).unwrap();
        let sets = LockSets::new([(&ids[..], ttl(5)), (&ids[..1], ttl(6))]);
        assert_eq!(sets.lock_ids.split(',').count(), 3);
        assert_eq!(
            (sets.numbers.as_str(), sets.ttls.as_str()),
            ("0,0,1", "5,5,6")
        );
    }
}
