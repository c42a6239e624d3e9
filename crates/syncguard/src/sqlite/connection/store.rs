//! The one connection of a backend, and its transactions.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::file::LockFile;
use super::releases::ReleaseFeed;
use super::schema;
use crate::mutex::lock;
use crate::random;
use crate::sqlite::config::{Location, SqliteConfig};
use crate::sqlite::error::{from_sqlite, is_busy};
use crate::text::error::{Error, ErrorKind};
use crate::values::time::Clock;

/// How many statements are kept prepared: all that the operations use, and a few more.
const STATEMENTS: usize = 48;

/// What a committed transaction must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sqlite) enum Durability {
    /// The death of processes, but not a loss of power.
    UntilPowerLoss,
    /// A loss of power too.
    ForGood,
}

/// An open database with the tables in it.
pub(in crate::sqlite) struct Store {
    connection: Connection,
    clock: Arc<dyn Clock>,
    /// How long to wait for other processes. The busy handler reads it.
    deadline: Arc<Mutex<Instant>>,
    durability: Durability,
    /// `None` in memory. Behind the connection, which is to be closed first.
    file: Option<LockFile>,
    /// What the transaction has freed, by storage keys.
    freed: RefCell<Vec<String>>,
    releases: Arc<ReleaseFeed>,
    /// Which of this process's connections it is.
    number: u64,
}

/// A state of the database, as one connection sees it. While the version stays the same, no other connection has
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) struct Version {
    /// The numbers of two connections cannot be compared.
    connection: u64,
    data: i64,
}

impl Store {
    /// Opens the database, and creates the tables if it is new.
    pub(in crate::sqlite) fn open(
        config: &SqliteConfig,
        clock: Arc<dyn Clock>,
        releases: Arc<ReleaseFeed>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let (file, connection) = match &config.location {
            Location::Memory => (None, Connection::open_in_memory().map_err(from_sqlite)?),
            Location::File(path) => {
                let file = LockFile::open(path, config.allow_network_file_system)?;
                let connection = connect(file.real_path())?;
                (Some(file), connection)
            }
        };
        let mut store = Self {
            connection,
            clock,
            deadline: Arc::new(Mutex::new(deadline)),
            durability: Durability::ForGood,
            file,
            freed: RefCell::default(),
            releases,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
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
        let connection = &mut self.connection;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        wait_for_others(connection, &self.deadline).map_err(from_sqlite)?;
        let marks = until_free(&self.deadline, || {
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "trusted_schema", false)?;
            schema::ensure(connection)
        })?;
        marks.check()?;
        if self.file.is_none() {
            return Ok(());
        }
        // After the tables, so that the main file's header has its two numbers even if all processes are killed before
        // the first checkpoint.
        let mode: String = until_free(&self.deadline, || {
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        })?;
        if mode != "wal" {
            return Err(Error::invalid(
                "the file system of path cannot share memory between processes; choose a local one",
            ));
        }
        Ok(())
    }

    /// The connection, for the statements of an operation.
    pub(in crate::sqlite) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Milliseconds since the Unix epoch, clamped so that no sum of times can overflow.
    pub(in crate::sqlite) fn now_ms(&self) -> i64 {
        const LATEST: i64 = 8_000_000_000_000_000;
        self.clock.now_ms().clamp(0, LATEST)
    }

    /// Starts a transaction that writes. Waits for other processes until `deadline`; `false` if they held the write
    /// lock until then. After an error, the store must be abandoned.
    pub(in crate::sqlite) fn begin(
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

    /// Commits the transaction. No result may be told to anybody before this has returned.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let committed = self.execute("COMMIT").map_err(from_sqlite);
        // Also if it has failed: those who wait lose nothing when they look.
        self.releases.tell(self.freed.take());
        if committed.is_err() && self.in_transaction() {
            let _ = self.execute("ROLLBACK");
        }
        // The write may have reached the disk before the failure.
        committed.map_err(Error::with_unknown_outcome)
    }

    /// Notes that the transaction frees this storage key, or that it will be free sooner than was known.
    pub(in crate::sqlite) fn has_freed(&self, lock_key: &str) {
        self.freed.borrow_mut().push(lock_key.to_owned());
    }

    /// Changes whenever another connection has written.
    pub(in crate::sqlite) fn version(&self) -> Result<Version, Error> {
        let data = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut read| read.query_one([], |row| row.get(0)))
            .map_err(from_sqlite)?;
        Ok(Version {
            connection: self.number,
            data,
        })
    }

    /// Whether a transaction is open. After some errors, SQLite rolls it back by itself.
    pub(in crate::sqlite) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Runs `write` completely or not at all, without affecting the rest of the transaction.
    pub(in crate::sqlite) fn whole<T>(
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

    /// Whether the locks are in a file, so that they are still there after opening it again.
    pub(in crate::sqlite) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Closes a connection that has failed. Writes nothing more to the file. If the store is dropped instead, the last
    /// connection on a file moves everything from the `-wal` file into the main file.
    pub(super) fn abandon(self) {
        let _ = self
            .connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
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
    // Without CREATE, because the file exists, and without URI, because its name is not one.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(from_sqlite)
}

/// Sets a busy handler that waits until the deadline.
///
/// SQLite's own handler sleeps up to 100 ms at a time, and so loses against processes that try more often.
fn wait_for_others(
    connection: &mut Connection,
    deadline: &Arc<Mutex<Instant>>,
) -> rusqlite::Result<()> {
    let deadline = Arc::clone(deadline);
    connection.busy_handler(Some(move |_| pause(&deadline)))
}

/// Repeats `step` while the database is busy and time is left: some steps fail at once, without calling the busy
/// handler.
fn until_free<T>(
    deadline: &Mutex<Instant>,
    mut step: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, Error> {
    loop {
        match step() {
            Err(error) if is_busy(&error) && pause(deadline) => {}
            done => return done.map_err(from_sqlite),
        }
    }
}

/// Sleeps for 0.1 to 2 ms; `false` after the deadline.
fn pause(deadline: &Mutex<Instant>) -> bool {
    let deadline = *lock(deadline);
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    // Without random numbers the waits are less evenly spread, which does no harm.
    let share = random::unit().unwrap_or(0.5);
    let step = Duration::from_micros(100) + Duration::from_micros(1900).mul_f64(share);
    std::thread::sleep(step.min(left));
    true
}

/// The error of an operation that waited for other processes until its deadline.
pub(super) fn held_by_others() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        "another process holds the lock file's write lock; try again later",
    )
}
