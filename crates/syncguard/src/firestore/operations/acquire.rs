//! Acquires locks.

use crate::asking::granting::{FoundLock, Granting, HeldSlots, NoSlot, grant};
use crate::asking::outcome::AcquireOutcome;
use crate::asking::request::AcquireRequest;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::{LockDocument, LockState};
use crate::firestore::ids::{DocumentIds, slot_ids, slot_number};
use crate::firestore::transport::{Documents, ReadSet};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, Slots};
use crate::values::due::Due;
use crate::values::key::Key;

/// A lock that a claim is to get.
pub(in crate::firestore) struct WantedLock {
    key: Key,
    ids: DocumentIds,
}

impl WantedLock {
    pub(in crate::firestore) fn of(key: Key) -> Result<Self, Error> {
        let ids = DocumentIds::of(&key)?;
        Ok(Self { key, ids })
    }
}

/// What shows which slots of a key are held.
pub(in crate::firestore) fn slots_of(key: &Key) -> Result<ReadSet, Error> {
    let [from, before] = slot_ids(key)?;
    Ok(ReadSet::Between { from, before })
}

/// The locks that `claims` are to get, which ask for slots of one key. `found` are the locks on its slots, `now_ms` is the
/// time before they were read.
///
/// # Errors
/// `Internal` for a malformed document.
pub(in crate::firestore) fn choose(
    claims: &[Claim],
    slots: Slots,
    found: &Documents,
    now_ms: i64,
) -> Result<Result<Vec<WantedLock>, NoSlot>, Error> {
    let mut held = HeldSlots::new(claims, slots.count(), now_ms);
    for lock in found.locks()? {
        if let Some(number) = slot_number(&lock.document_id) {
            let labels = || lock.labels.clone();
            held.add(number, &lock.lock_id, lock.expires_at_ms, labels);
        }
    }
    let numbers = match held.choose(slots.first()?) {
        Ok(numbers) => numbers,
        Err(none) => return Ok(Err(none)),
    };
    let locks = claims.iter().zip(numbers);
    let locks = locks.map(|(claim, number)| WantedLock::of(claim.key.slot(number)));
    locks.collect::<Result<_, Error>>().map(Ok)
}

/// What shows whether these locks are held, where their counters stand, and, for a period that is to be done, whether it is.
pub(in crate::firestore) fn state_of(wanted: &[WantedLock], due: Option<&Due>) -> ReadSet {
    let ids = || wanted.iter().map(|lock| &lock.ids);
    let counters = ids().map(|ids| ids.counter.clone());
    let marks = ids().filter(|_| due.is_some()).map(DocumentIds::mark);
    ReadSet::Named {
        locks: ids().map(|ids| ids.lock.clone()).collect(),
        counters: counters.chain(marks).collect(),
    }
}

/// Acquires the locks, which are in the order of the claims, unless somebody holds one of them. `found` are their documents and
/// those of their counters, and `now_ms` is the time of the attempt. The fence limit is checked before any write is decided.
///
/// # Errors
/// `Internal` when a counter has no fence left to give, and for a malformed document.
pub(in crate::firestore) fn decide(
    request: &AcquireRequest,
    wanted: &[WantedLock],
    found: &Documents,
    now_ms: i64,
) -> Result<Decision<AcquireOutcome>, Error> {
    let claims = request.claims.as_slice();
    let locks = wanted.iter().zip(claims);
    let locks = locks.map(|(lock, claim)| found_lock(lock, claim, found, now_ms));
    let locks = locks.collect::<Result<Batch<_>, Error>>()?;
    if let (Some(due), [lock], [found_lock]) = (&request.due, wanted, &locks[..])
        // A lock that is the caller's own, from a call whose answer was lost, was granted for it.
        && found_lock.own_fence.is_none()
        && let Some(mark) = found.mark_of(&lock.ids.mark())?
        && mark.covers(due)
    {
        return Ok(Decision::answer(AcquireOutcome::Done(mark)));
    }
    let grants = match grant(claims, &locks, request.ttl, now_ms)? {
        Granting::Answer(answer) => return Ok(Decision::answer(answer)),
        Granting::Write(grants) => grants,
    };
    let writes = wanted.iter().zip(&grants).flat_map(|(lock, grant)| {
        let WantedLock { key, ids } = lock;
        [
            Write::SetCounter {
                document_id: ids.counter.clone(),
                fence: grant.fence,
                key: key.clone(),
            },
            Write::SetLock {
                document_id: ids.lock.clone(),
                lock: LockDocument {
                    lock_id: grant.lock_id.clone(),
                    expires_at_ms: grant.expires_at_ms,
                    acquired_at_ms: now_ms,
                    key: key.clone(),
                    fence: grant.fence,
                    labels: request.labels.clone(),
                },
            },
        ]
    });
    Ok(Decision {
        writes: writes.collect(),
        answer: AcquireOutcome::Acquired(grants),
        warnings: Vec::new(),
    })
}

fn found_lock(
    wanted: &WantedLock,
    claim: &Claim,
    found: &Documents,
    now_ms: i64,
) -> Result<FoundLock, Error> {
    let lock = found.lock_of(&wanted.ids.lock)?;
    let is_own = |lock: &LockState| lock.lock_id == claim.lock_id.as_str() && lock.is_live(now_ms);
    let own_fence = match &lock {
        Some(lock) if is_own(lock) => Some(found.lock_document_of(&lock.document_id)?.fence),
        _ => None,
    };
    let counter = found.counter_of(&wanted.ids.counter)?;
    Ok(FoundLock {
        slot: wanted.key.slot_number(),
        expires_at_ms: lock.as_ref().map(|lock| lock.expires_at_ms),
        own_fence,
        counter: counter.map_or(0, |counter| counter.fence),
        labels: lock.map(|lock| lock.labels).unwrap_or_default(),
        joins: None,
        is_shared: false,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::firestore::documents::{CounterDocument, Field};
    use crate::firestore::transport::Document;
    use crate::text::error::ErrorKind;
    use crate::values::ttl::Ttl;

    const NOW: i64 = 1_700_000_000_000;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn request(names: &[&str]) -> AcquireRequest {
        let claims = names.iter().map(|name| Claim::new(key(name)).unwrap());
        AcquireRequest::of(claims, Ttl::DEFAULT).unwrap()
    }

    fn wanted(request: &AcquireRequest) -> Vec<WantedLock> {
        let keys = request.claims.iter().map(|claim| claim.key.clone());
        keys.map(|key| WantedLock::of(key).unwrap()).collect()
    }

    fn document(id: &str, fields: Vec<(&'static str, Field)>) -> Document {
        let fields = fields.into_iter();
        Document {
            id: id.to_owned(),
            fields: fields
                .map(|(name, field)| (name.to_owned(), field))
                .collect(),
        }
    }

    /// The lock on a key as another holder has it.
    fn held(key: &Key, expires_at_ms: i64) -> Document {
        let fields = vec![
            ("lockId", Field::Text("another".to_owned())),
            ("expiresAtMs", Field::Number(expires_at_ms as f64)),
        ];
        document(&DocumentIds::of(key).unwrap().lock, fields)
    }

    fn counter(key: &Key, fence: i64) -> Document {
        let fields = vec![("fence", Field::Text(format!("{fence:015}")))];
        document(&DocumentIds::of(key).unwrap().counter, fields)
    }

    fn decided(
        request: &AcquireRequest,
        found: &Documents,
        now_ms: i64,
    ) -> Result<Decision<AcquireOutcome>, Error> {
        decide(request, &wanted(request), found, now_ms)
    }

    /// What a store has after these writes.
    fn written(writes: &[Write]) -> Documents {
        let mut documents = Documents::default();
        for write in writes {
            match write {
                Write::SetLock { document_id, lock } => {
                    documents.locks.push(document(document_id, lock.fields()));
                }
                Write::SetCounter {
                    document_id,
                    fence,
                    key,
                } => {
                    let fields = CounterDocument::fields(*fence, key);
                    documents.counters.push(document(document_id, fields));
                }
                _ => panic!("only locks and counters"),
            }
        }
        documents
    }

    #[test]
    fn free_keys_are_taken_each_with_the_next_fence_of_its_own() {
        let request = request(&["b", "a"]);
        let found = Documents {
            locks: vec![held(&key("b"), NOW - 1000)],
            counters: vec![counter(&key("b"), NOW + 41), counter(&key("a"), 3)],
            ..Documents::default()
        };
        let decision = decided(&request, &found, NOW).unwrap();
        let AcquireOutcome::Acquired(grants) = &decision.answer else {
            panic!("not acquired");
        };
        let fences: Vec<_> = grants
            .iter()
            .map(|it| it.fence.get().cast_signed())
            .collect();
        assert_eq!(fences, [NOW, NOW + 42]);
        // A counter and a lock each, in the order of the keys.
        let stored = written(&decision.writes);
        assert_eq!(decision.writes.len(), 4);
        for (at, name) in ["a", "b"].iter().enumerate() {
            let lock = stored.locks[at].lock().unwrap();
            assert_eq!(lock.key.as_str(), *name);
            assert!(lock.lock_id == request.claims[at].lock_id && lock.fence == grants[at].fence);
            assert_eq!(
                (lock.acquired_at_ms, lock.expires_at_ms),
                (NOW, NOW + 30_000)
            );
            let counter = stored.counters[at].counter().unwrap();
            assert_eq!(counter.fence, fences[at]);
        }
    }

    #[test]
    fn one_that_is_held_leaves_nothing_to_write() {
        let found = Documents {
            locks: vec![held(&key("b"), NOW)],
            ..Documents::default()
        };
        for (names, claim) in [(&["b"][..], 0), (&["a", "b", "c"], 1)] {
            let decision = decided(&request(names), &found, NOW).unwrap();
            let free_in = Some(Duration::from_millis(1000));
            let labels = crate::values::labels::Labels::default();
            let locked = AcquireOutcome::Locked {
                claim,
                free_in,
                labels,
                is_shared: false,
            };
            assert_eq!(decision.answer, locked);
            assert!(decision.writes.is_empty());
        }
    }

    #[test]
    fn ones_own_locks_are_given_as_they_were_granted() {
        for names in [&["a"][..], &["a", "b"]] {
            let request = request(names);
            let first = decided(&request, &Documents::default(), NOW).unwrap();
            let stored = written(&first.writes);
            let again = decided(&request, &stored, NOW + 20).unwrap();
            assert_eq!(again.answer, first.answer);
            assert!(again.writes.is_empty());
            // Once they have ended, they are taken anew.
            let anew = decided(&request, &stored, NOW + 31_000).unwrap();
            assert_eq!(anew.writes.len(), first.writes.len());
            assert_ne!(anew.answer, first.answer);
        }
    }

    #[test]
    fn an_exhausted_counter_is_an_error_whichever_it_is() {
        for (name, fence) in [("a", 900_000_000_000_000), ("b", 999_999_999_999_999)] {
            let found = Documents {
                counters: vec![counter(&key(name), fence)],
                ..Documents::default()
            };
            let error = decided(&request(&["a", "b"]), &found, NOW).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
    }

    #[test]
    fn slots_are_chosen_among_those_that_nobody_holds() {
        let slots = Slots::new(4).unwrap();
        let claims = [(); 2].map(|()| Claim::slot(key("a"), slots).unwrap());
        let held_until = |number, end| held(&key("a").slot(number), end);
        let mut found = Documents {
            locks: vec![
                held_until(1, NOW),
                held_until(2, NOW - 1000),
                held_until(12, NOW),
            ],
            ..Documents::default()
        };
        for _ in 0..50 {
            let chosen = choose(&claims, slots, &found, NOW).unwrap().ok().unwrap();
            let numbers: Vec<_> = chosen
                .iter()
                .map(|it| it.key.slot_number().unwrap())
                .collect();
            assert!(
                matches!(numbers[..], [2, 3] | [3, 4] | [4, 2]),
                "{numbers:?}"
            );
        }
        found
            .locks
            .extend([held_until(3, NOW + 7), held_until(4, NOW + 9)]);
        let none = choose(&claims, slots, &found, NOW).unwrap().err().unwrap();
        assert_eq!(
            (none.claim, none.free_in),
            (1, Some(Duration::from_millis(1000)))
        );
    }
}
