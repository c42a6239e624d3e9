use rusqlite::params;

use super::owned::owned;
use crate::error::Error;
use crate::outcome::ExtendOutcome;
use crate::request::Extension;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;

const UPDATE: &str = include_str!("extend.sql");

/// Makes a lock end later.
pub(in crate::sqlite) fn extend(
    store: &Store,
    extension: &Extension,
) -> Result<ExtendOutcome, Error> {
    let lock_id = extension.only()?;
    let now_ms = store.now_ms();
    let lock_key = match owned(store, lock_id, now_ms)? {
        Err(absence) => return Ok(ExtendOutcome::absent(absence)),
        Ok(lock_key) => lock_key,
    };
    let expires_at_ms = now_ms + extension.ttl.as_millis();
    store
        .connection()
        .prepare_cached(UPDATE)
        .and_then(|mut update| update.execute(params![lock_key, lock_id.as_str(), expires_at_ms]))
        .map_err(from_sqlite)?;
    Ok(ExtendOutcome::Extended { expires_at_ms })
}
