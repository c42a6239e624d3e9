//! Extends a lock.

use super::owned::{Owned, owned};
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::LockState;
use crate::lock_id::LockId;
use crate::outcome::ExtendOutcome;
use crate::ttl::Ttl;

/// Makes the lock that `lock_id` owns end `ttl` from now. `found` are all documents with this `lockId`, `now_ms` is
/// the time of the attempt.
pub fn decide(
    lock_id: &LockId,
    ttl: Ttl,
    found: &[LockState],
    now_ms: i64,
) -> Decision<ExtendOutcome> {
    let Owned {
        lock,
        mut cleanup,
        warning,
    } = owned(lock_id, found, now_ms);
    let answer = match lock {
        Ok(lock) => {
            let expires_at_ms = now_ms.saturating_add(ttl.as_millis());
            cleanup.push(Write::ExtendLock {
                document_id: lock.document_id.clone(),
                expires_at_ms,
            });
            ExtendOutcome::Extended { expires_at_ms }
        }
        Err(absence) => ExtendOutcome::absent(absence),
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
    use crate::outcome::Absence;

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn only_a_live_lock_gets_a_new_end() {
        let lock_id = LockId::generate().unwrap();
        let found = |expires_at_ms| LockState {
            document_id: "k".into(),
            lock_id: lock_id.as_str().to_owned(),
            expires_at_ms,
        };
        let decision = decide(&lock_id, Ttl::DEFAULT, &[found(NOW - 999)], NOW);
        let end = NOW + 30_000;
        assert_eq!(
            decision.answer,
            ExtendOutcome::Extended { expires_at_ms: end }
        );
        assert!(matches!(
            decision.writes.as_slice(),
            [Write::ExtendLock { document_id, expires_at_ms }] if document_id == "k" && *expires_at_ms == end
        ));
        for (locks, absence, deleted) in [
            (vec![], Absence::NotFound, 0),
            (vec![found(NOW - 1000)], Absence::Expired, 1),
            (vec![found(NOW), found(NOW)], Absence::NotFound, 0),
        ] {
            let decision = decide(&lock_id, Ttl::DEFAULT, &locks, NOW);
            assert_eq!(decision.answer, ExtendOutcome::absent(absence));
            let deletes = |write: &Write| matches!(write, Write::DeleteLock { .. });
            assert!(decision.writes.iter().all(deletes));
            assert_eq!(decision.writes.len(), deleted);
        }
    }
}
