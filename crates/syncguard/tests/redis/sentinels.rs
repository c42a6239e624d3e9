//! Sentinels that do not agree, or that were made to watch another server.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncguard::redis::{FewSentinels, RedisConfig};
use syncguard::{AcquireOutcome, AutoExtend, Backend, LockOptions, lock};

use crate::fake::{FakeSentinel, Said, sentinel};
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
    a_primary_that_few_name_is_told_of,
];

const SENTINELS: usize = 3;

/// A backend by these Sentinels.
fn by(sentinels: &[FakeSentinel]) -> Arc<dyn Backend> {
    let ports: Vec<_> = sentinels.iter().map(|sentinel| sentinel.port).collect();
    backend(by_ports(&ports))
}

fn by_ports(ports: &[u16]) -> RedisConfig {
    let nodes: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let url = format!("redis+sentinel://{}/main", nodes.join(","));
    RedisConfig::from_url(&url).unwrap()
}

async fn sentinels(said: Said, tell: bool) -> Vec<FakeSentinel> {
    let mut sentinels = Vec::new();
    for _ in 0..SENTINELS {
        sentinels.push(sentinel(said, tell).await);
    }
    sentinels
}

fn connections(server: &RedisServer) -> usize {
    let clients = server.connect().call(&["CLIENT", "LIST", "TYPE", "normal"]);
    clients.text().matches(" addr=127.0.0.1:").count()
}

async fn a_later_epoch_of_a_dead_server_keeps_nobody_for_long_from_what_most_name() {
    let server = RedisServer::start();
    let sentinels = sentinels((server.port(), Some(5)), false).await;
    let before = by(&sentinels);
    let options = LockOptions {
        ttl: ttl(60_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&before, &key("held"), &options).await.unwrap();
    sentinels[1].told.send_replace((free_port(), Some(99)));
    let refused = |backend: &Arc<dyn Backend>| {
        let backend = Arc::clone(backend);
        async move { backend.is_locked(&key("k")).await.is_err() }
    };
    eventually("it is taken for a failover", async || {
        refused(&before).await
    })
    .await;
    // Who comes now finds it, too.
    let after = by(&sentinels);
    for backend in [&before, &after] {
        eventually("it has lasted too long for one", async || {
            !refused(backend).await
        })
        .await;
    }
    assert!(guard.assert_held().is_ok());
    assert!(guard.release().await.unwrap());
    // Another backend of this process does not wait again.
    pair(&by(&sentinels), "k").await.unwrap();
    // The one that still names it takes nobody away again.
    let asked = || -> Vec<_> {
        let sentinels = sentinels.iter();
        sentinels.map(|each| each.asked.load(SeqCst)).collect()
    };
    let so_far = asked();
    eventually("each was asked again", async || {
        let mut pairs = asked().into_iter().zip(&so_far);
        pairs.all(|(now, so_far)| now > so_far + 1)
    })
    .await;
    pair(&before, "k").await.unwrap();
}

async fn where_epochs_are_unknown_all_go_to_what_most_name() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut sentinels = sentinels((servers[0].port(), None), false).await;
    sentinels[0].told.send_replace((servers[1].port(), None));
    let mut granted = 0;
    let mut backends = Vec::new();
    for _ in 0..12 {
        sentinels.rotate_left(1);
        let backend = by(&sentinels);
        let outcome = backend.acquire(&request("k")).await.unwrap();
        granted += usize::from(matches!(outcome, AcquireOutcome::Acquired(_)));
        backends.push(backend);
    }
    assert_eq!(granted, 1);
    assert_eq!(connections(&servers[1]), 0);
}

async fn another_server_that_all_were_told_to_watch_is_gone_to() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinels = sentinels((servers[0].port(), Some(6)), true).await;
    let backend = by(&sentinels);
    let options = LockOptions {
        // A heartbeat in a hundred seconds.
        ttl: ttl(300_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("held"), &options).await.unwrap();
    // SENTINEL REMOVE and SENTINEL MONITOR: no subscriber hears of it.
    for sentinel in &sentinels {
        sentinel.told.send_replace((servers[1].port(), Some(0)));
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

async fn a_primary_that_few_name_is_told_of() {
    let server = RedisServer::start();
    let sentinels = sentinels((server.port(), Some(5)), false).await;
    let gone = free_port();
    let [first, second] = [sentinels[0].port, sentinels[1].port];
    for (ports, told) in [
        (vec![first, second, gone], vec![]),
        (vec![first, second, gone, gone], vec![(2, 4)]),
        (vec![first, gone, gone], vec![(1, 3)]),
        (vec![first], vec![]),
    ] {
        let heard: Arc<Mutex<Vec<_>>> = Arc::default();
        let hearing = Arc::clone(&heard);
        let backend = backend(RedisConfig {
            on_few_sentinels: Some(Arc::new(move |few: FewSentinels| {
                hearing.lock().unwrap().push((few.naming, few.known));
            })),
            ..by_ports(&ports)
        });
        assert!(!backend.is_locked(&key("k")).await.unwrap());
        assert_eq!(*heard.lock().unwrap(), told);
    }
}
