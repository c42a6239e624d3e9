//! SQLite's fixtures: on a file in a temporary folder, and in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use syncguard::sqlite::{Location, SqliteBackend, SqliteConfig};
use syncguard::{Backend, Key, KeySpace};

use crate::fixture::{Fixture, OPERATION_TIMEOUT, Setup, Store};
use crate::support::attempts::Attempts as _;
use crate::support::locks::ManualClock;

pub(crate) struct OnFile;
pub(crate) struct InMemory;

#[async_trait]
impl Store for OnFile {
    fn name(&self) -> &'static str {
        "sqlite_file"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        Box::new(Sqlite::new(
            Location::File(path.clone()),
            setup,
            Some((folder, path)),
        ))
    }
}

#[async_trait]
impl Store for InMemory {
    fn name(&self) -> &'static str {
        "sqlite_memory"
    }

    /// Only the backend's own connection sees the tables.
    fn can_be_inspected(&self) -> bool {
        false
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        Box::new(Sqlite::new(Location::Memory, setup, None))
    }
}

struct Sqlite {
    backend: Arc<dyn Backend>,
    peer: Arc<dyn Backend>,
    clock: ManualClock,
    file: Option<(tempfile::TempDir, PathBuf)>,
}

impl Sqlite {
    fn new(location: Location, setup: Setup, file: Option<(tempfile::TempDir, PathBuf)>) -> Self {
        let clock = ManualClock::at(1_700_000_000_000);
        let config = SqliteConfig {
            location,
            cleanup_in_is_locked: setup.cleanup_in_is_locked,
            operation_timeout: OPERATION_TIMEOUT,
            allow_network_file_system: false,
        };
        let make = || -> Arc<dyn Backend> {
            Arc::new(SqliteBackend::with_clock(config.clone(), clock.clone()).unwrap())
        };
        let backend = make();
        let peer = if file.is_some() {
            make()
        } else {
            Arc::clone(&backend)
        };
        Self {
            backend,
            peer,
            clock,
            file,
        }
    }

    fn inspect(&self) -> rusqlite::Connection {
        let (_, path) = self.file.as_ref().expect("only a file can be inspected");
        rusqlite::Connection::open(path).unwrap()
    }
}

/// The names under which `key` is stored.
fn names(key: &Key) -> (String, String) {
    let keys = KeySpace {
        prefix: "",
        limit_bytes: 1700,
        reserve_bytes: 0,
    };
    let lock_key = keys.lock_key(key).unwrap();
    let fence_key = keys.fence_key(&lock_key).unwrap();
    (lock_key, fence_key)
}

#[async_trait]
impl Fixture for Sqlite {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    fn peer(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.peer)
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn set_fence_counter(&self, key: &Key, counter: i64) {
        // Makes the tables.
        self.backend.is_locked(key).await.unwrap();
        self.inspect()
            .execute(
                "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2) \
                 ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence",
                rusqlite::params![names(key).1, counter],
            )
            .unwrap();
    }

    async fn has_record(&self, key: &Key) -> bool {
        self.inspect()
            .query_one(
                "SELECT count(*) FROM syncguard_locks WHERE key = ?1",
                [names(key).0],
                |row| row.get(0),
            )
            .map(|count: i64| count > 0)
            .unwrap()
    }
}
