use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use syncguard::operation::{self, CallOptions};
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireOutcome, Backend, ErrorKind, LockId, Operation, ReleaseOutcome};

use crate::child;
use crate::stage::{backend, place};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, acquire, is_from_the_clock, key, request};
use crate::support::suite::tests;

tests![
    a_writer_in_the_way_is_waited_for,
    a_writer_in_the_way_for_too_long_is_named,
    what_fails_in_a_transaction_leaves_the_others_alone,
    a_second_backend_leaves_the_locks_of_the_first_on_the_file,
    backends_that_come_and_go_share_the_file,
    the_thread_ends_with_its_backend,
];

fn with_timeout(path: &Path, ms: u64) -> SqliteBackend {
    let mut config = SqliteConfig::file(path);
    config.operation_timeout = Duration::from_millis(ms);
    SqliteBackend::new(config).unwrap()
}

/// A connection that holds the write lock of the file.
fn writer(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

async fn a_writer_in_the_way_is_waited_for() {
    let place = place();
    let backend = Arc::new(backend(&place.path));
    acquire(&*backend, "a").await;
    let writer = writer(&place.path);
    let waiting = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { acquire(&*backend, "b").await })
    };
    // Still in the way: a read by another backend, which needs no write lock, comes through.
    let reader = self::backend(&place.path);
    assert!(reader.is_locked(&key("a")).await.unwrap());
    assert!(!waiting.is_finished());
    writer.execute_batch("COMMIT").unwrap();
    assert!(is_from_the_clock(waiting.await.unwrap().fence.get()));
}

async fn a_writer_in_the_way_for_too_long_is_named() {
    let place = place();
    let backend: Arc<dyn Backend> = Arc::new(with_timeout(&place.path, 200));
    assert!(!backend.is_locked(&key("a")).await.unwrap());
    let writer = writer(&place.path);
    // Through `operation`, whose own limit must not be the first.
    let attempt = request("a");
    let error = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(attempt),
        CallOptions::default(),
        std::future::pending(),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("another process holds"), "{error}");
    assert!(!error.is_outcome_unknown());
    // Reading works all the time.
    assert!(!backend.is_locked(&key("a")).await.unwrap());
    writer.execute_batch("ROLLBACK").unwrap();
    assert!(!backend.is_locked(&key("a")).await.unwrap());
    let outcome = backend.acquire(&request("a")).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
}

async fn what_fails_in_a_transaction_leaves_the_others_alone() {
    let place = place();
    let backend = backend(&place.path);
    let taken = acquire(&backend, "taken").await;
    let held = acquire(&backend, "held").await;
    set_counter(&place.path, "used up", 900_000_000_000_000);
    set_counter(&place.path, "reused id", AHEAD.cast_signed());
    let mut reused = request("reused id");
    reused.claims[0].lock_id = taken.lock_id.clone();
    let (sound, also_sound, used_up) = (request("a"), request("b"), request("used up"));
    let unknown = LockId::generate().unwrap();
    // While a writer is in the way, all of them queue up behind the first.
    let writer = writer(&place.path);
    let (first, (overflow, conflict, last, released, absent), ()) = tokio::join!(
        backend.acquire(&sound),
        async {
            tokio::join!(
                backend.acquire(&used_up),
                backend.acquire(&reused),
                backend.acquire(&also_sound),
                // Releases go before acquisitions, so this is not the lock whose id is used again.
                backend.release(&held.lock_id),
                backend.release(&unknown),
            )
        },
        async move {
            tokio::task::yield_now().await;
            writer.execute_batch("COMMIT").unwrap();
            // Before the backend, which closes the file after a damage, opens it again.
            drop(writer);
        },
    );
    for outcome in [first, last] {
        let AcquireOutcome::Acquired(mut grants) = outcome.unwrap() else {
            panic!("locked");
        };
        let grant = grants.remove(0);
        assert!(is_from_the_clock(grant.fence.get()));
    }
    assert_eq!(overflow.unwrap_err().kind(), ErrorKind::Internal);
    let conflict = conflict.unwrap_err();
    assert_eq!(conflict.kind(), ErrorKind::InvalidArgument);
    assert!(conflict.message().contains("lockId"), "{conflict}");
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    assert!(matches!(absent.unwrap(), ReleaseOutcome::Absent(_)));
    // The refused ones have not even counted.
    assert!(!backend.is_locked(&key("reused id")).await.unwrap());
    let next = acquire(&backend, "reused id").await;
    assert_eq!(next.fence.get(), AHEAD + 1);
}

fn set_counter(path: &Path, name: &str, counter: i64) {
    let connection = Connection::open(path).unwrap();
    connection
        .execute(
            "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2)",
            rusqlite::params![format!("fence:{name}"), counter],
        )
        .unwrap();
}

/// Closing any descriptor of a file drops all locks of the process on it: the check of the header,
/// made for the second backend, must not do that to the first.
async fn a_second_backend_leaves_the_locks_of_the_first_on_the_file() {
    let place = place();
    let first = backend(&place.path);
    acquire(&first, "a").await;
    let before = locks_on(&place.path);
    assert!(before > 0, "an open file in WAL mode is locked");
    let second = backend(&place.path);
    assert!(second.is_locked(&key("a")).await.unwrap());
    second.close().await;
    assert_eq!(locks_on(&place.path), before);
    first.close().await;
    assert_eq!(locks_on(&place.path), 0);
}

/// Whoever opens the file while another backend closes it is no other copy of the library, and takes nobody's locks away.
async fn backends_that_come_and_go_share_the_file() {
    let place = place();
    for stays in [false, true] {
        let first = backend(&place.path);
        if stays {
            acquire(&first, "first").await;
        }
        let before = if stays { locks_on(&place.path) } else { 0 };
        assert_eq!(before > 0, stays);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let path = place.path.clone();
            tasks.spawn(async move {
                for _ in 0..40 {
                    // On a busy machine, seven others may be before it for longer than the usual five seconds.
                    let ours = with_timeout(&path, 120_000);
                    let grant = acquire(&ours, &format!("{number}")).await;
                    ours.release(&grant.lock_id).await.unwrap();
                    ours.close().await;
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(locks_on(&place.path), before);
        first.close().await;
    }
}

/// How many locks this process has on the file, as the kernel tells them of each open descriptor.
/// `/proc/locks` would not do: it is read piece by piece, and leaves out a lock when another process gives up one between
/// two pieces.
pub(crate) fn locks_on(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).unwrap();
    let is_the_file = |descriptor: &Path| {
        // Whoever else works in this process may close a descriptor before it is looked at.
        std::fs::metadata(descriptor)
            .is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
    };
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| is_the_file(&entry.path()))
        .filter_map(|entry| {
            std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).ok()
        })
        .map(|told| {
            told.lines()
                .filter(|line| line.starts_with("lock:"))
                .count()
        })
        .sum()
}

async fn the_thread_ends_with_its_backend() {
    let place = place();
    let said = child::said(child::command("threads", &place.path).output().unwrap());
    assert_eq!(said, "");
}

/// The scenario "threads", in a process without other backends.
pub(crate) async fn count_threads(path: &Path) {
    let closed = backend(path);
    assert_eq!(threads(), 0);
    acquire(&closed, "a").await;
    assert_eq!(threads(), 1);
    closed.close().await;
    until(0).await;
    let dropped = backend(path);
    dropped.is_locked(&key("a")).await.unwrap();
    assert_eq!(threads(), 1);
    drop(dropped);
    until(0).await;
}

async fn until(count: usize) {
    let start = std::time::Instant::now();
    while threads() != count {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("syncguard-sqli"))
        .count()
}
