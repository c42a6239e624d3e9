use rusqlite::OptionalExtension;

use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::time::is_held;

const DELETE: &str = include_str!("force_release.sql");

/// Frees `key` whoever holds it; `true` if somebody did. The fence counter stays.
pub(in crate::sqlite) fn force_release(store: &Store, key: &Key) -> Result<bool, Error> {
    let lock_key = KEYS.lock_key(key)?;
    let now_ms = store.now_ms();
    let expires_at_ms: Option<i64> = store
        .connection()
        .prepare_cached(DELETE)
        .and_then(|mut delete| delete.query_one([&lock_key], |row| row.get(0)).optional())
        .map_err(from_sqlite)?;
    if expires_at_ms.is_some() {
        store.has_freed(&lock_key);
    }
    Ok(expires_at_ms.is_some_and(|at| is_held(at, now_ms)))
}
