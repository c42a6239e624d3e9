//! Fences go on rising when the server has lost its counters.

use std::sync::Arc;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, Fence};

use crate::load::until_it_works;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, is_from_the_clock, until_after};
use crate::support::redis_server::RedisServer;
use crate::support::resp::Answer;
use crate::support::suite::tests;

tests![
    fences_rise_over_a_flush,
    fences_rise_over_a_restart_without_data,
    fences_rise_over_a_backup_that_is_restored,
    fences_rise_over_a_failover_that_lost_them,
    fences_rise_beside_a_library_that_counts,
    a_counter_that_is_no_number_is_left_alone,
];

const COUNTER: &str = "syncguard:fence:syncguard:k";

fn backend(url: &str) -> Arc<dyn Backend> {
    Arc::new(RedisBackend::new(RedisConfig::from_url(url).unwrap()).unwrap())
}

/// Takes and frees the lock.
async fn pass(backend: &dyn Backend) -> Fence {
    let grant = acquire(backend, "k").await;
    backend.release(&grant.lock_id).await.unwrap();
    grant.fence
}

async fn fences_rise_over_a_flush() {
    let server = RedisServer::start();
    let backend = backend(&server.url());
    let mut last = pass(&*backend).await;
    for _ in 0..10 {
        until_after(last).await;
        server.connect().call(&["FLUSHALL"]);
        let next = pass(&*backend).await;
        assert!(next > last);
        last = next;
    }
}

async fn fences_rise_over_a_restart_without_data() {
    let mut server = RedisServer::start();
    let backend = backend(&server.url());
    let before = pass(&*backend).await;
    server.kill();
    server.restart();
    assert_eq!(server.connect().call(&["DBSIZE"]), Answer::Int(0));
    until_it_works(&backend).await;
    assert!(pass(&*backend).await > before);
}

async fn fences_rise_over_a_backup_that_is_restored() {
    let mut server = RedisServer::start();
    let backend = backend(&server.url());
    let saved = pass(&*backend).await;
    server.connect().call(&["SAVE"]);
    let before = pass(&*backend).await;
    assert!(before > saved);
    server.kill();
    server.restart();
    let counter = server.connect().call(&["GET", COUNTER]);
    assert_eq!(counter.text(), saved.get().to_string());
    until_it_works(&backend).await;
    assert!(pass(&*backend).await > before);
}

async fn fences_rise_over_a_failover_that_lost_them() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    let sentinel = RedisServer::start_sentinel(&primary, &[]);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let backend = backend(&url);
    until_it_works(&backend).await;
    let mut raw = sentinel.connect();
    eventually("the sentinel knows the replica", async || {
        let replicas = raw.call(&["SENTINEL", "REPLICAS", "main"]);
        format!("{replicas:?}").contains("\"master-link-status\"), Text(\"ok\")")
    })
    .await;
    let kept = pass(&*backend).await;
    let mut at_replica = replica.connect();
    let kept_text = kept.get().to_string();
    eventually("the replica has it", async || {
        at_replica.call(&["GET", COUNTER]) == Answer::Text(kept_text.clone())
    })
    .await;
    // From now on, it receives nothing: it cannot come back to its primary.
    at_replica.call(&["CONFIG", "SET", "masterauth", "wrong"]);
    at_replica.call(&["CLIENT", "KILL", "TYPE", "master"]);
    let mut lost = kept;
    for _ in 0..10 {
        lost = pass(&*backend).await;
    }
    assert_eq!(at_replica.call(&["GET", COUNTER]).text(), kept_text);
    primary.kill();
    until_it_works(&backend).await;
    // Whoever becomes a primary ends its connections.
    let counter = replica.connect().call(&["GET", COUNTER]);
    assert_eq!(counter.text(), kept_text);
    assert!(pass(&*backend).await > lost);
}

async fn fences_rise_beside_a_library_that_counts() {
    let server = RedisServer::start();
    let backend = backend(&server.url());
    let mut raw = server.connect();
    // The first is theirs.
    assert_eq!(raw.call(&["INCR", COUNTER]), Answer::Int(1));
    let mut last = pass(&*backend).await.get();
    assert!(is_from_the_clock(last));
    for _ in 0..20 {
        let ours = pass(&*backend).await.get();
        assert!(ours > last);
        let theirs = raw.call(&["INCR", COUNTER]).int().unsigned_abs();
        assert_eq!(theirs, ours + 1);
        last = theirs;
    }
}

async fn a_counter_that_is_no_number_is_left_alone() {
    let server = RedisServer::start();
    let backend = backend(&server.url());
    let mut raw = server.connect();
    for text in ["x", "", "1.5", "01", "+1", "1e3", "0x10"] {
        raw.call(&["SET", COUNTER, text]);
        let error = crate::support::locks::try_acquire(&*backend, "k").await;
        let error = error.unwrap_err();
        assert!(
            error.message().contains("fence counter no number"),
            "{error}"
        );
        assert_eq!(raw.call(&["GET", COUNTER]).text(), text);
        assert_eq!(raw.call(&["EXISTS", "syncguard:k"]), Answer::Int(0));
    }
}
