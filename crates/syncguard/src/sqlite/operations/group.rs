//! The group of a key: the lock that all its readers have together. It is an ordinary lock, whose lock id follows from its name. Each reader has
//! a lock of its own as well, and the group ends with the last of them: whatever changes the end of a reader's lock changes that of the
//! group in the same transaction.

use std::sync::LazyLock;

use rusqlite::{Connection, OptionalExtension, params};

use super::labels;
use crate::asking::granting::FoundLock;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::fence::Fence;
use crate::values::key::{gate_name, readers_range, split_reader};
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::{held_after_ms, is_held};

static READ: LazyLock<String> = LazyLock::new(|| labels::write_into(include_str!("group.sql")));
const READERS: &str = include_str!("group_readers.sql");
const RAISE: &str = include_str!("group_raise.sql");
const END: &str = include_str!("group_end.sql");
const CLEAR: &str = include_str!("group_clear.sql");
const DELETE: &str = include_str!("release.sql");

/// What readers need to know of a lock that is there.
pub(super) struct GroupRow {
    lock_id: String,
    pub(super) expires_at_ms: i64,
    pub(super) fence: String,
    labels: Labels,
}

impl GroupRow {
    /// Whether this is the group of `lock_key`.
    pub(super) fn is_group(&self, lock_key: &str) -> bool {
        is_group_id(&self.lock_id, lock_key)
    }
}

/// The lock of that name, if somebody holds it.
pub(super) fn held(
    connection: &Connection,
    lock_key: &str,
    now_ms: i64,
) -> rusqlite::Result<Option<GroupRow>> {
    let row = connection
        .prepare_cached(&READ)?
        .query_one([lock_key], |row| {
            Ok(GroupRow {
                lock_id: row.get(0)?,
                expires_at_ms: row.get(1)?,
                fence: row.get(2)?,
                labels: labels::read(row),
            })
        })
        .optional()?;
    Ok(row.filter(|row| is_held(row.expires_at_ms, now_ms)))
}

/// Whether the group of a lock lets it be held. A lock that is no reader's has none, and is. A reader's is, if the group on its key is held and
/// has the same fence: another fence is that of a later group.
pub(super) fn has(
    connection: &Connection,
    name: &str,
    fence: &str,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let Some((lock_key, _)) = split_reader(name) else {
        return Ok(true);
    };
    let row = held(connection, lock_key, now_ms)?;
    Ok(row.is_some_and(|row| row.is_group(lock_key) && row.fence == fence))
}

/// When the lock of the last reader ends. `None` if no reader is left.
pub(super) fn readers_end(
    connection: &Connection,
    lock_key: &str,
    now_ms: i64,
) -> rusqlite::Result<Option<i64>> {
    let [from, before] = readers_range(lock_key);
    connection.prepare_cached(READERS)?.query_one(
        params![from, before, held_after_ms(now_ms), lock_key],
        |row| row.get(0),
    )
}

/// What is there for a reader that wants to share the key. `reader` is the name that its own lock gets.
pub(super) fn found(
    store: &Store,
    claim: &Claim,
    reader: &str,
    counter: i64,
    now_ms: i64,
) -> Result<FoundLock, Error> {
    let lock_key = KEYS.lock_key(&claim.key)?;
    let gate_key = KEYS.lock_key(&claim.key.gate())?;
    let read = |name: &str| held(store.connection(), name, now_ms).map_err(from_sqlite);
    let group = read(&lock_key)?;
    let fence = |row: &GroupRow| Fence::parse(&row.fence);
    let in_the_way = |row: GroupRow| FoundLock {
        expires_at_ms: Some(row.expires_at_ms),
        labels: row.labels,
        ..FoundLock::free(counter)
    };
    if let Some(own) = read(reader)?
        && let Some(group) = &group
        && group.is_group(&lock_key)
        && group.fence == own.fence
    {
        return Ok(FoundLock {
            own_fence: Some(fence(&own)?),
            ..in_the_way(own)
        });
    }
    match group {
        Some(row) if !row.is_group(&lock_key) => return Ok(in_the_way(row)),
        _ => {}
    }
    Ok(match (read(&gate_key)?, group) {
        (Some(gate), _) => in_the_way(gate),
        (None, Some(row)) => FoundLock {
            joins: Some(fence(&row)?),
            ..FoundLock::free(counter)
        },
        (None, None) => FoundLock::free(counter),
    })
}

/// Whether a reader could join: nobody has the key alone, and nobody has its gate.
pub(super) fn is_open(
    connection: &Connection,
    lock_key: &str,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let is_gated = held(connection, &gate_name(lock_key), now_ms)?.is_some();
    let row = held(connection, lock_key, now_ms)?;
    Ok(!is_gated && row.is_none_or(|row| row.is_group(lock_key)))
}

/// Lets the group end at this time, unless it ends later.
pub(super) fn raise(
    connection: &Connection,
    lock_key: &str,
    expires_at_ms: i64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(RAISE)?
        .execute(params![lock_key, expires_at_ms])
        .map(drop)
}

/// Deletes the locks of all readers: they are left of an earlier group.
pub(super) fn clear(connection: &Connection, lock_key: &str) -> rusqlite::Result<()> {
    forget(connection, lock_key, i64::MAX)
}

/// Deletes the locks of readers that end by `end`.
fn forget(connection: &Connection, lock_key: &str, end: i64) -> rusqlite::Result<()> {
    let [from, before] = readers_range(lock_key);
    let mut delete = connection.prepare_cached(CLEAR)?;
    delete.execute(params![from, before, end]).map(drop)
}

/// Makes the group end with the last of its readers, because the one that ended last has left or ends sooner. Frees the key if no reader is left.
pub(super) fn tidy(store: &Store, lock_key: &str, now_ms: i64) -> rusqlite::Result<()> {
    let (connection, group) = (store.connection(), LockId::group(lock_key));
    forget(connection, lock_key, held_after_ms(now_ms))?;
    if let Some(end) = readers_end(connection, lock_key, now_ms)? {
        let mut update = connection.prepare_cached(END)?;
        if update.execute(params![lock_key, group.as_str(), end])? > 0 {
            // Whoever waits knows a later end.
            store.has_freed(lock_key);
        }
        return Ok(());
    }
    clear(connection, lock_key)?;
    let mut delete = connection.prepare_cached(DELETE)?;
    if delete.execute([lock_key, group.as_str()])? > 0 {
        store.has_freed(lock_key);
    }
    Ok(())
}

/// Adjusts the end of the group to a reader that was to end at `was`. It ends at `end` now, or has left. The other readers are looked at only if
/// it was the one that ended last.
pub(super) fn follow(
    store: &Store,
    reader: &str,
    was: i64,
    end: Option<i64>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let Some((lock_key, _)) = split_reader(reader) else {
        return Ok(());
    };
    let group_end = held(store.connection(), lock_key, now_ms)?.map(|group| group.expires_at_ms);
    match (end, group_end) {
        (_, None) => Ok(()),
        (Some(end), Some(group_end)) if end >= group_end => {
            raise(store.connection(), lock_key, end)
        }
        (_, Some(group_end)) if was < group_end => Ok(()),
        _ => tidy(store, lock_key, now_ms),
    }
}

/// Whether this is the lock id of the group of `lock_key`.
pub(super) fn is_group_id(lock_id: &str, lock_key: &str) -> bool {
    LockId::parse(lock_id).is_ok_and(|lock_id| lock_id.is_group_of(lock_key))
}
