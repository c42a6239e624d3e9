//! The tables, the names in them, and the two numbers in the file's header that identify a lock file.

use rusqlite::{Connection, TransactionBehavior};

use crate::sqlite::error;
use crate::text::error::Error;
use crate::values::key::KeySpace;

/// "SGLK", in the header of every lock file.
pub(super) const APPLICATION_ID: i32 = 0x5347_4C4B;
/// The version of the tables.
pub(in crate::sqlite) const VERSION: i32 = 1;

/// The same limit as in PostgreSQL: 1700 bytes, so that no key has to be hashed.
pub(in crate::sqlite) const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1700,
    reserve_bytes: 0,
};

const TABLES: &str = include_str!("schema.sql");
const DONE: &str = include_str!("schema_done.sql");

/// What a database says of itself.
#[derive(PartialEq)]
pub(super) struct Marks {
    application_id: i32,
    version: i32,
    /// How many tables and indexes there are.
    entries: i64,
    /// How many of them are our tables.
    tables: i64,
    /// Whether there is the table that older versions do not know.
    has_done: bool,
}

const MARKS: &str = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema), \
     (SELECT count(*) FROM sqlite_schema \
      WHERE type = 'table' AND name IN ('syncguard_locks', 'syncguard_fence_counters')), \
     EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'syncguard_done') \
     FROM pragma_application_id, pragma_user_version";

const NEW: Marks = Marks {
    application_id: 0,
    version: 0,
    entries: 0,
    tables: 0,
    has_done: false,
};

impl Marks {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_one(MARKS, [], |row| {
            Ok(Self {
                application_id: row.get(0)?,
                version: row.get(1)?,
                entries: row.get(2)?,
                tables: row.get(3)?,
                has_done: row.get(4)?,
            })
        })
    }

    /// Checks that the tables are ours, and of this version.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_version(self.application_id, self.version)?;
        if self.tables == 2 {
            Ok(())
        } else {
            Err(error::damaged())
        }
    }
}

/// Checks that a file with these two numbers can be used.
pub(super) fn check_version(application_id: i32, version: i32) -> Result<(), Error> {
    if application_id != APPLICATION_ID {
        Err(error::foreign())
    } else if version > VERSION {
        Err(Error::invalid(
            "path was written by a newer version of SyncGuard; upgrade this one",
        ))
    } else if version < VERSION {
        Err(error::damaged())
    } else {
        Ok(())
    }
}

/// Creates the tables if there is nothing yet, and the one that is missing in a file of an older version. Any number of processes may do this at once.
pub(super) fn ensure(connection: &mut Connection) -> rusqlite::Result<Marks> {
    let marks = Marks::read(connection)?;
    if marks != NEW && (marks.has_done || marks.check().is_err()) {
        return Ok(marks);
    }
    // The numbers are written in the transaction that creates the tables, so no file ever has one without the other,
    // and a second process finds both.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if Marks::read(&transaction)? == NEW {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    // Without another version, so that older programs go on with the file.
    transaction.execute_batch(DONE)?;
    let marks = Marks::read(&transaction)?;
    transaction.commit()?;
    Ok(marks)
}
