//! Releases the lock on a key, whoever holds it.

use super::group;
use super::owned::delete;
use crate::firestore::decision::Decision;
use crate::firestore::ids::group_of;
use crate::firestore::progress::Progress;
use crate::firestore::transport::Documents;
use crate::text::error::Error;

/// Releases the lock with this document id, whoever holds it. If it is that of those who share a key, they have lost it; if it is
/// that of one of them, the others have not. `now_ms` is the time of the attempt. The answer is whether somebody held it.
pub(in crate::firestore) fn decide(
    found: &Documents,
    id: &str,
    now_ms: i64,
) -> Result<Progress<bool>, Error> {
    let Some(lock) = found.lock_of(id)?.filter(|lock| lock.is_live(now_ms)) else {
        return Ok(Decision::answer(false).into());
    };
    let mut decision = Decision::answer(group::has(found, id, now_ms)?);
    decision.writes.push(delete(&lock));
    if let Some(group) = group_of(id) {
        match group::tidy(found, &group, &[id], now_ms)? {
            Ok(writes) => decision.writes.extend(writes),
            Err(what) => return Ok(Progress::Read(vec![what])),
        }
    }
    Ok(decision.into())
}
