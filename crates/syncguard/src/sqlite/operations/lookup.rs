use std::sync::LazyLock;

use rusqlite::{OptionalExtension, Row};

use super::{group, labels};
use crate::asking::inspection::{LockRecord, Lookup};
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::{from_sqlite, malformed};
use crate::text::error::Error;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

static BY_KEY: LazyLock<String> = LazyLock::new(|| by("key"));
static BY_LOCK_ID: LazyLock<String> = LazyLock::new(|| by("lock_id"));

fn by(column: &str) -> String {
    labels::write_into(include_str!("lookup.sql")).replace("{column}", column)
}

/// The live lock that fits.
pub(in crate::sqlite) fn lookup(
    store: &Store,
    lookup: &Lookup,
) -> Result<Option<LockRecord>, Error> {
    let (sql, name) = match lookup {
        Lookup::Key(key) => (&*BY_KEY, KEYS.lock_key(key)?),
        Lookup::LockId(lock_id) => (&*BY_LOCK_ID, lock_id.as_str().to_owned()),
    };
    // Taken before the read: with a later time, a lock that was extended just after the read would look expired.
    let now_ms = store.now_ms();
    let columns = store
        .connection()
        .prepare_cached(sql)
        .and_then(|mut read| read.query_one([name], Columns::read).optional())
        .map_err(from_sqlite)?;
    let Some(columns) = columns else {
        return Ok(None);
    };
    let held = columns.is_of_live_group(store, now_ms)?;
    let record = columns.into_record(now_ms)?;
    let owned = match lookup {
        Lookup::Key(_) => true,
        Lookup::LockId(lock_id) => record.lock_id == *lock_id,
    };
    Ok((held && owned && record.is_live()).then_some(record))
}

/// The columns of a lock, as all statements that read one select them.
pub(super) struct Columns {
    user_key: String,
    lock_id: String,
    expires_at_ms: i64,
    acquired_at_ms: i64,
    fence: String,
    labels: Labels,
}

impl Columns {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            user_key: row.get(0)?,
            lock_id: row.get(1)?,
            expires_at_ms: row.get(2)?,
            acquired_at_ms: row.get(3)?,
            fence: row.get(4)?,
            labels: labels::read(row),
        })
    }

    /// Whether its group lets it be held: a lock that is no reader's has none.
    pub(super) fn is_of_live_group(&self, store: &Store, now_ms: i64) -> Result<bool, Error> {
        let key = Key::stored(&self.user_key).map_err(|_| malformed())?;
        let name = KEYS.lock_key(&key)?;
        group::has(store.connection(), &name, &self.fence, now_ms).map_err(from_sqlite)
    }

    pub(super) fn into_record(self, read_at_ms: i64) -> Result<LockRecord, Error> {
        let key = Key::stored(&self.user_key).map_err(|_| malformed())?;
        // Without the cause, which would show the text.
        let lock_id = LockId::parse(&self.lock_id).map_err(|_| malformed())?;
        Ok(LockRecord {
            is_shared: key.reader_id().is_some() || is_group(&key, &lock_id),
            key,
            lock_id,
            expires_at_ms: self.expires_at_ms,
            acquired_at_ms: self.acquired_at_ms,
            fence: Fence::parse(&self.fence)?,
            labels: self.labels,
            read_at_ms,
        })
    }
}

/// Whether this is a group.
fn is_group(key: &Key, lock_id: &LockId) -> bool {
    KEYS.lock_key(key)
        .is_ok_and(|name| lock_id.is_group_of(&name))
}
