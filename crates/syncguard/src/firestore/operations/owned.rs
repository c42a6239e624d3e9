//! Finds the lock with a lock id: the first step of release and extend.

use super::group;
use crate::asking::outcome::Absence;
use crate::firestore::decision::{Warning, Write};
use crate::firestore::documents::LockState;
use crate::values::hash::hash_key;
use crate::values::lock_id::LockId;

/// What the documents mean that a query for a lock id has found.
pub(super) struct Owned<'a> {
    /// The one live lock.
    pub(super) lock: Result<&'a LockState, Absence>,
    /// Deletes the expired ones.
    pub(super) cleanup: Vec<Write>,
    pub(super) warning: Option<Warning>,
}

/// Finds the live lock that `lock_id` owns among `found`. Nobody owns that of a group. Checks the ownership again, because the answer of an index
/// is no proof (docs/format.md, "Ownership").
pub(super) fn owned<'a>(lock_id: &LockId, found: &'a [LockState], now_ms: i64) -> Owned<'a> {
    let (live, expired): (Vec<_>, Vec<_>) = found
        .iter()
        .filter(|lock| lock.lock_id == lock_id.as_str() && !lock.is_group())
        .partition(|lock| lock.is_live(now_ms));
    let warning = (live.len() + expired.len() > 1).then(|| Warning::DuplicateLockId {
        lock_id_hash: hash_key(lock_id.as_str()),
        live: live.len(),
        expired: expired.len(),
    });
    let lock = match (live.as_slice(), expired.as_slice()) {
        ([lock], _) => Ok(*lock),
        ([], [_, ..]) => Err(Absence::Expired),
        // Nobody can tell which of several live locks is the caller's, so none is touched.
        _ => Err(Absence::NotFound),
    };
    // Nobody needs an expired lock: any acquisition would overwrite it.
    let cleanup = match live.as_slice() {
        [] | [_] => expired.into_iter().map(delete).collect(),
        _ => Vec::new(),
    };
    Owned {
        lock,
        cleanup,
        warning,
    }
}

/// Deletes that lock.
pub(super) fn delete(lock: &LockState) -> Write {
    group::delete(&lock.document_id)
}
