//! Waiting for a lock: who hears of what, and what stays at the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use firestore_emulator::{Effect, Fault, Lost, Refusal};
use syncguard::firestore::{FirestoreBackend, FirestoreConnection};
use syncguard::{AcquireRequest, Backend, ErrorKind, LockOptions, lock};
use tokio::task::JoinSet;

use crate::stage::Server;
use crate::support::attempts::Attempts as _;
use crate::support::link::Link;
use crate::support::locks::{ManualClock, acquire, eventually, key, ttl};
use crate::support::suite::tests;
use crate::support::waiters::{deaf_for, patient, soon, wait_for, wait_listening, watch};

tests![
    a_release_is_heard_of,
    so_is_a_forced_release,
    so_is_a_guard_that_was_dropped,
    so_is_a_clean_up,
    what_is_still_held_wakes_nobody,
    a_waiter_comes_when_a_lock_ends_by_itself,
    many_waiters_share_one_stream,
    backends_share_the_stream_of_their_connection,
    waiters_leave_nothing_behind,
    a_stream_that_has_ended_is_opened_again,
    so_is_one_that_has_failed,
    one_that_falls_silent_is_opened_again_within_seconds,
    a_server_that_tells_nothing_is_asked,
    a_server_that_refuses_is_asked,
    a_stream_that_is_not_answered_is_given_up,
    a_server_that_ends_every_stream_is_asked_less_and_less_often,
    a_waiter_hears_that_its_backend_was_closed,
];

async fn a_release_is_heard_of() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let held = acquire(&*holder, "a").await;
    let waiter = wait_listening(&other, "a").await;
    holder.release(&held.lock_id).await.unwrap();
    let guard = soon(waiter).await.unwrap();
    let fence = guard.fence();
    assert!(fence > held.fence);
    let waiter = wait_listening(&holder, "a").await;
    guard.release().await.unwrap();
    assert!(soon(waiter).await.unwrap().fence() > fence);
}

async fn so_is_a_forced_release() {
    let server = Server::start();
    let backend = server.backend();
    acquire(&*backend, "a/b").await;
    let watch = watch(&backend, "a/b").await;
    backend.force_release(&key("a/b")).await.unwrap();
    soon(watch.freed()).await;
}

async fn so_is_a_guard_that_was_dropped() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let guard = lock(&holder, &key("a"), &patient()).await.unwrap();
    let waiter = wait_listening(&other, "a").await;
    drop(guard);
    soon(waiter).await.unwrap();
}

async fn so_is_a_clean_up() {
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000);
    let cleaner = server.backend_on(clock.clone(), |config| config.cleanup_in_is_locked = true);
    acquire(&*cleaner, "a").await;
    let watch = watch(&server.backend(), "a").await;
    clock.advance(Duration::from_secs(60));
    assert!(!cleaner.is_locked(&key("a")).await.unwrap());
    soon(watch.freed()).await;
}

async fn what_is_still_held_wakes_nobody() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let held = acquire(&*holder, "held").await;
    let freed = acquire(&*holder, "freed").await;
    let (watch_held, watch_freed) = (watch(&other, "held").await, watch(&other, "freed").await);
    let longer = ttl(60_000);
    holder.extend(&held.lock_id, longer).await.unwrap();
    holder.release(&freed.lock_id).await.unwrap();
    // The stream tells of both in this order.
    soon(watch_freed.freed()).await;
    let woken = tokio::time::timeout(Duration::ZERO, watch_held.freed()).await;
    assert!(woken.is_err());
}

async fn a_waiter_comes_when_a_lock_ends_by_itself() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let start = Instant::now();
    let request = AcquireRequest::new(key("a"), ttl(300)).unwrap();
    assert!(!holder.acquire(&request).await.unwrap().is_locked());
    soon(wait_for(&other, "a")).await.unwrap();
    // Its TTL and the tolerance.
    assert!(start.elapsed() >= Duration::from_millis(1300));
}

async fn many_waiters_share_one_stream() {
    const WAITERS: usize = 200;
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let mut held = Vec::new();
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        let name = format!("key {number}");
        held.push(acquire(&*holder, &name).await);
        let waiter = wait_listening(&other, &name).await;
        waiters.spawn(async move { waiter.await.unwrap().keep() });
    }
    assert_eq!(server.emulator.listeners(), 1);
    assert_eq!(server.emulator.targets(), WAITERS);
    for grant in &held {
        holder.release(&grant.lock_id).await.unwrap();
    }
    while let Some(woken) = soon(waiters.join_next()).await {
        let fence = woken.unwrap()[0].fence;
        assert!(held.iter().any(|grant| grant.fence < fence));
    }
}

async fn backends_share_the_stream_of_their_connection() {
    let server = Server::start();
    let connection = Arc::new(FirestoreConnection::new(server.config()).unwrap());
    let backend = |collection: &str| -> Arc<dyn Backend> {
        let mut config = server.config();
        config.collection = collection.to_owned();
        Arc::new(FirestoreBackend::on(Arc::clone(&connection), config).unwrap())
    };
    let (ones, twos) = (backend("ones"), backend("twos"));
    let (one, two) = (acquire(&*ones, "a").await, acquire(&*twos, "a").await);
    let (watch_one, watch_two) = (watch(&ones, "a").await, watch(&twos, "a").await);
    assert_eq!(server.emulator.listeners(), 1);
    assert_eq!(server.emulator.targets(), 2);
    twos.release(&two.lock_id).await.unwrap();
    soon(watch_two.freed()).await;
    let woken = tokio::time::timeout(Duration::ZERO, watch_one.freed()).await;
    assert!(woken.is_err());
    ones.release(&one.lock_id).await.unwrap();
    soon(watch_one.freed()).await;
}

async fn waiters_leave_nothing_behind() {
    let server = Server::start();
    let backend = server.backend();
    acquire(&*backend, "a").await;
    for _ in 0..3 {
        let waiter = wait_listening(&backend, "a").await;
        eventually("one target", async || server.emulator.targets() == 1).await;
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        eventually("no target", async || server.emulator.targets() == 0).await;
    }
    assert_eq!(server.emulator.listeners(), 1);
    drop(backend);
    eventually("no stream", async || server.emulator.listeners() == 0).await;
}

async fn a_stream_that_has_ended_is_opened_again() {
    let server = Server::start();
    let backend = server.backend();
    let held = acquire(&*backend, "a").await;
    let waiter = wait_listening(&backend, "a").await;
    // Nobody hears of the release: the waiter finds it when it listens again.
    let silent = Fault::new(Effect::DropReply(Lost::Silence)).on("ListenResponse");
    server.emulator.faults().set([silent]);
    backend.release(&held.lock_id).await.unwrap();
    server.emulator.end_listeners();
    let guard = soon(waiter).await.unwrap();
    server.emulator.faults().set([]);
    // And what is released now is heard of.
    let waiter = wait_listening(&backend, "a").await;
    drop(guard);
    soon(waiter).await.unwrap();
}

async fn so_is_one_that_has_failed() {
    let server = Server::start();
    let backend = server.backend();
    let held = acquire(&*backend, "a").await;
    let waiter = wait_listening(&backend, "a").await;
    let failing = Fault::new(Effect::Status(Refusal::Unavailable)).on("ListenResponse");
    server.emulator.faults().set([failing.times(1)]);
    backend.release(&held.lock_id).await.unwrap();
    soon(waiter).await.unwrap();
}

/// Polls often.
fn hurried() -> LockOptions {
    let mut options = patient();
    options.retry.retry_delay_ms = 50.0;
    options.retry.backoff = syncguard::Backoff::Fixed;
    options
}

async fn a_server_that_tells_nothing_is_asked() {
    let server = Server::start();
    let backend = server.backend();
    let silent = Fault::new(Effect::DropReply(Lost::Silence)).on("Listen");
    server.emulator.faults().set([silent]);
    asks(&server, &backend).await;
}

async fn a_server_that_refuses_is_asked() {
    let server = Server::start();
    let backend = server.backend();
    let refusal = Fault::new(Effect::Status(Refusal::PermissionDenied)).on("Listen");
    server.emulator.faults().set([refusal]);
    asks(&server, &backend).await;
    // A refusal does not pass by itself, so the stream is not tried again and again.
    assert_eq!(server.emulator.faults().calls()["Listen"], 1);
}

/// Gets a lock that is released while it waits and hears of nothing.
async fn asks(server: &Server, backend: &Arc<dyn Backend>) {
    let held = acquire(&**backend, "a").await;
    let waiter = {
        let backend = Arc::clone(backend);
        tokio::spawn(async move { lock(&backend, &key("a"), &hurried()).await.unwrap() })
    };
    let called = async || server.emulator.faults().calls().contains_key("Listen");
    eventually("it tries to listen", called).await;
    backend.release(&held.lock_id).await.unwrap();
    let guard = soon(waiter).await.unwrap();
    assert!(!backend.watch_key(&key("a")).unwrap().is_listening());
    drop(guard);
}

async fn a_stream_that_is_not_answered_is_given_up() {
    let server = Server::start();
    let time_limit = Duration::from_secs(2);
    let backend = server.backend_with(|config| config.operation_timeout = time_limit);
    acquire(&*backend, "a").await;
    let silent = Fault::new(Effect::DropReply(Lost::Silence)).on("Listen");
    server.emulator.faults().set([silent.times(1)]);
    let _waiter = wait_listening(&backend, "a").await;
    assert_eq!(server.emulator.faults().calls()["Listen"], 2);
}

async fn a_server_that_ends_every_stream_is_asked_less_and_less_often() {
    let server = Server::start();
    let backend = server.backend();
    acquire(&*backend, "a").await;
    let unavailable = Fault::new(Effect::Status(Refusal::Unavailable)).on("Listen");
    server.emulator.faults().set([unavailable]);
    let waiter = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { lock(&backend, &key("a"), &patient()).await.map(drop) })
    };
    let start = Instant::now();
    let calls = || server.emulator.faults().calls().get("Listen").copied();
    eventually("it has tried five times", async || calls() >= Some(5)).await;
    // After pauses of up to 0.1 s, 0.2 s, 0.4 s and 0.8 s, each at least half as long.
    assert!(start.elapsed() > Duration::from_millis(700));
    waiter.abort();
}

async fn a_waiter_hears_that_its_backend_was_closed() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    acquire(&*holder, "a").await;
    let watch = other.watch_key(&key("a")).unwrap();
    let waiter = {
        let other = Arc::clone(&other);
        tokio::spawn(async move { lock(&other, &key("a"), &patient()).await.map(drop) })
    };
    eventually("it listens", async || watch.is_listening()).await;
    soon(other.close()).await;
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    eventually("no stream", async || server.emulator.listeners() == 0).await;
}

async fn one_that_falls_silent_is_opened_again_within_seconds() {
    let server = Server::start();
    let link = Link::start(server.emulator.address()).await;
    let listener = server.backend_with(|config| {
        config.emulator_host = Some(link.address.to_string());
    });
    let swallow = || link.swallow_newest();
    deaf_for(
        &listener,
        &server.backend(),
        "a",
        swallow,
        Duration::from_secs(9),
    )
    .await;
}
