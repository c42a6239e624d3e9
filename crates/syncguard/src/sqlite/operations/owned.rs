//! Finds the lock with a lock id: the first step of release and extend.

use rusqlite::OptionalExtension;

use super::group;
use crate::asking::outcome::Absence;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::is_held;

const READ: &str = include_str!("owned.sql");
const DELETE: &str = include_str!("release.sql");

/// A lock that a lock id owns.
pub(super) struct OwnedRow {
    pub(super) lock_key: String,
    pub(super) expires_at_ms: i64,
}

/// The live lock that `lock_id` owns. If it has expired, or is that of a reader whose group is gone, it is deleted. Nobody owns a group.
pub(super) fn owned(
    store: &Store,
    lock_id: &LockId,
    now_ms: i64,
) -> Result<Result<OwnedRow, Absence>, Error> {
    let row: Option<(String, String, i64, String)> = store
        .connection()
        .prepare_cached(READ)
        .and_then(|mut read| {
            read.query_one([lock_id.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()
        })
        .map_err(from_sqlite)?;
    let Some((lock_key, owner_id, expires_at_ms, fence)) = row else {
        return Ok(Err(Absence::NotFound));
    };
    if owner_id != lock_id.as_str() || lock_id.is_group_of(&lock_key) {
        return Ok(Err(Absence::NotFound));
    }
    if !is_held(expires_at_ms, now_ms) {
        delete(store, &lock_key, lock_id)?;
        return Ok(Err(Absence::Expired));
    }
    if !group::has(store.connection(), &lock_key, &fence, now_ms).map_err(from_sqlite)? {
        delete(store, &lock_key, lock_id)?;
        return Ok(Err(Absence::NotFound));
    }
    Ok(Ok(OwnedRow {
        lock_key,
        expires_at_ms,
    }))
}

/// Frees the lock that `lock_id` owns. The fence counter stays.
pub(super) fn free(
    store: &Store,
    owned: &OwnedRow,
    lock_id: &LockId,
    now_ms: i64,
) -> Result<(), Error> {
    delete(store, &owned.lock_key, lock_id)?;
    group::follow(store, &owned.lock_key, owned.expires_at_ms, None, now_ms).map_err(from_sqlite)
}

/// Deletes the lock that `lock_id` owns.
fn delete(store: &Store, lock_key: &str, lock_id: &LockId) -> Result<(), Error> {
    store
        .connection()
        .prepare_cached(DELETE)
        .and_then(|mut delete| delete.execute([lock_key, lock_id.as_str()]))
        .map_err(from_sqlite)?;
    store.has_freed(lock_key);
    Ok(())
}
