//! The one connection of a backend, and its transactions.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::config::{Location, SqliteConfig};
use super::error::{from_sqlite, is_busy};
use super::file::LockFile;
use super::{open_files, schema};
use crate::error::{Error, ErrorKind};
use crate::random;
use crate::time::Clock;

/// Statements that are kept prepared: all that the operations have, and some to spare.
const STATEMENTS: usize = 32;

/// How long a transaction must last once it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// As long as the machine runs, whatever happens to processes.
    UntilPowerLoss,
    /// For good.
    ForGood,
}

/// An open database with the tables in it.
pub(super) struct Store {
    connection: Connection,
    clock: Arc<dyn Clock>,
    /// Until when to wait for other processes; the busy handler reads it.
    deadline: Arc<Mutex<Instant>>,
    durability: Durability,
    /// `None` in memory.
    file: Option<LockFile>,
}

impl Store {
    /// Opens the database, and makes it when it is new.
    pub(super) fn open(
        config: &SqliteConfig,
        clock: Arc<dyn Clock>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let (file, connection) = match &config.location {
            Location::Memory => (None, Connection::open_in_memory().map_err(from_sqlite)?),
            Location::File(path) => {
                let allow_network = config.allow_network_file_system;
                let (file, connection) = LockFile::open(path, allow_network, connect)?;
                (Some(file), connection)
            }
        };
        let mut store = Self {
            connection,
            clock,
            deadline: Arc::new(Mutex::new(deadline)),
            durability: Durability::ForGood,
            file,
        };
        match store.prepare() {
            Ok(()) => Ok(store),
            Err(error) => {
                store.abandon();
                Err(error)
            }
        }
    }

    fn prepare(&mut self) -> Result<(), Error> {
        wait_for_others(&mut self.connection, &self.deadline).map_err(from_sqlite)?;
        let is_file = self.is_file();
        until_free(&self.deadline, || prepare(&mut self.connection, is_file))?;
        self.connection
            .set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(())
    }

    /// For statements of an operation.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Milliseconds since the Unix epoch, within bounds in which no sum of times can overflow.
    pub(super) fn now_ms(&self) -> i64 {
        const LATEST: i64 = 8_000_000_000_000_000;
        self.clock.now_ms().clamp(0, LATEST)
    }

    /// Starts a transaction that writes, waiting for other processes until `deadline`; `false` when
    /// they were in the way all the time. After an error the store is to be abandoned.
    pub(super) fn begin(
        &mut self,
        durability: Durability,
        deadline: Instant,
    ) -> Result<bool, Error> {
        *lock(&self.deadline) = deadline;
        // SQLite refuses to change this within a transaction.
        self.set_durability(durability)?;
        match self.execute("BEGIN IMMEDIATE") {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Ok(false),
            Err(error) => return Err(from_sqlite(error)),
        }
        if let Some(file) = &self.file {
            file.check_is_in_place()?;
        }
        Ok(true)
    }

    /// Ends the transaction. Until this has returned, nothing may be told to anybody.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let committed = self.execute("COMMIT").map_err(from_sqlite);
        if committed.is_err() && self.in_transaction() {
            let _ = self.execute("ROLLBACK");
        }
        // The write may have reached the disk before what failed.
        committed.map_err(Error::with_unknown_outcome)
    }

    /// Whether a transaction is open: SQLite itself ends one that it cannot go on with.
    pub(super) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Runs `write` so that it happens whole or not at all, and the rest of the transaction goes on.
    pub(super) fn whole<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.execute("SAVEPOINT whole").map_err(from_sqlite)?;
        let result = write(&self.connection);
        if result.is_err() && self.in_transaction() {
            self.execute("ROLLBACK TO whole").map_err(from_sqlite)?;
        }
        if self.in_transaction() {
            self.execute("RELEASE whole").map_err(from_sqlite)?;
        }
        result.map_err(from_sqlite)
    }

    /// Whether opening again gives the same locks.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Closes a connection that has failed without a last write to the file.
    pub(super) fn abandon(self) {
        let _ = self
            .connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        self.close();
    }

    /// Closes the connection. The last one on a file brings all of it into the one file.
    pub(super) fn close(self) {
        let mut open_files = open_files::lock();
        drop(self.connection);
        if let Some(file) = self.file {
            open_files.remove(file.into_entry());
        }
    }

    fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        if self.durability == durability || !self.is_file() {
            return Ok(());
        }
        self.execute(match durability {
            Durability::UntilPowerLoss => "PRAGMA synchronous = NORMAL",
            Durability::ForGood => "PRAGMA synchronous = FULL",
        })
        .map_err(from_sqlite)?;
        self.durability = durability;
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.raw_execute().map(drop)
    }
}

fn connect(path: &Path) -> Result<Connection, Error> {
    // Neither CREATE nor URI: the file is there, and its name is a name.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(from_sqlite)
}

/// Makes the tables and sets what a connection needs. May fail because of others, and be repeated.
fn prepare(connection: &mut Connection, is_file: bool) -> Result<(), schema::Failure> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    schema::ensure(connection)?;
    if !is_file {
        return Ok(());
    }
    // After the tables: the file's own header then has its marks even if all processes are killed
    // before the first checkpoint.
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(schema::Failure::Refused(Error::invalid(
            "the file system of path cannot share memory between processes; choose a local one",
        )));
    }
    Ok(())
}

/// Sets a busy handler that waits until the deadline.
///
/// SQLite's own sleeps up to 100 ms at a time, and so loses against processes that come back sooner.
fn wait_for_others(
    connection: &mut Connection,
    deadline: &Arc<Mutex<Instant>>,
) -> rusqlite::Result<()> {
    let deadline = Arc::clone(deadline);
    connection.busy_handler(Some(move |_| pause(&deadline)))
}

/// Repeats `step` while others are in the way and time is left: some steps fail at once without
/// asking the busy handler.
fn until_free(
    deadline: &Mutex<Instant>,
    mut step: impl FnMut() -> Result<(), schema::Failure>,
) -> Result<(), Error> {
    loop {
        match step() {
            Ok(()) => return Ok(()),
            Err(schema::Failure::Sqlite(error)) if is_busy(&error) && pause(deadline) => {}
            Err(schema::Failure::Sqlite(error)) => return Err(from_sqlite(error)),
            Err(schema::Failure::Refused(error)) => return Err(error),
        }
    }
}

/// Sleeps for 0.1 to 2 ms; `false` when the time is over.
fn pause(deadline: &Mutex<Instant>) -> bool {
    let deadline = *lock(deadline);
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    // Without random numbers the waiters still wait, only less well spread.
    let share = random::unit().unwrap_or(0.5);
    let step = Duration::from_micros(100) + Duration::from_micros(1900).mul_f64(share);
    std::thread::sleep(step.min(left));
    true
}

fn lock(deadline: &Mutex<Instant>) -> std::sync::MutexGuard<'_, Instant> {
    deadline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an operation gets that waited for other processes until its deadline.
pub(super) fn held_by_others() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        "another process holds the lock file's write lock; try again later",
    )
}
