//! Looks up who holds a lock.

use super::group;
use super::owned::owned;
use crate::asking::inspection::LockRecord;
use crate::firestore::decision::Decision;
use crate::firestore::progress::Progress;
use crate::firestore::transport::Documents;
use crate::text::error::Error;
use crate::values::lock_id::LockId;

/// The live lock with this document id; of those who share a key, what they have together. `now_ms` is the time before it was read.
///
/// # Errors
/// `Internal` for a malformed document.
pub(in crate::firestore) fn decide_by_key(
    found: &Documents,
    id: &str,
    now_ms: i64,
) -> Result<Progress<Option<LockRecord>>, Error> {
    let record = match group::is_held(found, id, now_ms)? {
        Ok(true) => Some(found.lock_document_of(id)?.into_record(now_ms)),
        Ok(false) => None,
        Err(what) => return Ok(Progress::Read(vec![what])),
    };
    Ok(Decision::answer(record).into())
}

/// The live lock that `lock_id` owns. `found` are all documents with this `lockId`, and the lock of the group that it belongs to;
/// `now_ms` is the time before they were read. Decides no writes.
///
/// # Errors
/// `Internal` for a malformed document.
pub(in crate::firestore) fn decide_by_lock_id(
    lock_id: &LockId,
    found: &Documents,
    now_ms: i64,
) -> Result<Progress<Option<LockRecord>>, Error> {
    let groups = group::groups(found, std::slice::from_ref(lock_id))?;
    let unread = group::unread(found, &groups, false);
    if !unread.is_empty() {
        return Ok(Progress::Read(unread));
    }
    let locks = found.locks()?;
    let owned = owned(lock_id, &locks, now_ms);
    let record = match owned.lock {
        Ok(lock) if group::has(found, &lock.document_id, now_ms)? => {
            let lock = found.lock_document_of(&lock.document_id)?;
            Some(lock.into_record(now_ms))
        }
        _ => None,
    };
    Ok(Progress::Decided(Decision {
        answer: record,
        writes: Vec::new(),
        warnings: owned.warning.into_iter().collect(),
    }))
}
