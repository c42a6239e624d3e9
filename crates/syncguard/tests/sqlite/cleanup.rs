use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireOutcome, AcquireRequest, Clock, Ttl};

use crate::stage::place;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key};
use crate::support::suite::tests;

tests![
    only_long_expired_locks_are_deleted,
    without_being_asked_nothing_is_deleted,
    the_fence_counter_stays,
];

#[derive(Clone, Default)]
struct ManualClock(Arc<AtomicI64>);

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

const EXPIRY_MS: i64 = 1_000_000;

/// A backend on a file with a lock on "a" that expires at [`EXPIRY_MS`].
async fn with_lock(path: &Path, cleanup_in_is_locked: bool) -> (SqliteBackend, ManualClock) {
    let clock = ManualClock::default();
    clock.0.store(EXPIRY_MS - 100, Ordering::SeqCst);
    let mut config = SqliteConfig::file(path);
    config.cleanup_in_is_locked = cleanup_in_is_locked;
    let backend = SqliteBackend::with_clock(config, clock.clone()).unwrap();
    let request = AcquireRequest::new(key("a"), Ttl::from_millis(100).unwrap()).unwrap();
    let outcome = backend.acquire(&request).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
    (backend, clock)
}

/// Asks whether "a" is locked and lets what that started come to its end; whether its row is there.
async fn row_after_asking(backend: &SqliteBackend, path: &Path) -> bool {
    backend.is_locked(&key("a")).await.unwrap();
    // It queues behind the clean-up.
    let grant = acquire(backend, "other").await;
    backend.release(&grant.lock_id).await.unwrap();
    count(path, "SELECT count(*) FROM syncguard_locks WHERE key = 'a'") == 1
}

fn count(path: &Path, sql: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.query_one(sql, [], |row| row.get(0)).unwrap()
}

async fn only_long_expired_locks_are_deleted() {
    let place = place();
    let (backend, clock) = with_lock(&place.path, true).await;
    for (late_ms, stays) in [
        (-1, true),
        (999, true),
        (1500, true),
        (2000, true),
        (2001, false),
    ] {
        clock.0.store(EXPIRY_MS + late_ms, Ordering::SeqCst);
        let row = row_after_asking(&backend, &place.path).await;
        assert_eq!(row, stays, "{late_ms} ms after its expiry");
    }
}

async fn without_being_asked_nothing_is_deleted() {
    let place = place();
    let (backend, clock) = with_lock(&place.path, false).await;
    clock.0.store(EXPIRY_MS + 60_000, Ordering::SeqCst);
    assert!(row_after_asking(&backend, &place.path).await);
}

async fn the_fence_counter_stays() {
    let place = place();
    let (backend, clock) = with_lock(&place.path, true).await;
    clock.0.store(EXPIRY_MS + 60_000, Ordering::SeqCst);
    assert!(!row_after_asking(&backend, &place.path).await);
    let counters = "SELECT count(*) FROM syncguard_fence_counters WHERE fence_key = 'fence:a'";
    assert_eq!(count(&place.path, counters), 1);
    let taken_ms = EXPIRY_MS + 60_000;
    let fence = acquire(&backend, "a").await.fence.get();
    assert_eq!(fence, taken_ms.unsigned_abs());
}
