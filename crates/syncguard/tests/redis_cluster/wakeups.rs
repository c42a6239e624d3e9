//! Who hears of what in a cluster, also while hash slots and nodes change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use syncguard::Backend;
use syncguard::redis::{NatMap, RedisServer as Server};
use tokio::time::timeout;

use crate::stage::{backend, backend_with, name_on, names_in, slot_of, until_it_works};
use crate::support::attempts::Attempts as _;
use crate::support::link::Link;
use crate::support::locks::{acquire, eventually, key};
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::Version;
use crate::support::suite::tests;
use crate::support::waiters::{deaf_for, soon, wait_listening, watch};

tests![
    releases_wake_on_all_nodes,
    releases_wake_before_version_7,
    forced_releases_wake,
    many_names_of_one_slot_are_told_of,
    listening_follows_a_slot_that_moves,
    listening_follows_a_failover,
    a_node_that_falls_silent_is_heard_again_within_seconds,
    waiters_leave_nothing_behind,
];

async fn wakes(ours: &Arc<dyn Backend>, theirs: &Arc<dyn Backend>, name: &str) {
    let held = acquire(ours.as_ref(), name).await;
    let waiter = wait_listening(theirs, name).await;
    ours.release(&held.lock_id).await.unwrap();
    let guard = soon(waiter).await.unwrap();
    guard.release().await.unwrap();
}

async fn releases_wake_on_all_nodes() {
    let cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    for primary in 0..3 {
        wakes(&ours, &theirs, &name_on(ours.as_ref(), primary)).await;
    }
    // One message each, to whoever listens on the node that has the hash slot.
    let raw = &mut cluster.nodes[0].connect();
    let channels = raw.call(&["PUBSUB", "CHANNELS"]);
    assert!(channels.list().is_empty(), "{channels:?}");
}

async fn releases_wake_before_version_7() {
    let cluster = RedisCluster::start_with(Version::Oldest, None, &[]);
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    for primary in 0..3 {
        wakes(&ours, &theirs, &name_on(ours.as_ref(), primary)).await;
    }
}

async fn forced_releases_wake() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    acquire(backend.as_ref(), "k").await;
    let waiter = wait_listening(&backend, "k").await;
    assert!(backend.force_release(&key("k")).await.unwrap());
    soon(waiter).await.unwrap();
}

async fn many_names_of_one_slot_are_told_of() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    acquire(backend.as_ref(), "any").await;
    let slot = slot_of(backend.as_ref(), "any");
    let mut watches = Vec::new();
    for name in names_in(backend.as_ref(), slot, 5) {
        watches.push((watch(&backend, &name).await, name));
    }
    for (watch, name) in &watches {
        let held = acquire(backend.as_ref(), name).await;
        backend.release(&held.lock_id).await.unwrap();
        soon(watch.freed()).await;
    }
}

async fn listening_follows_a_slot_that_moves() {
    let cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    let name = name_on(ours.as_ref(), 0);
    let slot = slot_of(ours.as_ref(), &name);
    let held = acquire(ours.as_ref(), &name).await;
    let listening = watch(&theirs, &name).await;
    let waiter = wait_listening(&theirs, &name).await;
    for (from, to) in [(0, 1), (1, 2), (2, 1)] {
        cluster.move_slot(slot, from, to, || {});
        // That it listens again is a reason to try again.
        soon(listening.freed()).await;
        eventually("it listens", async || listening.is_listening()).await;
    }
    ours.release(&held.lock_id).await.unwrap();
    soon(waiter).await.unwrap();
}

async fn listening_follows_a_failover() {
    let mut cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    let name = name_on(ours.as_ref(), 0);
    let (other, third) = (name_on(ours.as_ref(), 1), name_on(ours.as_ref(), 2));
    acquire(ours.as_ref(), &name).await;
    let listening = watch(&theirs, &name).await;
    let elsewhere = watch(&theirs, &other).await;
    cluster.nodes[0].kill();
    // It takes as long as the failover, and a pause.
    timeout(Duration::from_secs(60), listening.freed())
        .await
        .unwrap();
    assert!(elsewhere.is_listening(), "the others are not disturbed");
    until_it_works(&ours, &third).await;
    until_it_works(&ours, &name).await;
    eventually("it listens", async || listening.is_listening()).await;
    ours.force_release(&key(&name)).await.unwrap();
    wakes(&ours, &theirs, &name).await;
}

async fn waiters_leave_nothing_behind() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let names: Vec<_> = (0..3)
        .map(|primary| name_on(backend.as_ref(), primary))
        .collect();
    acquire(backend.as_ref(), &names[0]).await;
    let listeners = || {
        let count = |index: usize| {
            let mut raw = cluster.nodes[index].connect();
            raw.call(&["PUBSUB", "SHARDCHANNELS"]).list().len()
        };
        (0..3).map(count).sum::<usize>()
    };
    {
        let first = watch(&backend, &names[0]).await;
        {
            let mut watches = Vec::new();
            for name in &names[1..] {
                watches.push(watch(&backend, name).await);
            }
            assert_eq!(listeners(), 3);
        }
        eventually("the others are given up", async || listeners() == 1).await;
        assert!(first.is_listening());
    }
    eventually("all are given up", async || listeners() == 0).await;
}

async fn a_node_that_falls_silent_is_heard_again_within_seconds() {
    let cluster = RedisCluster::start();
    let mut links = HashMap::new();
    for node in &cluster.nodes {
        let link = Link::start(([127, 0, 0, 1], node.port()).into()).await;
        links.insert(node.port(), link);
    }
    let ports: HashMap<_, _> = links
        .iter()
        .map(|(port, link)| (*port, link.address.port()))
        .collect();
    let listener = backend_with(&cluster.url(), |config| {
        let Server::Cluster(set) = &mut config.server else {
            panic!("not a cluster");
        };
        set.nat_map = Some(NatMap::new(move |host, port| {
            Some((host.to_owned(), *ports.get(&port)?))
        }));
    });
    let name = name_on(listener.as_ref(), 0);
    let swallow = || links[&cluster.nodes[0].port()].swallow_newest();
    let theirs = backend(&cluster.url());
    deaf_for(&listener, &theirs, &name, swallow, Duration::from_secs(6)).await;
}
