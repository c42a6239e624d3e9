use rusqlite::OptionalExtension;

use super::group;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::time::is_held;

const DELETE: &str = include_str!("force_release.sql");

/// Frees `key`, whoever holds or shares it. Gives whether somebody did. The fence counter stays.
pub(in crate::sqlite) fn force_release(store: &Store, key: &Key) -> Result<bool, Error> {
    let lock_key = KEYS.lock_key(key)?;
    let now_ms = store.now_ms();
    let expires_at_ms: Option<i64> = store
        .connection()
        .prepare_cached(DELETE)
        .and_then(|mut delete| delete.query_one([&lock_key], |row| row.get(0)).optional())
        .map_err(from_sqlite)?;
    if let Some(was) = expires_at_ms {
        store.has_freed(&lock_key);
        let connection = store.connection();
        // With a group, all its readers have lost the key. With one reader, only that one has.
        let followed = group::clear(connection, &lock_key)
            .and_then(|()| group::follow(store, &lock_key, was, None, now_ms));
        followed.map_err(from_sqlite)?;
    }
    Ok(expires_at_ms.is_some_and(|at| is_held(at, now_ms)))
}
