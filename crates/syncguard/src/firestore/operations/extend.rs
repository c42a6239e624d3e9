//! Extends locks.

use super::group;
use super::owned::{Owned, owned};
use crate::asking::outcome::{Absence, ExtendOutcome};
use crate::asking::request::Extension;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::progress::Progress;
use crate::firestore::transport::Documents;
use crate::text::error::Error;

/// Makes the locks that the lock ids own end a TTL from now, all or none. `found` are all documents with these `lockId`s, and the
/// locks of the groups that they belong to; `now_ms` is the time of the attempt.
pub(in crate::firestore) fn decide(
    extension: &Extension,
    found: &Documents,
    now_ms: i64,
) -> Result<Progress<ExtendOutcome>, Error> {
    let groups = group::groups(found, &extension.lock_ids)?;
    let unread = group::unread(found, &groups, false);
    if !unread.is_empty() {
        return Ok(Progress::Read(unread));
    }
    let expires_at_ms = now_ms.saturating_add(extension.ttl.as_millis());
    let mut decision = Decision::answer(ExtendOutcome::Extended { expires_at_ms });
    let mut extended = Vec::new();
    let mut extend = |document_id: String, expires_at_ms| {
        extended.push(Write::ExtendLock {
            document_id,
            expires_at_ms,
        });
    };
    let locks = found.locks()?;
    for (id, _) in &groups {
        if let Some(group) = group::live(found, id, now_ms)?
            && group.expires_at_ms < expires_at_ms
        {
            extend(id.clone(), group::group_end(expires_at_ms, extension.ttl));
        }
    }
    for (lock, lock_id) in extension.lock_ids.iter().enumerate() {
        let Owned {
            lock: owned,
            cleanup,
            warning,
        } = owned(lock_id, &locks, now_ms);
        decision.writes.extend(cleanup);
        decision.warnings.extend(warning);
        let absence = match owned {
            Ok(owned) => {
                let id = &owned.document_id;
                if group::has(found, id, now_ms)? {
                    extend(id.clone(), expires_at_ms);
                    continue;
                }
                decision.writes.push(group::delete(id));
                Absence::NotFound
            }
            Err(absence) => absence,
        };
        decision.answer = ExtendOutcome::Absent { lock, absence };
        return Ok(decision.into());
    }
    decision.writes.extend(extended);
    Ok(decision.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::transport::Document;
    use crate::firestore::transport::tests::held;
    use crate::values::lock_id::LockId;
    use crate::values::ttl::Ttl;

    const NOW: i64 = 1_700_000_000_000;

    fn decided(extension: &Extension, locks: Vec<Document>) -> Decision<ExtendOutcome> {
        let found = Documents {
            locks,
            ..Documents::default()
        };
        match decide(extension, &found, NOW).unwrap() {
            Progress::Decided(decision) => decision,
            Progress::Read(_) => panic!("nobody shares a key"),
        }
    }

    #[test]
    fn only_a_live_lock_gets_a_new_end() {
        let lock_id = LockId::generate().unwrap();
        let extension = Extension::new([lock_id.clone()].into(), Ttl::DEFAULT);
        let found = |expires_at_ms| held("k", &lock_id, expires_at_ms);
        let decision = decided(&extension, vec![found(NOW - 999)]);
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
            (
                vec![found(NOW), held("l", &lock_id, NOW)],
                Absence::NotFound,
                0,
            ),
        ] {
            let decision = decided(&extension, locks);
            assert_eq!(decision.answer, ExtendOutcome::absent(absence));
            let deletes = |write: &Write| matches!(write, Write::DeleteLock { .. });
            assert!(decision.writes.iter().all(deletes));
            assert_eq!(decision.writes.len(), deleted);
        }
    }

    #[test]
    fn if_one_is_gone_none_gets_a_new_end() {
        let lock_ids = [(); 3].map(|()| LockId::generate().unwrap());
        let found = |at: usize, expires_at_ms| held(&at.to_string(), &lock_ids[at], expires_at_ms);
        let several = Extension::new(lock_ids.to_vec().into(), Ttl::DEFAULT);
        let all = vec![found(2, NOW), found(0, NOW), found(1, NOW)];
        let decision = decided(&several, all);
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
            let decision = decided(&several, left);
            let lock = 1;
            assert_eq!(decision.answer, ExtendOutcome::Absent { lock, absence });
            let deletes = |write: &Write| matches!(write, Write::DeleteLock { .. });
            assert!(decision.writes.iter().all(deletes));
            assert_eq!(decision.writes.len(), deleted);
        }
    }
}
