//! Releases the lock on a key, whoever holds it.

use super::owned::delete;
use crate::firestore::decision::Decision;
use crate::firestore::documents::LockState;

/// Releases the lock on a key, whoever holds it. `lock` is the lock's document, `now_ms` the time of the attempt. The
/// answer is whether somebody held it.
pub(in crate::firestore) fn decide(lock: Option<&LockState>, now_ms: i64) -> Decision<bool> {
    match lock {
        Some(lock) if lock.is_live(now_ms) => Decision {
            answer: true,
            writes: vec![delete(lock)],
            warnings: Vec::new(),
        },
        _ => Decision::answer(false),
    }
}
