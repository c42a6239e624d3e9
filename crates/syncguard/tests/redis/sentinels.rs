//! Sentinels that do not agree: the primary is what most of them name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use syncguard::redis::RedisConfig;
use syncguard::{AcquireOutcome, AutoExtend, Backend, LockOptions, lock};
use tokio::sync::watch;

use crate::fake::{Said, sentinel_that_names};
use crate::load::{backend, pair, until_it_works};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{eventually, key, request, ttl};
use crate::support::process::free_port;
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![
    a_later_epoch_of_a_dead_server_keeps_nobody_from_what_most_name,
    where_epochs_are_unknown_all_go_to_what_most_name,
    what_all_name_counts_though_they_have_changed_their_minds_unseen,
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

async fn a_later_epoch_of_a_dead_server_keeps_nobody_from_what_most_name() {
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
    let so_far = asked.load(SeqCst);
    eventually("each was asked again", async || {
        asked.load(SeqCst) > so_far + 3 * SENTINELS
    })
    .await;
    assert!(guard.assert_held().is_ok());
    assert!(guard.release().await.unwrap());
    // Who comes now finds it, too, at the first attempt.
    pair(&by(&ports), "k").await.unwrap();
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

async fn what_all_name_counts_though_they_have_changed_their_minds_unseen() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let ports = [servers[0].port(), servers[1].port()];
    let mut sentinels = Vec::new();
    for _ in 0..SENTINELS {
        // Between the search and the first answer to those who listen.
        let said = move |question: usize| (ports[usize::from(question > 0)], None);
        sentinels.push(sentinel_that_names(said, true).await);
    }
    let backend = by(&sentinels);
    until_it_works(&backend).await;
    eventually("the other one is gone to", async || {
        connections(&servers[0]) == 0 && pair(&backend, "k").await.is_ok()
    })
    .await;
    assert!(connections(&servers[1]) > 0);
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
