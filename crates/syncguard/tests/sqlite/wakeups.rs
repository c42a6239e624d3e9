use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireRequest, Backend, ErrorKind, lock};
use tokio::task::JoinSet;

use crate::child;
use crate::stage::{self, place};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{ManualClock, acquire, eventually, key, ttl};
use crate::support::suite::tests;
use crate::support::waiters::{patient, soon, wait_for, wait_listening, watch};

tests![
    a_release_is_heard_of_by_other_backends,
    so_is_a_forced_release,
    so_is_a_guard_that_was_dropped,
    so_is_a_clean_up,
    so_is_a_release_by_another_process,
    a_release_is_heard_of_in_its_own_backend,
    what_is_still_held_wakes_nobody,
    a_waiter_comes_when_a_lock_ends_by_itself,
    many_waiters_are_all_woken,
    a_waiter_leaves_no_looks_behind,
    a_waiter_hears_that_its_backend_was_closed,
    no_process_keeps_a_lock_to_itself,
];

fn backend(path: &Path) -> Arc<dyn Backend> {
    Arc::new(stage::backend(path))
}

async fn a_release_is_heard_of_by_other_backends() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    let held = acquire(&*holder, "a").await;
    let waiter = wait_listening(&other, "a").await;
    holder.release(&held.lock_id).await.unwrap();
    let guard = soon(waiter).await.unwrap();
    let fence = guard.fence();
    assert!(fence > held.fence);
    // And back again, where nobody has listened so far.
    let waiter = wait_listening(&holder, "a").await;
    guard.release().await.unwrap();
    assert!(soon(waiter).await.unwrap().fence() > fence);
}

async fn so_is_a_forced_release() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    acquire(&*holder, "a").await;
    let watch = watch(&other, "a").await;
    holder.force_release(&key("a")).await.unwrap();
    soon(watch.freed()).await;
}

async fn so_is_a_guard_that_was_dropped() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    let guard = lock(&holder, &key("a"), &patient()).await.unwrap();
    let waiter = wait_listening(&other, "a").await;
    drop(guard);
    soon(waiter).await.unwrap();
}

async fn so_is_a_clean_up() {
    let place = place();
    let clock = ManualClock::at(1_000_000);
    let make = || -> Arc<dyn Backend> {
        let mut config = SqliteConfig::file(&place.path);
        config.cleanup_in_is_locked = true;
        Arc::new(SqliteBackend::with_clock(config, clock.clone()).unwrap())
    };
    let (cleaner, other) = (make(), make());
    acquire(&*cleaner, "a").await;
    let watch = watch(&other, "a").await;
    clock.advance(Duration::from_secs(60));
    assert!(!cleaner.is_locked(&key("a")).await.unwrap());
    soon(watch.freed()).await;
}

async fn so_is_a_release_by_another_process() {
    let place = place();
    let here = backend(&place.path);
    let watch = watch(&here, "probe").await;
    let said = child::said(child::command("probe", &place.path).output().unwrap());
    assert!(child::has_got_it(&said), "{said}");
    soon(watch.freed()).await;
}

async fn a_release_is_heard_of_in_its_own_backend() {
    let place = place();
    for config in [SqliteConfig::in_memory(), SqliteConfig::file(&place.path)] {
        let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(config).unwrap());
        let held = acquire(&*backend, "a").await;
        let waiter = wait_listening(&backend, "a").await;
        backend.release(&held.lock_id).await.unwrap();
        let guard = soon(waiter).await.unwrap();
        let watch = watch(&backend, "a").await;
        backend.force_release(&key("a")).await.unwrap();
        soon(watch.freed()).await;
        drop(guard);
    }
}

async fn what_is_still_held_wakes_nobody() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    acquire(&*holder, "held").await;
    let freed = acquire(&*holder, "freed").await;
    let (held, free) = (watch(&other, "held").await, watch(&other, "freed").await);
    holder.release(&freed.lock_id).await.unwrap();
    // One look tells of both.
    soon(free.freed()).await;
    assert!(held.freed().now_or_never().is_none());
}

async fn a_waiter_comes_when_a_lock_ends_by_itself() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    let start = Instant::now();
    let request = AcquireRequest::new(key("a"), ttl(300)).unwrap();
    assert!(!holder.acquire(&request).await.unwrap().is_locked());
    soon(wait_for(&other, "a")).await.unwrap();
    // Its TTL and the tolerance.
    assert!(start.elapsed() >= Duration::from_millis(1300));
}

async fn many_waiters_are_all_woken() {
    const WAITERS: usize = 200;
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    let mut held = Vec::new();
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        let name = format!("key {number}");
        held.push(acquire(&*holder, &name).await);
        let waiter = wait_listening(&other, &name).await;
        waiters.spawn(async move { waiter.await.unwrap().keep() });
    }
    for grant in &held {
        holder.release(&grant.lock_id).await.unwrap();
    }
    while let Some(woken) = soon(waiters.join_next()).await {
        let fence = woken.unwrap()[0].fence;
        assert!(held.iter().any(|grant| grant.fence < fence));
    }
}

async fn a_waiter_leaves_no_looks_behind() {
    let place = place();
    let said = child::said(child::command("looks", &place.path).output().unwrap());
    assert_eq!(said, "");
}

/// The scenario "looks", in a process without other backends.
pub(crate) async fn until_nobody_looks(path: &Path) {
    let backend = backend(path);
    acquire(&*backend, "a").await;
    let waiter = wait_listening(&backend, "a").await;
    let before = switches();
    eventually("it looks", async || switches() > before + 10).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    eventually("its thread sleeps", async || {
        let before = switches();
        tokio::time::sleep(Duration::from_millis(100)).await;
        switches() == before
    })
    .await;
}

/// How often the backends' threads have gone to sleep.
fn switches() -> u64 {
    let mut switches = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        if status.starts_with("Name:\tsyncguard-sqli") {
            let line = |line: &&str| line.starts_with("voluntary_ctxt_switches");
            let count = status.lines().find(line).unwrap();
            switches += count.split('\t').nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    switches
}

async fn a_waiter_hears_that_its_backend_was_closed() {
    let place = place();
    let (holder, other) = (backend(&place.path), backend(&place.path));
    acquire(&*holder, "a").await;
    let waiter = {
        let other = Arc::clone(&other);
        tokio::spawn(async move { lock(&other, &key("a"), &patient()).await.map(drop) })
    };
    let watch = other.watch_key(&key("a")).unwrap();
    eventually("it listens", async || watch.is_listening()).await;
    soon(other.close()).await;
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

/// Each process has several waiters, so that it never lets a lock go without wanting it again.
async fn no_process_keeps_a_lock_to_itself() {
    const PROCESSES: usize = 3;
    let place = place();
    let start = || {
        let mut command = child::command("contend", &place.path);
        command.stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    loop {
        let children: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
        let counts: Vec<usize> = children
            .into_iter()
            .map(|child| child::said(child.wait_with_output().unwrap()))
            .map(|said| said.parse().unwrap())
            .collect();
        let fair = counts.iter().sum::<usize>() / PROCESSES;
        // On a busy machine there may be too few turns to tell.
        if fair >= 50 {
            assert!(counts.iter().all(|count| count * 5 > fair), "{counts:?}");
            return;
        }
    }
}

/// The scenario "contend": says how often this process got the lock.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) async fn contend(path: &Path) {
    const WAITERS: usize = 4;
    const TIME: Duration = Duration::from_secs(3);
    let backend = backend(path);
    let count = Arc::new(AtomicUsize::new(0));
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let (backend, count) = (Arc::clone(&backend), Arc::clone(&count));
        waiters.spawn(async move {
            loop {
                let guard = lock(&backend, &key("a"), &patient()).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                guard.release().await.unwrap();
            }
        });
    }
    tokio::time::sleep(TIME).await;
    println!("{}", count.load(Ordering::Relaxed));
    waiters.shutdown().await;
    backend.close().await;
}
