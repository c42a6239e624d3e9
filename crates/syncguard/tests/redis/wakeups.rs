//! Waiting for a lock: who hears of what, and what stays at the server.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    Backend, Jitter, LockGuard, LockOptions, Operation, ReleaseOutcome, RetryPolicy, Wait, lock,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::support::attempts::Attempts as _;
use crate::support::link::Link;
use crate::support::locks::{acquire, eventually, key, request, ttl};
use crate::support::redis_server::RedisServer;
use crate::support::resp::Resp;
use crate::support::waiters::deaf_for;

crate::support::suite::tests![
    a_release_wakes,
    a_forced_release_wakes,
    a_clean_up_wakes,
    the_end_of_a_lock_is_known,
    a_lost_connection_is_made_again,
    a_connection_that_falls_silent_is_made_again_within_seconds,
    without_the_right_to_listen_it_polls,
    without_the_right_to_publish_locks_are_released,
    whoever_polls_opens_no_connection,
    waiters_leave_nothing_behind,
    many_keys_take_one_connection,
    first_come_first_served,
    a_waiter_that_gives_up_makes_way,
    many_waiters_take_few_commands,
    a_client_prefix_is_part_of_the_channel,
];

/// So long that only a message explains why somebody gets a lock.
const NEVER_MS: f64 = 30_000.0;

fn options(retry_delay_ms: f64) -> LockOptions {
    LockOptions {
        retry: RetryPolicy {
            max_retries: f64::INFINITY,
            retry_delay_ms,
            jitter: Jitter::None,
            timeout_ms: 60_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
}

fn backend(server: &RedisServer) -> Arc<dyn Backend> {
    backend_with(server, |_| {})
}

fn backend_with(server: &RedisServer, change: impl FnOnce(&mut RedisConfig)) -> Arc<dyn Backend> {
    let mut config = RedisConfig::from_url(&server.url()).unwrap();
    change(&mut config);
    Arc::new(RedisBackend::new(config).unwrap())
}

fn wait_for(
    backend: &Arc<dyn Backend>,
    name: &'static str,
    delay_ms: f64,
) -> JoinHandle<LockGuard> {
    let backend = Arc::clone(backend);
    tokio::spawn(async move {
        lock(&backend, &key(name), &options(delay_ms))
            .await
            .unwrap()
    })
}

fn subscribers(raw: &mut Resp, channel: &str) -> i64 {
    raw.call(&["PUBSUB", "NUMSUB", channel]).list()[1].int()
}

async fn subscribed(raw: &mut Resp, channel: &str) {
    eventually("somebody listens", async || subscribers(raw, channel) == 1).await;
}

/// Fails the test when the lock takes as long as a poll.
async fn soon(waiter: JoinHandle<LockGuard>) -> LockGuard {
    let start = Instant::now();
    let guard = waiter.await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    guard
}

async fn a_release_wakes() {
    let server = RedisServer::start();
    let (ours, theirs) = (backend(&server), backend(&server));
    let held = acquire(ours.as_ref(), "k").await;
    let waiter = wait_for(&theirs, "k", NEVER_MS);
    subscribed(&mut server.connect(), "syncguard:k").await;
    ours.release(&held.lock_id).await.unwrap();
    let guard = soon(waiter).await;
    // The next one waits in the same process, and hears as well.
    let next = wait_for(&theirs, "k", NEVER_MS);
    subscribed(&mut server.connect(), "syncguard:k").await;
    drop(guard);
    soon(next).await;
}

async fn a_forced_release_wakes() {
    let server = RedisServer::start();
    let backend = backend(&server);
    acquire(backend.as_ref(), "k").await;
    let waiter = wait_for(&backend, "k", NEVER_MS);
    subscribed(&mut server.connect(), "syncguard:k").await;
    assert!(backend.force_release(&key("k")).await.unwrap());
    soon(waiter).await;
}

async fn a_clean_up_wakes() {
    let server = RedisServer::start();
    let backend = backend_with(&server, |config| config.locks.cleanup_in_is_locked = true);
    let mut raw = server.connect();
    let mut listener = server.connect();
    listener.call(&["SUBSCRIBE", "syncguard:k"]);
    // An entry that the server does not remove by itself, as a foreign library may write it.
    let id = "AAAAAAAAAAAAAAAAAAAAAA";
    let expired =
        format!(r#"{{"lockId":"{id}","expiresAtMs":1000,"acquiredAtMs":1,"key":"k","fence":"1"}}"#);
    raw.call(&["SET", "syncguard:k", &expired]);
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    let message = listener.read();
    assert_eq!(message.list()[1].text(), "syncguard:k");
}

async fn the_end_of_a_lock_is_known() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let mut held = request("k");
    held.ttl = ttl(300);
    backend.acquire(&held).await.unwrap();
    let start = Instant::now();
    let guard = soon(wait_for(&backend, "k", NEVER_MS)).await;
    assert!(
        start.elapsed() >= Duration::from_millis(1200),
        "{:?}",
        start.elapsed()
    );
    guard.release().await.unwrap();
}

async fn a_lost_connection_is_made_again() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = wait_for(&backend, "k", NEVER_MS);
    let mut raw = server.connect();
    subscribed(&mut raw, "syncguard:k").await;
    assert_eq!(raw.call(&["CLIENT", "KILL", "TYPE", "pubsub"]).int(), 1);
    subscribed(&mut raw, "syncguard:k").await;
    backend.release(&held.lock_id).await.unwrap();
    soon(waiter).await;
}

/// A backend of a user with these rights besides those that locks need.
fn restricted(server: &RedisServer, rights: &[&str]) -> Arc<dyn Backend> {
    let user = "ACL SETUSER locks on >secret ~syncguard:* &syncguard:* +eval +evalsha +get +set +del \
                +incr +time +ping";
    let mut command: Vec<_> = user.split_whitespace().collect();
    command.extend(rights);
    server.connect().call(&command);
    backend_with(server, |config| {
        config.username = Some("locks".to_owned());
        config.password = Some("secret".to_owned());
    })
}

async fn without_the_right_to_listen_it_polls() {
    let server = RedisServer::start();
    let backend = restricted(&server, &["+publish"]);
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = wait_for(&backend, "k", 20.0);
    let mut raw = server.connect();
    let refused = async || !raw.call(&["ACL", "LOG"]).list().is_empty();
    eventually("the server refuses", refused).await;
    backend.release(&held.lock_id).await.unwrap();
    soon(waiter).await;
}

async fn without_the_right_to_publish_locks_are_released() {
    let server = RedisServer::start();
    let restricted = restricted(&server, &[]);
    let held = acquire(restricted.as_ref(), "k").await;
    let waiter = wait_for(&backend(&server), "k", 20.0);
    subscribed(&mut server.connect(), "syncguard:k").await;
    let outcome = restricted.release(&held.lock_id).await.unwrap();
    assert_eq!(outcome, syncguard::ReleaseOutcome::Released);
    soon(waiter).await;
    assert!(!restricted.is_locked(&key("other")).await.unwrap());
    acquire(restricted.as_ref(), "forced").await;
    assert!(restricted.force_release(&key("forced")).await.unwrap());
}

async fn whoever_polls_opens_no_connection() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = {
        let backend = Arc::clone(&backend);
        let mut options = options(20.0);
        options.retry.wait = Wait::Poll;
        tokio::spawn(async move { lock(&backend, &key("k"), &options).await.unwrap() })
    };
    let mut raw = server.connect();
    eventually("it has asked", async || calls(&mut raw) >= 4).await;
    assert_eq!(subscribers(&mut raw, "syncguard:k"), 0);
    backend.release(&held.lock_id).await.unwrap();
    soon(waiter).await;
}

/// How many scripts the server has run.
fn calls(raw: &mut Resp) -> usize {
    let stats = raw.call(&["INFO", "commandstats"]);
    let of = |name: &str| {
        let line = stats
            .text()
            .lines()
            .find_map(|line| line.strip_prefix(name));
        let count = line.and_then(|rest| rest.split(',').next()?.strip_prefix("calls="));
        count.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    of("cmdstat_evalsha:") + of("cmdstat_eval:")
}

async fn waiters_leave_nothing_behind() {
    let server = RedisServer::start();
    let backend = backend(&server);
    acquire(backend.as_ref(), "k").await;
    let mut raw = server.connect();
    for _ in 0..3 {
        let waiters: Vec<_> = (0..20).map(|_| wait_for(&backend, "k", NEVER_MS)).collect();
        subscribed(&mut raw, "syncguard:k").await;
        for waiter in &waiters {
            waiter.abort();
        }
        let empty = async || raw.call(&["PUBSUB", "CHANNELS"]).list().is_empty();
        eventually("nobody listens", empty).await;
    }
    let count = raw.call(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert!(count.text().lines().count() <= 1);
}

async fn many_keys_take_one_connection() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let mut waiters = JoinSet::new();
    let mut held = Vec::new();
    for number in 0..200 {
        let name = format!("k{number}");
        held.push(acquire(backend.as_ref(), &name).await);
        let backend = Arc::clone(&backend);
        let wait = async move {
            lock(&backend, &key(&name), &options(NEVER_MS))
                .await
                .unwrap()
        };
        waiters.spawn(wait);
    }
    let mut raw = server.connect();
    let all = async || raw.call(&["PUBSUB", "CHANNELS"]).list().len() == 200;
    eventually("all listen", all).await;
    let list = raw.call(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(list.text().lines().count(), 1);
    let start = Instant::now();
    for grant in held {
        backend.release(&grant.lock_id).await.unwrap();
    }
    assert_eq!(waiters.join_all().await.len(), 200);
    assert!(start.elapsed() < Duration::from_secs(10));
}

async fn first_come_first_served() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let held = acquire(backend.as_ref(), "k").await;
    let served = Arc::new(AtomicUsize::new(0));
    let mut waiters = JoinSet::new();
    for number in 0..50 {
        let (backend, served) = (Arc::clone(&backend), Arc::clone(&served));
        let mut waiter = Box::pin(async move {
            let guard = lock(&backend, &key("k"), &options(NEVER_MS)).await.unwrap();
            assert_eq!(served.fetch_add(1, SeqCst), number);
            guard.release().await.unwrap();
        });
        // They come in this order: the first poll of each takes its place. Tasks start in any order.
        assert!(timeout(Duration::ZERO, waiter.as_mut()).await.is_err());
        waiters.spawn(waiter);
    }
    subscribed(&mut server.connect(), "syncguard:k").await;
    backend.release(&held.lock_id).await.unwrap();
    waiters.join_all().await;
    assert_eq!(served.load(SeqCst), 50);
}

async fn a_waiter_that_gives_up_makes_way() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let held = acquire(backend.as_ref(), "k").await;
    let first = wait_for(&backend, "k", NEVER_MS);
    subscribed(&mut server.connect(), "syncguard:k").await;
    let mut hurried = options(NEVER_MS);
    hurried.retry.timeout_ms = 50.0;
    // It waits for its turn, and its time is over before.
    let error = lock(&backend, &key("k"), &hurried).await.unwrap_err();
    assert_eq!(error.kind(), syncguard::ErrorKind::AcquisitionTimeout);
    let second = wait_for(&backend, "k", NEVER_MS);
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    backend.release(&held.lock_id).await.unwrap();
    soon(second).await;
}

async fn many_waiters_take_few_commands() {
    const WAITERS: usize = 2000;
    let server = RedisServer::start();
    let backend = backend(&server);
    let held = acquire(backend.as_ref(), "k").await;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let backend = Arc::clone(&backend);
        waiters.spawn(async move {
            let guard = lock(&backend, &key("k"), &options(NEVER_MS)).await.unwrap();
            assert!(guard.release().await.unwrap());
        });
    }
    let mut raw = server.connect();
    subscribed(&mut raw, "syncguard:k").await;
    let before = calls(&mut raw);
    let call = CallOptions::default();
    operation::run::<ReleaseOutcome>(
        &backend,
        Operation::Release([held.lock_id.clone()].into()),
        call,
        pending(),
    )
    .await
    .unwrap();
    waiters.join_all().await;
    let after = calls(&mut raw) - before;
    // One that takes it and one that frees it; a few when listening began.
    assert!(after <= 2 * WAITERS + 10, "{after} commands");
}

async fn a_client_prefix_is_part_of_the_channel() {
    let server = RedisServer::start();
    let backend = backend_with(&server, |config| {
        config.client_key_prefix = "app:".to_owned()
    });
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = wait_for(&backend, "k", NEVER_MS);
    subscribed(&mut server.connect(), "app:syncguard:k").await;
    backend.release(&held.lock_id).await.unwrap();
    soon(waiter).await;
}

async fn a_connection_that_falls_silent_is_made_again_within_seconds() {
    let server = RedisServer::start();
    let link = Link::start(([127, 0, 0, 1], server.port()).into()).await;
    let url = format!("redis://{}", link.address);
    let config = RedisConfig::from_url(&url).unwrap();
    let listener: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    let swallow = || link.swallow_newest();
    deaf_for(
        &listener,
        &backend(&server),
        "a",
        swallow,
        Duration::from_secs(6),
    )
    .await;
}
