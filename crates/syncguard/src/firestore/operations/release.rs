//! Releases a lock.

use super::owned::{Owned, delete, owned};
use crate::firestore::decision::Decision;
use crate::firestore::documents::LockState;
use crate::lock_id::LockId;
use crate::outcome::ReleaseOutcome;

/// Releases the lock that `lock_id` owns. `found` are all documents with this `lockId`, `now_ms` is the time of the
/// attempt.
pub fn decide(lock_id: &LockId, found: &[LockState], now_ms: i64) -> Decision<ReleaseOutcome> {
    let Owned {
        lock,
        mut cleanup,
        warning,
    } = owned(lock_id, found, now_ms);
    let answer = match lock {
        Ok(lock) => {
            cleanup.push(delete(lock));
            ReleaseOutcome::Released
        }
        Err(absence) => ReleaseOutcome::Absent(absence),
    };
    Decision {
        answer,
        writes: cleanup,
        warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::decision::{Warning, Write};
    use crate::outcome::Absence;

    const NOW: i64 = 1_700_000_000_000;
    const LIVE: i64 = NOW + 1;
    const EXPIRED: i64 = NOW - 1000;

    /// Releases one lock id of which there are documents with these ends; which are deleted?
    fn run(ends: &[i64]) -> (ReleaseOutcome, Vec<usize>, Option<(usize, usize)>) {
        let lock_id = LockId::generate().unwrap();
        let found: Vec<_> = ends
            .iter()
            .enumerate()
            .map(|(number, expires_at_ms)| LockState {
                document_id: number.to_string(),
                lock_id: lock_id.as_str().to_owned(),
                expires_at_ms: *expires_at_ms,
            })
            .collect();
        let decision = decide(&lock_id, &found, NOW);
        let mut deleted: Vec<_> = decision
            .writes
            .iter()
            .map(|write| match write {
                Write::DeleteLock { document_id } => document_id.parse().unwrap(),
                _ => panic!("release only deletes"),
            })
            .collect();
        deleted.sort_unstable();
        let warning = decision.warning.map(|warning| {
            let Warning::DuplicateLockId {
                lock_id_hash,
                live,
                expired,
            } = warning;
            assert_eq!(lock_id_hash, crate::hash_key(lock_id.as_str()));
            (live, expired)
        });
        (decision.answer, deleted, warning)
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
        let another = LockState {
            document_id: "0".into(),
            lock_id: LockId::generate().unwrap().as_str().to_owned(),
            expires_at_ms: LIVE,
        };
        let decision = decide(&LockId::generate().unwrap(), &[another], NOW);
        assert_eq!(decision.answer, ReleaseOutcome::Absent(Absence::NotFound));
        assert!(decision.writes.is_empty() && decision.warning.is_none());
    }
}
