//! Sentinels that do not agree, or that were made to watch another server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use syncguard::redis::RedisConfig;
use syncguard::{AcquireOutcome, AutoExtend, Backend, LockOptions, lock};
use tokio::sync::watch;

use crate::fake::{Said, sentinel_that_names};
use crate::load::{backend, pair};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{eventually, key, request, ttl};
use crate::support::process::free_port;
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![
    a_later_epoch_of_a_dead_server_keeps_nobody_for_long_from_what_most_name,
    where_epochs_are_unknown_all_go_to_what_most_name,
    another_server_that_all_were_told_to_watch_is_gone_to,
];

const SENTINELS: usize = 3;

/// A backend whose Sentinels are at these ports.
fn by(sentinels: &[u16]) -> Arc<dyn Backend> {
    let nodes: Vec<_> = sentinels
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let url = format!("redis+sentinel://{}/main", nodes.join(","));
    backend(RedisConfig::from_url(&url).unwrap())
}

/// Sentinels that say what the other half tells them to, and how often they were asked.
async fn sentinels(
    said: Said,
    tell: bool,
) -> (Vec<u16>, Vec<watch::Sender<Said>>, Arc<AtomicUsize>) {
    let (mut ports, mut told) = (Vec::new(), Vec::new());
    let asked = Arc::new(AtomicUsize::new(0));
    for _ in 0..SENTINELS {
        let (tells, says) = watch::channel(said);
        let asked = Arc::clone(&asked);
        let said = move |_: usize| {
            asked.fetch_add(1, SeqCst);
            *says.borrow()
        };
        ports.push(sentinel_that_names(said, tell).await);
        told.push(tells);
    }
    (ports, told, asked)
}

fn connections(server: &RedisServer) -> usize {
    let clients = server.connect().call(&["CLIENT", "LIST", "TYPE", "normal"]);
    clients.text().matches(" addr=127.0.0.1:").count()
}

async fn a_later_epoch_of_a_dead_server_keeps_nobody_for_long_from_what_most_name() {
    let server = RedisServer::start();
    let (ports, told, asked) = sentinels((server.port(), Some(5)), false).await;
    let before = by(&ports);
    let options = LockOptions {
        ttl: ttl(60_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&before, &key("held"), &options).await.unwrap();
    told[1].send_replace((free_port(), Some(99)));
    let refused = |backend: &Arc<dyn Backend>| {
        let backend = Arc::clone(backend);
        async move { backend.is_locked(&key("k")).await.is_err() }
    };
    eventually("it is taken for a failover", async || {
        refused(&before).await
    })
    .await;
    // Who comes now finds it, too.
    let after = by(&ports);
    for backend in [&before, &after] {
        eventually("it has lasted too long for one", async || {
            !refused(backend).await
        })
        .await;
    }
    assert!(guard.assert_held().is_ok());
    assert!(guard.release().await.unwrap());
    // The one that still names it takes nobody away again.
    let so_far = asked.load(SeqCst);
    eventually("each was asked again", async || {
        asked.load(SeqCst) > so_far + 3 * SENTINELS
    })
    .await;
    pair(&before, "k").await.unwrap();
}

async fn where_epochs_are_unknown_all_go_to_what_most_name() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let (mut ports, told, _) = sentinels((servers[0].port(), None), false).await;
    told[0].send_replace((servers[1].port(), None));
    let mut granted = 0;
    let mut backends = Vec::new();
    for _ in 0..12 {
        ports.rotate_left(1);
        let backend = by(&ports);
        let outcome = backend.acquire(&request("k")).await.unwrap();
        granted += usize::from(matches!(outcome, AcquireOutcome::Acquired(_)));
        backends.push(backend);
    }
    assert_eq!(granted, 1);
    assert_eq!(connections(&servers[1]), 0);
}

async fn another_server_that_all_were_told_to_watch_is_gone_to() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let (ports, told, _) = sentinels((servers[0].port(), Some(6)), true).await;
    let backend = by(&ports);
    let options = LockOptions {
        // A heartbeat in a hundred seconds.
        ttl: ttl(300_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("held"), &options).await.unwrap();
    // SENTINEL REMOVE and SENTINEL MONITOR: no subscriber hears of it.
    for told in &told {
        told.send_replace((servers[1].port(), Some(0)));
    }
    let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
    let lost = lost.expect("long before the next heartbeat");
    assert!(
        lost.message().contains("the store no longer has it"),
        "{lost}"
    );
    pair(&backend, "k").await.unwrap();
    assert_eq!(connections(&servers[0]), 0);
}
