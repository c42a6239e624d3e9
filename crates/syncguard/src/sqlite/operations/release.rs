use super::mark;
use super::owned::{free, owned};
use crate::asking::outcome::{Absence, ReleaseOutcome};
use crate::asking::request::Finish;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::due::DoneMark;
use crate::values::lock_id::LockId;

/// Frees the locks that these lock ids own, each for itself. The fence counters stay.
pub(in crate::sqlite) fn release(
    store: &Store,
    lock_ids: &[LockId],
) -> Result<Batch<ReleaseOutcome>, Error> {
    let now_ms = store.now_ms();
    let released = lock_ids.iter().map(|lock_id| {
        Ok(match owned(store, lock_id, now_ms)? {
            Err(absence) => ReleaseOutcome::Absent(absence),
            Ok(owned) => {
                free(store, &owned, lock_id, now_ms)?;
                ReleaseOutcome::Released
            }
        })
    });
    released.collect()
}

/// Frees the lock that this lock id owns on the key that is done, and stores that it is.
pub(in crate::sqlite) fn finish(
    store: &Store,
    lock_id: &LockId,
    Finish { key, due }: &Finish,
) -> Result<ReleaseOutcome, Error> {
    let name = mark::name_of(key)?;
    let lock_key = KEYS.lock_key(key)?;
    let mark = mark::read(store, &name)?;
    let now_ms = store.now_ms();
    match owned(store, lock_id, now_ms)? {
        Ok(owned) if owned.lock_key == lock_key => {
            // First, so that nothing is freed if it cannot be stored.
            if mark.is_none_or(|mark| due.is_after(&mark.due)) {
                mark::write(store, &name, due, lock_id, key)?;
            }
            free(store, &owned, lock_id, now_ms)?;
            Ok(ReleaseOutcome::Released)
        }
        owned => {
            let is_own = |mark: &DoneMark| mark.due == *due && mark.lock_id == *lock_id;
            Ok(match mark.is_some_and(|mark| is_own(&mark)) {
                // By a try before, whose answer was lost.
                true => ReleaseOutcome::Released,
                false => ReleaseOutcome::Absent(owned.err().unwrap_or(Absence::NotFound)),
            })
        }
    }
}
