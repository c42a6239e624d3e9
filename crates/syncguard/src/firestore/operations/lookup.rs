//! Looks up who holds a lock.

use super::owned::owned;
use crate::asking::inspection::LockRecord;
use crate::firestore::decision::Decision;
use crate::firestore::documents::{LockDocument, LockState};
use crate::text::error::Error;
use crate::values::lock_id::LockId;

/// The live lock on a key. `lock` is its document, if there is one, `now_ms` the time before it was read.
pub(in crate::firestore) fn decide_by_key(
    lock: Option<LockDocument>,
    now_ms: i64,
) -> Option<LockRecord> {
    let record = lock?.into_record(now_ms);
    record.is_live().then_some(record)
}

/// The live lock that `lock_id` owns. `found` are all documents with this `lockId`, `now_ms` is the time before they
/// were read, and `document` gives the complete document with an id. Decides no writes.
///
/// # Errors
/// As `document`.
pub(in crate::firestore) fn decide_by_lock_id(
    lock_id: &LockId,
    found: &[LockState],
    document: impl FnOnce(&str) -> Result<LockDocument, Error>,
    now_ms: i64,
) -> Result<Decision<Option<LockRecord>>, Error> {
    let owned = owned(lock_id, found, now_ms);
    let record = match owned.lock {
        Ok(lock) => Some(document(&lock.document_id)?.into_record(now_ms)),
        Err(_) => None,
    };
    Ok(Decision {
        answer: record,
        writes: Vec::new(),
        warnings: owned.warning.into_iter().collect(),
    })
}
