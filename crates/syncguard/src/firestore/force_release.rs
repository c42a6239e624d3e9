//! Releases the lock on a key, whoever holds it.

use super::decision::Decision;
use super::documents::LockState;
use super::owned::delete;

/// Releases the lock on a key, whoever holds it. `lock` is the lock's document, `now_ms` the time of the attempt. The
/// answer is whether somebody held it.
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
