//! Releases locks.

use super::group;
use super::owned::{Owned, delete, owned};
use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::asking::request::Finish;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::LockState;
use crate::firestore::ids::DocumentIds;
use crate::firestore::progress::Progress;
use crate::firestore::transport::{Documents, ReadSet};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::due::DoneMark;
use crate::values::lock_id::LockId;

/// Releases the locks that these lock ids own, each for itself. `found` are all documents with these `lockId`s, and what it has
/// asked for of the groups that they belong to; `now_ms` is the time of the attempt.
pub(in crate::firestore) fn decide(
    lock_ids: &[LockId],
    found: &Documents,
    now_ms: i64,
) -> Result<Progress<Batch<ReleaseOutcome>>, Error> {
    let groups = group::groups(found, lock_ids)?;
    let mut unread = group::unread(found, &groups, true);
    if !unread.is_empty() {
        return Ok(Progress::Read(unread));
    }
    let locks = found.locks()?;
    let mut decision = Decision::answer(Batch::new());
    for (at, lock_id) in lock_ids.iter().enumerate() {
        let Owned {
            lock,
            cleanup,
            warning,
        } = owned(lock_id, &locks, now_ms);
        decision.answer.push(match lock {
            _ if lock_ids[..at].contains(lock_id) => ReleaseOutcome::Absent(Absence::NotFound),
            Ok(lock) => {
                decision.writes.push(delete(lock));
                match group::has(found, &lock.document_id, now_ms)? {
                    true => ReleaseOutcome::Released,
                    false => ReleaseOutcome::Absent(Absence::NotFound),
                }
            }
            Err(absence) => ReleaseOutcome::Absent(absence),
        });
        decision.writes.extend(cleanup);
        decision.warnings.extend(warning);
    }
    for (id, leaving) in &groups {
        match group::tidy(found, id, leaving, now_ms)? {
            Ok(writes) => decision.writes.extend(writes),
            Err(what) => unread.push(what),
        }
    }
    Ok(match unread.is_empty() {
        true => decision.into(),
        false => Progress::Read(unread),
    })
}

/// What shows whether a lock is held under which something is done, and what is stored of that.
pub(in crate::firestore) fn finished_by(done: &Finish) -> Result<ReadSet, Error> {
    let ids = DocumentIds::of(&done.key)?;
    Ok(ReadSet::Named {
        counters: vec![ids.mark()],
        locks: vec![ids.lock],
    })
}

/// Releases the lock on the key that is done, if this lock id owns it, and stores that it is. `now_ms` is the time of the
/// attempt.
pub(in crate::firestore) fn decide_done(
    lock_id: &LockId,
    done: &Finish,
    found: &Documents,
    now_ms: i64,
) -> Result<Decision<ReleaseOutcome>, Error> {
    let document_id = DocumentIds::of(&done.key)?.mark();
    let mark = found.mark_of(&document_id)?;
    let lock = found.lock()?;
    // By a try before, whose answer was lost, or in a transaction of the holder's.
    let is_stored = mark
        .as_ref()
        .is_some_and(|mark| mark.due == done.due && mark.lock_id == *lock_id);
    let of = |is_done, absence| match is_done {
        true => ReleaseOutcome::Released,
        false => ReleaseOutcome::Absent(absence),
    };
    let is_own = |lock: &LockState| lock.lock_id == lock_id.as_str() && !lock.is_group();
    let Some(lock) = lock.filter(is_own) else {
        return Ok(Decision::answer(of(is_stored, Absence::NotFound)));
    };
    let is_live = lock.is_live(now_ms);
    let mut decision = Decision::answer(of(is_live || is_stored, Absence::Expired));
    decision.writes.push(delete(&lock));
    if let Some(mark) = mark_after(mark.as_ref(), done, lock_id, now_ms).filter(|_| is_live) {
        decision.writes.push(Write::SetMark {
            document_id,
            mark: Some(mark),
            key: done.key.clone(),
        });
    }
    Ok(decision)
}

/// What is to be stored once something is done under a lock that is held; `None` if a later period is there.
pub fn mark_after(
    found: Option<&DoneMark>,
    done: &Finish,
    lock_id: &LockId,
    now_ms: i64,
) -> Option<DoneMark> {
    let is_next = found.is_none_or(|mark| done.due.is_after(&mark.due));
    is_next.then(|| DoneMark {
        due: done.due.clone(),
        done_at_ms: now_ms,
        lock_id: lock_id.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::firestore::decision::Warning;
    use crate::firestore::transport::Document;
    use crate::firestore::transport::tests::held;

    const NOW: i64 = 1_700_000_000_000;
    const LIVE: i64 = NOW + 1;
    const EXPIRED: i64 = NOW - 1000;

    fn decided(lock_ids: &[LockId], locks: Vec<Document>) -> Decision<Batch<ReleaseOutcome>> {
        let found = Documents {
            locks,
            ..Documents::default()
        };
        match decide(lock_ids, &found, NOW).unwrap() {
            Progress::Decided(decision) => decision,
            Progress::Read(_) => panic!("nobody shares a key"),
        }
    }

    /// Releases one lock id of which there are documents with these ends; which are deleted?
    fn run(ends: &[i64]) -> (ReleaseOutcome, Vec<usize>, Option<(usize, usize)>) {
        let lock_id = LockId::generate().unwrap();
        let found: Vec<_> = ends
            .iter()
            .enumerate()
            .map(|(number, end)| held(&number.to_string(), &lock_id, *end))
            .collect();
        let mut decision = decided(slice::from_ref(&lock_id), found);
        let mut deleted: Vec<_> = decision
            .writes
            .iter()
            .map(|write| match write {
                Write::DeleteLock { document_id } => document_id.parse().unwrap(),
                _ => panic!("release only deletes"),
            })
            .collect();
        deleted.sort_unstable();
        let warning = decision.warnings.pop().map(|warning| {
            let Warning::DuplicateLockId {
                lock_id_hash,
                live,
                expired,
            } = warning
            else {
                panic!("release finds only duplicates");
            };
            assert_eq!(lock_id_hash, crate::hash_key(lock_id.as_str()));
            (live, expired)
        });
        (decision.answer[0], deleted, warning)
    }

    #[test]
    fn the_lock_goes_and_the_answer_says_whether_it_was_live() {
        use ReleaseOutcome::*;
        assert_eq!(run(&[LIVE]), (Released, vec![0], None));
        assert_eq!(run(&[EXPIRED]), (Absent(Absence::Expired), vec![0], None));
        assert_eq!(run(&[]), (Absent(Absence::NotFound), vec![], None));
    }

    #[test]
    fn expired_duplicates_go_and_live_ones_stay() {
        use ReleaseOutcome::*;
        assert_eq!(run(&[EXPIRED, LIVE]), (Released, vec![0, 1], Some((1, 1))));
        assert_eq!(
            run(&[EXPIRED, EXPIRED]),
            (Absent(Absence::Expired), vec![0, 1], Some((0, 2)))
        );
        assert_eq!(
            run(&[LIVE, EXPIRED, LIVE]),
            (Absent(Absence::NotFound), vec![], Some((2, 1)))
        );
    }

    #[test]
    fn a_document_of_another_owner_is_no_match() {
        let another = held("0", &LockId::generate().unwrap(), LIVE);
        let lock_id = LockId::generate().unwrap();
        let decision = decided(slice::from_ref(&lock_id), vec![another]);
        let absent = ReleaseOutcome::Absent(Absence::NotFound);
        assert_eq!(decision.answer[..], [absent]);
        assert!(decision.writes.is_empty() && decision.warnings.is_empty());
    }

    #[test]
    fn each_is_released_for_itself_and_once() {
        let lock_ids = [(); 3].map(|()| LockId::generate().unwrap());
        let [first, second, _] = &lock_ids;
        let found = [(second, EXPIRED), (first, LIVE)];
        let found = found.map(|(lock_id, end)| held(lock_id.as_str(), lock_id, end));
        let asked = [&lock_ids[..], slice::from_ref(first)].concat();
        let decision = decided(&asked, found.into());
        let absent = ReleaseOutcome::Absent;
        assert_eq!(
            decision.answer[..],
            [
                ReleaseOutcome::Released,
                absent(Absence::Expired),
                absent(Absence::NotFound),
                absent(Absence::NotFound),
            ]
        );
        let deleted = decision.writes.iter().map(|write| match write {
            Write::DeleteLock { document_id } => document_id.as_str(),
            _ => panic!("release only deletes"),
        });
        let ids = [first, second].map(LockId::as_str);
        assert_eq!(deleted.collect::<Vec<_>>(), ids);
    }
}
