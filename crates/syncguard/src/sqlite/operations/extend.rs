use rusqlite::{Connection, params};

use super::owned::owned;
use crate::asking::outcome::ExtendOutcome;
use crate::asking::request::Extension;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::batch::Batch;

const UPDATE: &str = include_str!("extend.sql");

/// Makes locks end later, all or none.
pub(in crate::sqlite) fn extend(
    store: &Store,
    extension: &Extension,
) -> Result<ExtendOutcome, Error> {
    let now_ms = store.now_ms();
    let mut lock_keys: Batch<String> = Batch::new();
    for (lock, lock_id) in extension.lock_ids.iter().enumerate() {
        match owned(store, lock_id, now_ms)? {
            Err(absence) => return Ok(ExtendOutcome::Absent { lock, absence }),
            Ok(lock_key) => lock_keys.push(lock_key),
        }
    }
    let expires_at_ms = now_ms + extension.ttl.as_millis();
    let update = |connection: &Connection| {
        let mut update = connection.prepare_cached(UPDATE)?;
        for (lock_key, lock_id) in lock_keys.iter().zip(&extension.lock_ids) {
            update.execute(params![lock_key, lock_id.as_str(), expires_at_ms])?;
        }
        Ok(())
    };
    match lock_keys.len() {
        // One statement is whole in any case.
        1 => update(store.connection()).map_err(from_sqlite)?,
        _ => store.whole(update)?,
    }
    Ok(ExtendOutcome::Extended { expires_at_ms })
}
