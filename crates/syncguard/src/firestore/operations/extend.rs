//! Extends locks.

use super::owned::{Owned, owned};
use crate::asking::outcome::ExtendOutcome;
use crate::asking::request::Extension;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::LockState;

/// Makes the locks that the lock ids own end a TTL from now, all or none. `found` are all documents with these `lockId`s,
/// `now_ms` is the time of the attempt.
pub(in crate::firestore) fn decide(
    extension: &Extension,
    found: &[LockState],
    now_ms: i64,
) -> Decision<ExtendOutcome> {
    let expires_at_ms = now_ms.saturating_add(extension.ttl.as_millis());
    let mut decision = Decision::answer(ExtendOutcome::Extended { expires_at_ms });
    let mut extended = Vec::new();
    for (lock, lock_id) in extension.lock_ids.iter().enumerate() {
        let Owned {
            lock: owned,
            cleanup,
            warning,
        } = owned(lock_id, found, now_ms);
        decision.writes.extend(cleanup);
        decision.warnings.extend(warning);
        match owned {
            Ok(owned) => extended.push(Write::ExtendLock {
                document_id: owned.document_id.clone(),
                expires_at_ms,
            }),
            Err(absence) => {
                decision.answer = ExtendOutcome::Absent { lock, absence };
                return decision;
            }
        }
    }
    decision.writes.extend(extended);
    decision
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::outcome::Absence;
    use crate::values::lock_id::LockId;
    use crate::values::ttl::Ttl;

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn only_a_live_lock_gets_a_new_end() {
        let lock_id = LockId::generate().unwrap();
        let extension = Extension::new([lock_id.clone()].into(), Ttl::DEFAULT);
        let found = |expires_at_ms| LockState {
            document_id: "k".into(),
            lock_id: lock_id.as_str().to_owned(),
            expires_at_ms,
            labels: crate::values::labels::Labels::default(),
        };
        let decision = decide(&extension, &[found(NOW - 999)], NOW);
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
            let decision = decide(&extension, &locks, NOW);
            assert_eq!(decision.answer, ExtendOutcome::absent(absence));
            let deletes = |write: &Write| matches!(write, Write::DeleteLock { .. });
            assert!(decision.writes.iter().all(deletes));
            assert_eq!(decision.writes.len(), deleted);
        }
    }

    #[test]
    fn if_one_is_gone_none_gets_a_new_end() {
        let lock_ids = [(); 3].map(|()| LockId::generate().unwrap());
        let found = |at: usize, expires_at_ms| LockState {
            document_id: at.to_string(),
            lock_id: lock_ids[at].as_str().to_owned(),
            expires_at_ms,
            labels: crate::values::labels::Labels::default(),
        };
        let several = Extension::new(lock_ids.to_vec().into(), Ttl::DEFAULT);
        let all = [found(2, NOW), found(0, NOW), found(1, NOW)];
        let decision = decide(&several, &all, NOW);
        assert!(matches!(decision.answer, ExtendOutcome::Extended { .. }));
        let extended = decision.writes.iter().map(|write| match write {
            Write::ExtendLock { document_id, .. } => document_id.as_str(),
            _ => panic!("extends only"),
        });
        assert_eq!(extended.collect::<Vec<_>>(), ["0", "1", "2"]);
        for (left, absence, deleted) in [
            (vec![found(0, NOW), found(2, NOW)], Absence::NotFound, 0),
            (
                vec![found(0, NOW), found(1, NOW - 1000), found(2, NOW)],
                Absence::Expired,
                1,
            ),
        ] {
            let decision = decide(&several, &left, NOW);
            let lock = 1;
            assert_eq!(decision.answer, ExtendOutcome::Absent { lock, absence });
            let deletes = |write: &Write| matches!(write, Write::DeleteLock { .. });
            assert!(decision.writes.iter().all(deletes));
            assert_eq!(decision.writes.len(), deleted);
        }
    }
}
