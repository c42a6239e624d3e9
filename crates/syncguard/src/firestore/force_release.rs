//! Freeing a key, whoever holds it.

use super::decision::Decision;
use super::documents::LockState;
use super::owned::delete;

/// Frees a key whoever holds it: given the lock's document and the time of the attempt. The answer is
/// whether somebody held it.
pub fn decide(lock: Option<&LockState>, now_ms: i64) -> Decision<bool> {
    match lock {
        Some(lock) if lock.is_live(now_ms) => Decision {
            answer: true,
            writes: vec![delete(lock)],
            warning: None,
        },
        _ => Decision::answer(false),
    }
}
