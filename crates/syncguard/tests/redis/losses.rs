//! What the settings and the clock of a server can do to locks: docs/redis.md, "What is guaranteed, and what is not".

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AcquireOutcome, Backend};
use tempfile::TempDir;

use crate::load::until_it_works;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, prepared, request, ttl};
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![
    what_was_not_synced_before_a_power_failure_is_granted_again,
    a_clock_that_goes_back_keeps_a_dead_holders_lock_for_as_long,
    a_clock_that_jumps_forward_ends_locks_early,
];

const MINUTE_MS: i64 = 60_000;

fn backend(server: &RedisServer) -> Arc<dyn Backend> {
    let config = RedisConfig::from_url(&server.url()).unwrap();
    Arc::new(RedisBackend::new(config).unwrap())
}

async fn what_was_not_synced_before_a_power_failure_is_granted_again() {
    for (fsync, is_lost) in [
        ("appendfsync everysec", true),
        ("appendfsync always", false),
    ] {
        let mut server = RedisServer::start_with(&["appendonly yes", fsync]);
        let backend = backend(&server);
        acquire(&*backend, "before").await;
        let log = server.socket().with_file_name("appendonlydir");
        let log = log.join("appendonly.aof.1.incr.aof");
        let synced = fs::metadata(&log).unwrap().len();
        let first = acquire(&*backend, "k").await;
        server.kill();
        // What the system had not written to the disk yet is gone with the power; with `always`, that is nothing.
        if is_lost {
            let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
            file.set_len(synced).unwrap();
        }
        server.restart();
        until_it_works(&backend).await;
        assert!(backend.is_locked(&key("before")).await.unwrap(), "{fsync}");
        match backend.acquire(&request("k")).await.unwrap() {
            AcquireOutcome::Acquired(second) => {
                assert!(is_lost, "{fsync}");
                assert!(second[0].fence > first.fence);
            }
            outcome => assert!(!is_lost, "{fsync} {outcome:?}"),
        }
    }
}

/// A server whose clock can be set, by libfaketime.
struct Clocked {
    file: PathBuf,
    server: RedisServer,
}

impl Clocked {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("clock");
        fs::write(&file, "+0").unwrap();
        // With malloc of the C library: jemalloc asks for the time before libfaketime knows it.
        let libraries = format!("{}:libc.so.6", library().display());
        let environment = [
            ("LD_PRELOAD", libraries.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            server: RedisServer::start_at(folder, &[], &environment),
            file,
        }
    }

    fn set(&self, ahead_ms: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{:+}", ahead_ms / 1000)).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

/// Where Debian's package `faketime` puts it.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten();
    let found = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let mut found = found.filter(|library| library.exists());
    found.next().expect("the package faketime is missing")
}

/// How long the lock would last by itself; `None` if it was free.
async fn free_in(backend: &dyn Backend, name: &str) -> Option<Duration> {
    match backend.acquire(&request(name)).await.unwrap() {
        AcquireOutcome::Locked { free_in, .. } => free_in,
        _ => None,
    }
}

async fn a_clock_that_goes_back_keeps_a_dead_holders_lock_for_as_long() {
    let t = Clocked::start();
    let backend = backend(&t.server);
    let dead = prepared(&*backend, &key("k"), ttl(30_000));
    let outcome = backend.acquire(&dead).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
    t.set(-MINUTE_MS);
    eventually("it lasts for a minute longer", async || {
        free_in(&*backend, "k").await > Some(Duration::from_secs(60))
    })
    .await;
    // A holder that lives is not concerned: its next extension is by the clock as it is now.
    let lock_id = &dead.claims[0].lock_id;
    backend.extend(lock_id, ttl(5000)).await.unwrap();
    assert!(free_in(&*backend, "k").await <= Some(Duration::from_secs(6)));
}

async fn a_clock_that_jumps_forward_ends_locks_early() {
    let t = Clocked::start();
    let backend = backend(&t.server);
    let first = acquire(&*backend, "k").await;
    t.set(MINUTE_MS);
    let mut second = None;
    eventually("it is granted again", async || {
        if let AcquireOutcome::Acquired(grants) = backend.acquire(&request("k")).await.unwrap() {
            second = Some(grants[0].clone());
        }
        second.is_some()
    })
    .await;
    assert!(second.unwrap().fence > first.fence);
}
