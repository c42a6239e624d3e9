//! Finds the lock with a lock id: the first step of release and extend.

use rusqlite::OptionalExtension;

use crate::asking::outcome::Absence;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::is_held;

const READ: &str = include_str!("owned.sql");
const DELETE: &str = include_str!("release.sql");

/// The storage key of the live lock that `lock_id` owns. An expired one is deleted.
pub(super) fn owned(
    store: &Store,
    lock_id: &LockId,
    now_ms: i64,
) -> Result<Result<String, Absence>, Error> {
    let row: Option<(String, String, i64)> = store
        .connection()
        .prepare_cached(READ)
        .and_then(|mut read| {
            read.query_one([lock_id.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()
        })
        .map_err(from_sqlite)?;
    let Some((lock_key, owner_id, expires_at_ms)) = row else {
        return Ok(Err(Absence::NotFound));
    };
    if owner_id != lock_id.as_str() {
        return Ok(Err(Absence::NotFound));
    }
    if !is_held(expires_at_ms, now_ms) {
        delete(store, &lock_key, lock_id)?;
        return Ok(Err(Absence::Expired));
    }
    Ok(Ok(lock_key))
}

/// Deletes the lock that `lock_id` owns. The fence counter stays.
pub(super) fn delete(store: &Store, lock_key: &str, lock_id: &LockId) -> Result<(), Error> {
    store
        .connection()
        .prepare_cached(DELETE)
        .and_then(|mut delete| delete.execute([lock_key, lock_id.as_str()]))
        .map_err(from_sqlite)?;
    store.has_freed(lock_key);
    Ok(())
}
