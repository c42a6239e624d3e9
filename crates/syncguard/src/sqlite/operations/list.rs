use std::sync::LazyLock;

use rusqlite::params;

use super::labels;
use super::lookup::Columns;
use crate::asking::inspection::{LockPage, PageRequest};
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::time::held_after_ms;

static LIST: LazyLock<String> = LazyLock::new(|| labels::write_into(include_str!("list.sql")));

/// The live locks in the order of their names.
pub(in crate::sqlite) fn list(store: &Store, page: &PageRequest) -> Result<LockPage, Error> {
    let limit = page.checked_limit()?;
    // No name is empty.
    let after = page.after.as_deref().unwrap_or_default();
    // Taken before the read, as for a look-up.
    let now_ms = store.now_ms();
    let mut read = store
        .connection()
        .prepare_cached(&LIST)
        .map_err(from_sqlite)?;
    let rows = read
        .query_map(
            params![
                after,
                held_after_ms(now_ms),
                i64::try_from(limit).unwrap_or(i64::MAX)
            ],
            |row| Ok((Columns::read(row)?, row.get::<_, String>("key")?)),
        )
        .map_err(from_sqlite)?;
    let mut found = LockPage::default();
    let (mut last, mut rows_read) = (None, 0);
    for row in rows {
        let (columns, name) = row.map_err(from_sqlite)?;
        last = Some(name);
        rows_read += 1;
        let is_held = columns.is_of_live_group(store, now_ms)?;
        let record = columns.into_record(now_ms)?;
        // Readers are listed, and their group is not.
        if is_held && !record.is_group() {
            found.locks.push(record);
        }
    }
    found.next = last.filter(|_| rows_read == limit);
    Ok(found)
}
