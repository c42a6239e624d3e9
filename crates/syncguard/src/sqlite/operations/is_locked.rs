use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::group;
use super::slots::held_slots;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::key::{GATE, Key, split_readers, split_slot};
use crate::values::time::is_held;

const READ: &str = include_str!("is_locked.sql");
const CLEAN_UP: &str = include_str!("is_locked_cleanup.sql");

/// How long after its expiry a lock may be cleaned up (docs/format.md, "Clean-up of expired locks").
const CLEANUP_GUARD_MS: i64 = 2000;

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum KeyState {
    Locked,
    Free,
    /// Free, with a row left over that may be deleted.
    LeftOver,
}

/// Whether somebody holds `key`.
pub(in crate::sqlite) fn is_locked(store: &Store, key: &Key) -> Result<KeyState, Error> {
    let lock_key = KEYS.lock_key(key)?;
    // Taken before the read: with a later time, a lock that was extended just after the read would look expired.
    let now_ms = store.now_ms();
    let expires_at_ms = expiry(store.connection(), &lock_key).map_err(from_sqlite)?;
    Ok(match expires_at_ms {
        None => KeyState::Free,
        Some(at) if is_held(at, now_ms) => KeyState::Locked,
        Some(at) if at < now_ms - CLEANUP_GUARD_MS => KeyState::LeftOver,
        Some(_) => KeyState::Free,
    })
}

/// Those of these storage keys that are free, all at one moment. The name of a slot stands for this slot and all before it: it is free if one of
/// them is. The name of all readers of a key is free if a reader could join.
pub(in crate::sqlite) fn free_among(
    store: &Store,
    lock_keys: &BTreeSet<Arc<str>>,
) -> Result<Vec<Arc<str>>, Error> {
    let now_ms = store.now_ms();
    store.whole(|connection| {
        let mut free = Vec::new();
        for lock_key in lock_keys {
            let is_free = match (split_slot(lock_key), split_readers(lock_key)) {
                // The gate is no slot. A waiter for it wants nothing else.
                (Some((slots_key, count)), _) if count != GATE => {
                    held_slots(connection, slots_key, count, &[], now_ms)?.is_one_free()
                }
                (None, Some(lock_key)) => group::is_open(connection, lock_key, now_ms)?,
                _ => {
                    let end = expiry(connection, lock_key)?;
                    !end.is_some_and(|at| is_held(at, now_ms))
                }
            };
            if is_free {
                free.push(Arc::clone(lock_key));
            }
        }
        Ok(free)
    })
}

fn expiry(connection: &Connection, lock_key: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(READ)?
        .query_one([lock_key], |row| row.get(0))
        .optional()
}

/// Deletes the row of a lock that expired long enough ago; never the fence counter.
pub(in crate::sqlite) fn clean_up(store: &Store, key: &Key) -> Result<(), Error> {
    let lock_key = KEYS.lock_key(key)?;
    let before_ms = store.now_ms() - CLEANUP_GUARD_MS;
    let deleted = store
        .connection()
        .prepare_cached(CLEAN_UP)
        .and_then(|mut delete| delete.execute(params![lock_key, before_ms]))
        .map_err(from_sqlite)?;
    if deleted > 0 {
        store.has_freed(&lock_key);
    }
    Ok(())
}
