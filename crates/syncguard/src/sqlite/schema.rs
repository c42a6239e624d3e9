//! The tables, and the two numbers in the file's header that identify a lock file.

use rusqlite::{Connection, TransactionBehavior};

use super::error;
use crate::error::Error;

/// "SGLK", in the header of every lock file.
pub(super) const APPLICATION_ID: i32 = 0x5347_4C4B;
/// The version of the tables.
pub(super) const VERSION: i32 = 1;

const TABLES: &str = include_str!("schema.sql");

/// Checks that a file with these two numbers can be used.
pub(super) fn check_version(application_id: i32, version: i32) -> Result<(), Error> {
    if application_id != APPLICATION_ID {
        return Err(Error::invalid(
            "path is a database that belongs to another application; choose another path",
        ));
    }
    if version > VERSION {
        return Err(Error::invalid(
            "path was written by a newer version of SyncGuard; upgrade this one",
        ));
    }
    if version < VERSION {
        return Err(error::damaged());
    }
    Ok(())
}

/// Why a database could not be prepared.
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Refused(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Creates the tables unless they exist. Any number of processes may do this at once.
pub(super) fn ensure(connection: &mut Connection) -> Result<(), Failure> {
    if is_empty(connection)? {
        // The numbers are written in the transaction that creates the tables, so no file ever has one
        // without the other, and a second process finds both.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if is_empty(&transaction)? {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
    }
    let (application_id, version) = marks(connection)?;
    check_version(application_id, version).map_err(Failure::Refused)?;
    let tables: i64 = connection.query_one(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' \
         AND name IN ('syncguard_locks', 'syncguard_fence_counters')",
        [],
        |row| row.get(0),
    )?;
    if tables != 2 {
        return Err(Failure::Refused(error::damaged()));
    }
    Ok(())
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    if marks(connection)? != (0, 0) {
        return Ok(false);
    }
    connection.query_one("SELECT count(*) = 0 FROM sqlite_schema", [], |row| {
        row.get(0)
    })
}

fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    Ok((
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
        connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
    ))
}
