use rusqlite::{OptionalExtension, params};

use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::{from_sqlite, malformed};
use crate::text::error::Error;
use crate::values::due::{DoneMark, Due, MarkChange};
use crate::values::key::Key;
use crate::values::lock_id::LockId;

const READ: &str = include_str!("mark_read.sql");
const WRITE: &str = include_str!("mark_write.sql");
const CLEAR: &str = include_str!("mark_clear.sql");

/// For which period of the key something was done last, before that is changed.
pub(in crate::sqlite) fn mark(
    store: &Store,
    key: &Key,
    change: &MarkChange,
) -> Result<Option<DoneMark>, Error> {
    let name = name_of(key)?;
    let before = read(store, &name)?;
    match change {
        MarkChange::Keep => {}
        MarkChange::Clear => store
            .connection()
            .prepare_cached(CLEAR)
            .and_then(|mut clear| clear.execute([&name]).map(drop))
            .map_err(from_sqlite)?,
        MarkChange::Set(due) => write(store, &name, due, &LockId::generate()?, key)?,
    }
    Ok(before)
}

/// The name under which it is stored: that of the fence counter of the key.
pub(super) fn name_of(key: &Key) -> Result<String, Error> {
    KEYS.fence_key(&KEYS.lock_key(key)?)
}

/// What is stored under that name.
pub(super) fn read(store: &Store, name: &str) -> Result<Option<DoneMark>, Error> {
    let row: Option<(String, i64, String)> = store
        .connection()
        .prepare_cached(READ)
        .and_then(|mut read| {
            let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            read.query_one([name], columns).optional()
        })
        .map_err(from_sqlite)?;
    let Some((due, done_at_ms, lock_id)) = row else {
        return Ok(None);
    };
    Ok(Some(DoneMark {
        due: Due::stored(&due).map_err(|_| malformed())?,
        done_at_ms,
        lock_id: LockId::parse(&lock_id).map_err(|_| malformed())?,
    }))
}

/// Stores that something is done, whatever was before.
pub(super) fn write(
    store: &Store,
    name: &str,
    due: &Due,
    lock_id: &LockId,
    key: &Key,
) -> Result<(), Error> {
    let done_at_ms = store.now_ms();
    store
        .connection()
        .prepare_cached(WRITE)
        .and_then(|mut write| {
            let row = params![
                name,
                due.as_stored(),
                done_at_ms,
                lock_id.as_str(),
                key.as_str()
            ];
            write.execute(row).map(drop)
        })
        .map_err(from_sqlite)
}
