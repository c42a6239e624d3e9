use super::owned::{delete, owned};
use crate::batch::Batch;
use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::ReleaseOutcome;
use crate::sqlite::connection::store::Store;

/// Frees the locks that these lock ids own, each for itself. The fence counters stay.
pub(in crate::sqlite) fn release(
    store: &Store,
    lock_ids: &[LockId],
) -> Result<Batch<ReleaseOutcome>, Error> {
    let now_ms = store.now_ms();
    let released = lock_ids.iter().map(|lock_id| {
        Ok(match owned(store, lock_id, now_ms)? {
            Err(absence) => ReleaseOutcome::Absent(absence),
            Ok(lock_key) => {
                delete(store, &lock_key, lock_id)?;
                ReleaseOutcome::Released
            }
        })
    });
    released.collect()
}
