use super::owned::owned;
use crate::backend::ReleaseOutcome;
use crate::error::Error;
use crate::lock_id::LockId;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;

const DELETE: &str = include_str!("release.sql");

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

pub(super) fn delete(store: &Store, lock_key: &str, lock_id: &LockId) -> Result<(), Error> {
    store
        .connection()
        .prepare_cached(DELETE)
        .and_then(|mut delete| delete.execute([lock_key, lock_id.as_str()]))
        .map_err(from_sqlite)?;
    store.has_freed(lock_key);
    Ok(())
}
