use rusqlite::{Connection, params};

use super::group;
use super::owned::{OwnedRow, owned};
use crate::asking::outcome::ExtendOutcome;
use crate::asking::request::Extension;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::key::split_reader;

const UPDATE: &str = include_str!("extend.sql");

/// Makes locks end later, all or none.
pub(in crate::sqlite) fn extend(
    store: &Store,
    extension: &Extension,
) -> Result<ExtendOutcome, Error> {
    let now_ms = store.now_ms();
    let mut locks: Batch<OwnedRow> = Batch::new();
    for (lock, lock_id) in extension.lock_ids.iter().enumerate() {
        match owned(store, lock_id, now_ms)? {
            Err(absence) => return Ok(ExtendOutcome::Absent { lock, absence }),
            Ok(owned) => locks.push(owned),
        }
    }
    let expires_at_ms = now_ms + extension.ttl.as_millis();
    let update = |connection: &Connection| {
        let mut update = connection.prepare_cached(UPDATE)?;
        for (lock, lock_id) in locks.iter().zip(&extension.lock_ids) {
            update.execute(params![lock.lock_key, lock_id.as_str(), expires_at_ms])?;
            let (was, end) = (lock.expires_at_ms, Some(expires_at_ms));
            group::follow(store, &lock.lock_key, was, end, now_ms)?;
        }
        Ok(())
    };
    match locks.as_slice() {
        // One statement is whole in any case.
        [only] if split_reader(&only.lock_key).is_none() => {
            update(store.connection()).map_err(from_sqlite)?
        }
        _ => store.whole(update)?,
    }
    Ok(ExtendOutcome::Extended { expires_at_ms })
}
