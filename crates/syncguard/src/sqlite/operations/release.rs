use super::owned::{delete, owned};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::ReleaseOutcome;
use crate::sqlite::connection::store::Store;

/// Frees the lock that `lock_id` owns. The fence counter stays.
pub(in crate::sqlite) fn release(store: &Store, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
    match owned(store, lock_id, store.now_ms())? {
        Err(absence) => Ok(ReleaseOutcome::Absent(absence)),
        Ok(lock_key) => {
            delete(store, &lock_key, lock_id)?;
            Ok(ReleaseOutcome::Released)
        }
    }
}
