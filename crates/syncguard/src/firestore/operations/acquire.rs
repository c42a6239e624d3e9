//! Acquires locks.

use super::group::{self, GroupIds, Readers};
use crate::asking::granting::{FoundLock, Granting, HeldSlots, NoSlot, grant};
use crate::asking::outcome::AcquireOutcome;
use crate::asking::request::AcquireRequest;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::LockDocument;
use crate::firestore::ids::{DocumentIds, slot_ids, slot_number};
use crate::firestore::progress::Progress;
use crate::firestore::transport::{Documents, ReadSet};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, Slots};
use crate::values::due::Due;
use crate::values::key::Key;
use crate::values::lock_id::LockId;

/// A lock that a claim is to get.
pub(in crate::firestore) struct WantedLock {
    key: Key,
    ids: DocumentIds,
    /// The group that it belongs to.
    group: Option<GroupIds>,
}

impl WantedLock {
    pub(in crate::firestore) fn of(key: Key) -> Result<Self, Error> {
        let ids = DocumentIds::of(&key)?;
        let group = None;
        Ok(Self { key, ids, group })
    }

    /// That of one who shares `key`.
    pub(in crate::firestore) fn shared(key: &Key, lock_id: &LockId) -> Result<Self, Error> {
        Ok(Self {
            group: Some(GroupIds::of(key)?),
            ..Self::of(key.reader(lock_id))?
        })
    }
}

/// What shows which slots of a key are held.
pub(in crate::firestore) fn slots_of(key: &Key) -> Result<ReadSet, Error> {
    let [from, before] = slot_ids(key)?;
    Ok(ReadSet::Between {
        from,
        before,
        limit: None,
    })
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
    let groups = wanted.iter().filter_map(|lock| lock.group.as_ref());
    let groups = groups.flat_map(|group| [group.lock.clone(), group.gate.clone()]);
    ReadSet::Named {
        locks: ids().map(|ids| ids.lock.clone()).chain(groups).collect(),
        counters: counters.chain(marks).collect(),
    }
}

/// Acquires the locks, which are in the order of the claims, unless somebody holds one of them. `found` are their documents and
/// those of their counters, and `now_ms` is the time of the attempt. The fence limit is checked before any write is decided.
///
/// If a lock is that of a group, it asks for the locks of its readers: one that has none left is no obstacle.
///
/// # Errors
/// `Internal` when a counter has no fence left to give, and for a malformed document.
pub(in crate::firestore) fn decide(
    request: &AcquireRequest,
    wanted: &[WantedLock],
    found: &Documents,
    now_ms: i64,
) -> Result<Progress<AcquireOutcome>, Error> {
    let claims = request.claims.as_slice();
    let mut unread = Vec::new();
    let locks = wanted.iter().zip(claims);
    let locks = locks.map(|(lock, claim)| match &lock.group {
        Some(group) => group::found_lock(&lock.ids, group, claim, found, now_ms),
        None => found_lock(lock, claim, found, now_ms, &mut unread),
    });
    let locks = locks.collect::<Result<Batch<_>, Error>>()?;
    if !unread.is_empty() {
        return Ok(Progress::Read(unread));
    }
    if let (Some(due), [lock], [found_lock]) = (&request.due, wanted, &locks[..])
        // A lock that is the caller's own, from a call whose answer was lost, was granted for it.
        && found_lock.own_fence.is_none()
        && let Some(mark) = found.mark_of(&lock.ids.mark())?
        && mark.covers(due)
    {
        return Ok(Decision::answer(AcquireOutcome::Done(mark)).into());
    }
    let grants = match grant(claims, &locks, request.ttl, now_ms)? {
        Granting::Answer(answer) => return Ok(Decision::answer(answer).into()),
        Granting::Write(grants) => grants,
    };
    let mut writes = Vec::new();
    for ((lock, locked), grant) in wanted.iter().zip(&locks).zip(&grants) {
        let of_group = match &lock.group {
            Some(group) => group::writes(group, request, grant, found, now_ms)?,
            // Those who shared it have ended.
            None => match group::live(found, &lock.ids.lock, now_ms)? {
                Some(group) => group::prune(found, &lock.ids.lock, &group, &[], now_ms)?,
                None => Vec::new(),
            },
        };
        // Who joins others has their fence.
        if locked.joins.is_none() {
            let key = lock.group.as_ref().map_or(&lock.key, |group| &group.key);
            writes.push(Write::SetCounter {
                document_id: lock.ids.counter.clone(),
                fence: grant.fence,
                key: key.clone(),
            });
        }
        writes.extend(of_group);
        writes.push(Write::SetLock {
            document_id: lock.ids.lock.clone(),
            lock: LockDocument {
                lock_id: grant.lock_id.clone(),
                expires_at_ms: grant.expires_at_ms,
                acquired_at_ms: now_ms,
                key: lock.key.clone(),
                fence: grant.fence,
                labels: request.labels.clone(),
            },
        });
    }
    let answer = AcquireOutcome::Acquired(grants);
    let warnings = Vec::new();
    Ok(Progress::Decided(Decision {
        answer,
        writes,
        warnings,
    }))
}

fn found_lock(
    wanted: &WantedLock,
    claim: &Claim,
    found: &Documents,
    now_ms: i64,
    unread: &mut Vec<ReadSet>,
) -> Result<FoundLock, Error> {
    let id = &wanted.ids.lock;
    let counter = found.counter_of(&wanted.ids.counter)?;
    let free = FoundLock {
        slot: wanted.key.slot_number(),
        ..FoundLock::free(counter.map_or(0, |counter| counter.fence))
    };
    let Some(lock) = found.lock_of(id)? else {
        return Ok(free);
    };
    if let Some(group) = group::live(found, id, now_ms)? {
        let readers = group::readers(found, id, &group, &[], now_ms)?;
        let expires_at_ms = match readers {
            Readers::Until(end) => Some(end),
            Readers::Nobody => None,
            Readers::Unread(what) => {
                unread.push(what);
                None
            }
        };
        return Ok(FoundLock {
            is_shared: expires_at_ms.is_some(),
            expires_at_ms,
            ..free
        });
    }
    let is_own = lock.lock_id == claim.lock_id.as_str() && lock.is_live(now_ms);
    let own_fence = match is_own {
        true => Some(found.lock_document_of(id)?.fence),
        false => None,
    };
    Ok(FoundLock {
        expires_at_ms: Some(lock.expires_at_ms),
        own_fence,
        labels: lock.labels,
        ..free
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
        match decide(request, &wanted(request), found, now_ms)? {
            Progress::Decided(decision) => Ok(decision),
            Progress::Read(_) => panic!("nobody shares a key"),
        }
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
