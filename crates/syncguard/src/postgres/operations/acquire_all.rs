//! Acquires several locks, or slots, all or nothing. It also takes over expired locks.

use serde_json::{Value, json};

use super::acquire::{exhausted, free_in};
use super::labels::{Labelled, StoredLabels};
use super::lookup::HeldRow;
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::postgres::names::{self, PrimaryKeys};
use crate::postgres::readers::{is_marked, variant};
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::fence::Fence;
use crate::values::key::{Key, gate_name, readers_name};
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// Acquires all locks of an acquisition.
#[derive(Debug)]
pub struct AcquireAll {
    alone: Labelled,
    /// Where some of them are to be shared.
    shared: Labelled,
}

impl AcquireAll {
    /// For the locks in `tables`.
    pub fn new(tables: &Tables) -> Self {
        let of = |is_shared, label| {
            let sql = variant(include_str!("acquire_all.sql"), is_shared);
            Labelled::new([&sql, label], 3, tables, &["outcome", "detail"])
        };
        Self {
            alone: of(false, "id || {}"),
            // A group has no labels.
            shared: of(true, r#"CASE WHEN "group" IS NULL THEN id || {} END"#),
        }
    }

    /// Makes the statement that tries to acquire the locks and stores `labels` with each. It puts the lock ids before them
    /// itself.
    pub fn plan<'a>(
        &'a self,
        claimed: &'a Claimed,
        ttl: Ttl,
        labels: Option<&'a StoredLabels>,
    ) -> Plan<'a> {
        let params = vec![
            Param::Text(&claimed.keys),
            Param::Text(&claimed.lock_ids),
            Param::BigInt(ttl.as_millis()),
        ];
        let statements = match claimed.is_shared {
            true => &self.shared,
            false => &self.alone,
        };
        statements.bind(params, labels)
    }
}

/// Claims as parameters of the statement.
#[derive(Debug)]
pub struct Claimed {
    pub(super) keys: String,
    pub(super) lock_ids: String,
    is_shared: bool,
}

impl Claimed {
    /// Lists claims, which must be in the order of an [`AcquireRequest`](crate::AcquireRequest). Each attempt begins its
    /// search for a free slot at a random number.
    ///
    /// # Errors
    /// As [`PrimaryKeys::new`] and [`Slots::first`](crate::Slots::first). `InvalidArgument` for a reader whose lock id does not tell that it is one's,
    /// because [`Backend::prepare`](crate::Backend::prepare) has not seen it.
    pub fn new(claims: &[Claim]) -> Result<Self, Error> {
        let mut keys = Vec::new();
        let mut first_claim = 0;
        for same in claims.chunk_by(|a, b| a.key == b.key) {
            let [claim, ..] = same else { continue };
            let mut item = match claim.kind {
                ClaimKind::Exclusive => named(&PrimaryKeys::new(&claim.key)?, claim.key.as_str()),
                ClaimKind::Shared => shared(same, &claim.key)?,
                ClaimKind::SlotOf(slots) => {
                    let (names, key) = names::of_slots(&claim.key)?;
                    let mut item = named(&names, &key);
                    item["slots"] = slots.count().into();
                    item["first"] = (slots.first()? - 1).into();
                    item
                }
            };
            item["claim"] = first_claim.into();
            // Readers of one key share one place.
            let is_shared = claim.kind == ClaimKind::Shared;
            item["take"] = if is_shared { 1 } else { same.len() }.into();
            first_claim += same.len();
            keys.push(item);
        }
        Ok(Self {
            keys: Value::Array(keys).to_string(),
            lock_ids: reply::joined(claims.iter().map(|claim| &claim.lock_id)),
            is_shared: claims.iter().any(|claim| claim.kind == ClaimKind::Shared),
        })
    }

    /// Asks for nothing.
    pub(super) fn nothing() -> Self {
        Self {
            keys: "[]".to_owned(),
            lock_ids: String::new(),
            is_shared: true,
        }
    }

    /// The same for so many readers in the place of one.
    pub(super) fn with_readers(&self, lock_ids: &[&LockId]) -> Self {
        let mut keys: Value = serde_json::from_str(&self.keys).unwrap_or_default();
        keys[0]["readers"] = lock_ids.len().into();
        Self {
            keys: keys.to_string(),
            lock_ids: reply::joined(lock_ids.iter().copied()),
            is_shared: true,
        }
    }
}

/// An item with the names of the group, the gate and the readers.
fn shared(claims: &[Claim], key: &Key) -> Result<Value, Error> {
    if !claims.iter().all(|claim| is_marked(&claim.lock_id)) {
        return Err(Error::invalid(
            "the lock id of a reader is not marked: let Backend::prepare change the request first",
        ));
    }
    let names = PrimaryKeys::new(key)?;
    let mut item = named(&names, key.as_str());
    item["group"] = LockId::group(&names.lock).as_str().into();
    item["gate"] = gate_name(&names.lock).into();
    item["readers"] = claims.len().into();
    item["reader"] = readers_name(&names.lock).into();
    item["reader_key"] = readers_name(key.as_str()).into();
    Ok(item)
}

fn named(names: &PrimaryKeys, key: &str) -> Value {
    json!({"lock": names.lock, "fence": names.fence, "key": key})
}

/// Reads the row of [`AcquireAll`]. `None` if another acquisition came between, so that the caller has to ask again.
///
/// # Errors
/// `Internal` when a fence counter has no number left, and for a row that makes no sense.
pub fn outcome(claims: &[Claim], row: Option<&Row>) -> Result<Option<AcquireOutcome>, Error> {
    Ok(Some(match reply::text(row, 0)? {
        "acquired" => AcquireOutcome::Acquired(grants(claims, row)?),
        "locked" => locked(reply::text(row, 1)?, claims.len())?,
        "exhausted" => return Err(exhausted(reply::number(row, 1)?)),
        "again" => return Ok(None),
        _ => return Err(reply::malformed()),
    }))
}

/// The outcome where one of so many claims is refused, from what the statement says of it.
pub(super) fn locked(detail: &str, claims: usize) -> Result<AcquireOutcome, Error> {
    let (claim, held) = detail.split_once(' ').ok_or_else(reply::malformed)?;
    let (ms, lock) = held.split_once(' ').unwrap_or((held, ""));
    let claim = claim.parse().map_err(|_| reply::malformed())?;
    if claim >= claims {
        return Err(reply::malformed());
    }
    let HeldRow { labels, is_shared } = HeldRow::in_row(lock);
    Ok(AcquireOutcome::Locked {
        claim,
        free_in: (!ms.is_empty()).then(|| free_in(ms)).transpose()?,
        labels,
        is_shared,
    })
}

fn grants(claims: &[Claim], row: Option<&Row>) -> Result<Batch<Grant>, Error> {
    let each = reply::list(row, 1)?.map(|text| text.split_once(' ').ok_or_else(reply::malformed));
    let lock_ids: Batch<LockId> = claims.iter().map(|claim| claim.lock_id.clone()).collect();
    let texts = reply::of_each(&lock_ids, each.collect::<Result<_, _>>()?)?;
    let grants = claims.iter().zip(texts).map(|(claim, text)| {
        let grant = text.and_then(|text| grant(claim.kind, &claim.lock_id, text));
        grant.ok_or_else(reply::malformed)
    });
    grants.collect()
}

/// Reads a grant, which stands behind its lock id.
pub(super) fn grant(kind: ClaimKind, lock_id: &LockId, text: &str) -> Option<Grant> {
    let mut parts = text.split(' ');
    let (fence, end, number) = (parts.next()?, parts.next()?, parts.next()?);
    let slot = match kind {
        // A user's key may end with digits, too.
        ClaimKind::Exclusive | ClaimKind::Shared => None,
        ClaimKind::SlotOf(_) => Some(number.parse().ok()?),
    };
    kind.admits(slot).then_some(())?;
    Some(Grant {
        lock_id: lock_id.clone(),
        slot,
        fence: Fence::parse(fence).ok()?,
        expires_at_ms: end.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;
    use crate::values::claim::Slots;

    /// A key, and two of five slots of another.
    fn claims() -> Vec<Claim> {
        let key = |name| Key::new(name).unwrap();
        let slot = || Claim::slot(key("s"), Slots::new(5).unwrap()).unwrap();
        vec![Claim::new(key("k7")).unwrap(), slot(), slot()]
    }

    fn read(
        claims: &[Claim],
        outcome: &str,
        detail: &str,
    ) -> Result<Option<AcquireOutcome>, Error> {
        let row = vec![Some(outcome.to_owned()), Some(detail.to_owned())];
        super::outcome(claims, Some(&row))
    }

    #[test]
    fn claims_of_a_key_are_one_item() {
        let claims = claims();
        let claimed = Claimed::new(&claims).unwrap();
        let items: Value = serde_json::from_str(&claimed.keys).unwrap();
        let first = items[1]["first"].as_u64().unwrap();
        assert!(first < 5);
        let expected = json!([
            {"claim": 0, "take": 1, "lock": "k7", "fence": "fence:k7", "key": "k7"},
            {"claim": 1, "take": 2, "lock": "s\u{37e}", "fence": "fence:s\u{37e}", "key": "s\u{37e}", "slots": 5,
             "first": first},
        ]);
        assert_eq!(items, expected);
        assert_eq!(claimed.lock_ids.split(',').count(), 3);
    }

    #[test]
    fn grants_are_in_the_order_of_the_claims() {
        let claims = claims();
        let [a, b, c] = [0, 1, 2].map(|at: usize| claims[at].lock_id.as_str());
        let detail =
            format!("{c} 000000000000003 9 1,{a} 000000000000001 9 7,{b} 000000000000002 9 5");
        let Some(AcquireOutcome::Acquired(grants)) = read(&claims, "acquired", &detail).unwrap()
        else {
            panic!("locked");
        };
        let seen: Vec<_> = grants
            .iter()
            .map(|grant| (grant.lock_id.as_str(), grant.slot, grant.fence.get()))
            .collect();
        assert_eq!(seen, [(a, None, 1), (b, Some(5), 2), (c, Some(1), 3)]);
    }

    #[test]
    fn what_is_not_granted_says_why() {
        let claims = claims();
        let locked = AcquireOutcome::Locked {
            claim: 2,
            free_in: Some(std::time::Duration::from_millis(15)),
            labels: crate::values::labels::Labels::default(),
            is_shared: false,
        };
        assert_eq!(read(&claims, "locked", "2 15").unwrap(), Some(locked));
        assert_eq!(read(&claims, "again", "").unwrap(), None);
        let error = read(&claims, "exhausted", "900000000000000").unwrap_err();
        assert!(error.message().contains("ence"), "{error}");
    }

    #[test]
    fn a_row_that_makes_no_sense_grants_nothing() {
        let claims = claims();
        let [a, b, c] = [0, 1, 2].map(|at: usize| claims[at].lock_id.as_str());
        let fence = "000000000000001";
        for (outcome, detail) in [
            ("", String::new()),
            ("locked", "3 15".to_owned()),
            ("locked", "15".to_owned()),
            ("locked", "0 soon".to_owned()),
            ("exhausted", "7".to_owned()),
            ("acquired", String::new()),
            ("acquired", format!("{a} {fence} 9 ,{b} {fence} 9 1")),
            (
                "acquired",
                format!("{a} {fence} 9 ,{b} {fence} 9 1,{c} {fence} 9 6"),
            ),
            (
                "acquired",
                format!("{a} {fence} 9 ,{b} {fence} 9 1,{c} {fence} 9 "),
            ),
            (
                "acquired",
                format!("{a} {fence} 9 ,{b} {fence} 9 1,{c} 1 9 2"),
            ),
            (
                "acquired",
                format!("{a} {fence} 9 ,{b} {fence} 9 1,{c} {fence} 9 2,x {fence} 9 3"),
            ),
        ] {
            let error = read(&claims, outcome, &detail).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{outcome} {detail}");
        }
    }
}
