//! Acquires a lock.

use crate::claim::Claim;
use crate::error::Error;
use crate::fence::Fence;
use crate::firestore::decision::{Decision, Write};
use crate::firestore::documents::{CounterDocument, LockDocument, LockState};
use crate::firestore::ids::DocumentIds;
use crate::outcome::{AcquireOutcome, Grant};
use crate::request::AcquireRequest;
use crate::time::held_for;

/// Takes the lock if nobody holds it. `lock` and `counter` are the documents with the [`DocumentIds`] of the
/// request's key, `complete` gives the whole document of the lock, and `now_ms` is the time of the attempt. The fence
/// limit is checked before any write is decided.
///
/// A live lock that is the request's own comes from a call whose answer was lost. It is given as it was granted, and
/// no second fence is spent on it.
///
/// # Errors
/// `Internal` when the counter has no fence left to give.
pub fn decide(
    ids: &DocumentIds,
    claim: &Claim,
    request: &AcquireRequest,
    lock: Option<&LockState>,
    complete: impl FnOnce() -> Result<LockDocument, Error>,
    counter: Option<&CounterDocument>,
    now_ms: i64,
) -> Result<Decision<AcquireOutcome>, Error> {
    if let Some(lock) = lock.filter(|lock| lock.is_live(now_ms)) {
        if lock.lock_id == claim.lock_id.as_str() {
            return Ok(Decision::answer(AcquireOutcome::one(Grant {
                lock_id: claim.lock_id.clone(),
                slot: None,
                fence: complete()?.fence,
                expires_at_ms: lock.expires_at_ms,
            })));
        }
        let free_in = Some(held_for(lock.expires_at_ms, now_ms));
        return Ok(Decision::answer(AcquireOutcome::Locked {
            claim: 0,
            free_in,
        }));
    }
    let fence = Fence::after(counter.map_or(0, |counter| counter.fence), now_ms)?;
    let expires_at_ms = now_ms.saturating_add(request.ttl.as_millis());
    let lock = LockDocument {
        lock_id: claim.lock_id.clone(),
        expires_at_ms,
        acquired_at_ms: now_ms,
        key: claim.key.clone(),
        fence,
        owner: request.owner.clone(),
    };
    Ok(Decision {
        answer: AcquireOutcome::one(Grant {
            lock_id: claim.lock_id.clone(),
            slot: None,
            fence,
            expires_at_ms,
        }),
        writes: vec![
            Write::SetCounter {
                document_id: ids.counter.clone(),
                fence,
                key: claim.key.clone(),
            },
            Write::SetLock {
                document_id: ids.lock.clone(),
                lock,
            },
        ],
        warning: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;
    use crate::key::Key;
    use crate::ttl::Ttl;

    const NOW: i64 = 1_700_000_000_000;

    fn run(
        expires_at_ms: Option<i64>,
        counter: Option<i64>,
    ) -> Result<Decision<AcquireOutcome>, Error> {
        let key = Key::new("k").unwrap();
        let ids = DocumentIds::of(&key).unwrap();
        let request = AcquireRequest::new(key, Ttl::DEFAULT).unwrap();
        let lock = expires_at_ms.map(|expires_at_ms| LockState {
            document_id: ids.lock.clone(),
            lock_id: "another".into(),
            expires_at_ms,
        });
        let counter = counter.map(|fence| CounterDocument { fence });
        let complete = || panic!("read the whole lock of another");
        decide(
            &ids,
            &request.claims[0],
            &request,
            lock.as_ref(),
            complete,
            counter.as_ref(),
            NOW,
        )
    }

    #[test]
    fn ones_own_lock_is_given_as_it_was_granted() {
        let key = Key::new("k").unwrap();
        let ids = DocumentIds::of(&key).unwrap();
        let request = AcquireRequest::new(key, Ttl::DEFAULT).unwrap();
        let decide_with = |lock: Option<&LockDocument>, counter: i64, now_ms| {
            let state = lock.map(|lock| LockState {
                document_id: ids.lock.clone(),
                lock_id: lock.lock_id.as_str().to_owned(),
                expires_at_ms: lock.expires_at_ms,
            });
            let complete = || Ok(lock.unwrap().clone());
            let counter = CounterDocument { fence: counter };
            decide(
                &ids,
                &request.claims[0],
                &request,
                state.as_ref(),
                complete,
                Some(&counter),
                now_ms,
            )
            .unwrap()
        };
        let first = decide_with(None, 6, NOW);
        let [_, Write::SetLock { lock, .. }] = first.writes.as_slice() else {
            panic!("not acquired");
        };
        let again = decide_with(Some(lock), 7, NOW + 20);
        assert_eq!(again.answer, first.answer);
        assert!(again.writes.is_empty());
        // Once it has ended, it is taken anew.
        let AcquireOutcome::Acquired(grants) = decide_with(Some(lock), 7, NOW + 31_000).answer
        else {
            panic!("not acquired");
        };
        let grant = &grants[0];
        assert_eq!(grant.fence.get(), (NOW + 31_000).unsigned_abs());
    }

    #[test]
    fn a_live_lock_is_left_alone() {
        for (expires_at_ms, free_in_ms) in [(NOW + 1, 1001), (NOW, 1000), (NOW - 999, 1)] {
            let decision = run(Some(expires_at_ms), Some(7)).unwrap();
            let free_in = Some(Duration::from_millis(free_in_ms));
            assert_eq!(
                decision.answer,
                AcquireOutcome::Locked { claim: 0, free_in }
            );
            assert!(decision.writes.is_empty());
        }
    }

    #[test]
    fn a_free_key_is_taken_with_the_next_fence() {
        for (expires_at_ms, counter, fence) in [
            (None, None, NOW),
            (None, Some(0), NOW),
            (Some(NOW - 1000), Some(41), NOW),
            (Some(NOW - 1000), Some(NOW + 41), NOW + 42),
        ] {
            let decision = run(expires_at_ms, counter).unwrap();
            let AcquireOutcome::Acquired(grants) = decision.answer else {
                panic!("not acquired");
            };
            let grant = &grants[0];
            assert_eq!(grant.fence.get(), fence.unsigned_abs());
            assert_eq!(grant.expires_at_ms, NOW + 30_000);
            assert!(matches!(
                decision.writes.as_slice(),
                [Write::SetCounter { fence: counted, .. }, Write::SetLock { lock, .. }]
                    if *counted == grant.fence && lock.fence == grant.fence
                        && lock.acquired_at_ms == NOW && lock.expires_at_ms == grant.expires_at_ms
            ));
        }
    }

    #[test]
    fn an_exhausted_counter_is_an_error_before_any_write() {
        for counter in [900_000_000_000_000, 999_999_999_999_999] {
            let Err(error) = run(None, Some(counter)) else {
                panic!("a fence past the limit");
            };
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
    }
}
