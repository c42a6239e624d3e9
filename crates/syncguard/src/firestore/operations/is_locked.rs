//! Tells whether somebody holds a key.

use super::group;
use super::owned::delete;
use crate::firestore::decision::Decision;
use crate::firestore::documents::LockState;
use crate::firestore::progress::Progress;
use crate::firestore::transport::Documents;
use crate::text::error::Error;
use crate::values::time::TIME_TOLERANCE_MS;

/// How much longer than the tolerance an expired lock stays before it is cleaned up, in milliseconds:
/// clocks differ, and its owner may be extending it (docs/format.md, "Clean-up of expired locks").
const GUARD_MS: i64 = 1000;

/// What a key's document shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::firestore) enum DocumentState {
    /// Somebody holds the key.
    Locked,
    /// Nobody does.
    Free,
    /// Nobody does, and the document is old enough to be deleted.
    LeftOver,
}

/// Whether somebody holds the lock with this document id. `now_ms` is the time before it was read.
pub(in crate::firestore) fn step(
    found: &Documents,
    id: &str,
    now_ms: i64,
) -> Result<Progress<DocumentState>, Error> {
    let state = match decide(found.lock_of(id)?.as_ref(), now_ms) {
        DocumentState::Locked => match group::is_held(found, id, now_ms)? {
            Ok(true) => DocumentState::Locked,
            Ok(false) => DocumentState::Free,
            Err(what) => return Ok(Progress::Read(vec![what])),
        },
        state => state,
    };
    Ok(Decision::answer(state).into())
}

/// Whether somebody holds the key. `lock` is the lock's document, `now_ms` the time before it was read.
fn decide(lock: Option<&LockState>, now_ms: i64) -> DocumentState {
    match lock {
        None => DocumentState::Free,
        Some(lock) if lock.is_live(now_ms) => DocumentState::Locked,
        Some(lock) if now_ms.saturating_sub(lock.expires_at_ms) > TIME_TOLERANCE_MS + GUARD_MS => {
            DocumentState::LeftOver
        }
        Some(_) => DocumentState::Free,
    }
}

/// Deletes a lock that is left over. `lock` is its document, `now_ms` the time of the attempt.
pub(in crate::firestore) fn decide_cleanup(lock: Option<&LockState>, now_ms: i64) -> Decision<()> {
    let writes = match lock {
        Some(found) if decide(lock, now_ms) == DocumentState::LeftOver => vec![delete(found)],
        _ => Vec::new(),
    };
    Decision {
        answer: (),
        writes,
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_left_over_only_after_tolerance_and_guard() {
        let lock = LockState {
            document_id: "k".into(),
            lock_id: "l".into(),
            expires_at_ms: 10_000,
            labels: crate::values::labels::Labels::default(),
        };
        for (now_ms, state) in [
            (9_000, DocumentState::Locked),
            (10_999, DocumentState::Locked),
            (11_000, DocumentState::Free),
            (12_000, DocumentState::Free),
            (12_001, DocumentState::LeftOver),
        ] {
            assert_eq!(decide(Some(&lock), now_ms), state);
            let deleted = decide_cleanup(Some(&lock), now_ms).writes.len();
            assert_eq!(deleted == 1, state == DocumentState::LeftOver, "{now_ms}");
        }
        assert_eq!(decide(None, 0), DocumentState::Free);
    }
}
