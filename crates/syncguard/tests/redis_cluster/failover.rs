//! Nodes that fail, and replicas that take their place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::redis::key_slot;
use syncguard::{AutoExtend, Backend, ErrorKind, LockOptions, lock};

use crate::stage::{backend, backend_with, name_on, pair, slot_of, until_it_works};
use crate::support::attempts::Attempts as _;
use crate::support::failover::{Make, no_lock_had_two, watched};
use crate::support::locks::{acquire, eventually, key, ttl};
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::{RedisServer, Version};
use crate::support::resp::Answer;
use crate::support::suite::tests;
use crate::witness::Load;

tests![
    a_primary_that_is_killed_is_replaced_by_its_replica,
    a_primary_that_falls_silent_is_replaced_by_its_replica,
    a_failover_on_purpose_loses_nothing,
    a_cluster_that_is_down_is_unavailable_and_comes_back,
    a_cluster_that_is_down_and_may_be_read_is_waited_for,
    a_killed_primary_that_comes_back_serves_again,
    a_lock_that_replicas_have_is_there_when_its_primary_is_gone,
    a_failover_on_purpose_gives_no_lock_to_two,
    a_primary_that_is_killed_gives_no_lock_to_two,
    holders_hear_of_a_failover_at_once,
];

/// For how long two may hold a lock that was granted in the middle of it. It is 0 where the machine has time (docs/reliability/failovers.md,
/// "Redis"). A busy one may tell a holder late, but whoever hears of it from the next heartbeat alone, after a second, was not told.
const OVERLAP: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(2);
const KINDS: [ErrorKind; 2] = [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];

fn quick(cluster: &RedisCluster) -> std::sync::Arc<dyn Backend> {
    backend_with(&cluster.url(), |config| {
        config.locks.operation_timeout = TIMEOUT
    })
}

/// Names on each of the primaries.
fn names(backend: &dyn Backend) -> Vec<String> {
    (0..3).map(|primary| name_on(backend, primary)).collect()
}

/// What happens to the load when a primary is gone until its replica has taken its place.
#[allow(
    clippy::print_stdout,
    reason = "losses are allowed, and worth to be known"
)]
async fn replaced(cluster: &mut RedisCluster, fail: impl FnOnce(&mut RedisCluster)) {
    let backends = [quick(cluster), quick(cluster)];
    let names = names(backends[0].as_ref());
    let load = Load::start(&backends, &names, TIMEOUT + Duration::from_secs(3));
    load.goes_on().await;
    fail(cluster);
    load.fails().await;
    until_it_works(&backends[0], &names[0]).await;
    load.goes_on().await;
    let done = load.done();
    let ended = load.end().await;
    // Replication is asynchronous: what the replica had not got is lost, and fences of those locks may come again.
    let offences: Vec<_> = ended
        .offences
        .iter()
        .filter(|what| !what.contains(&names[0]))
        .collect();
    assert!(offences.is_empty(), "on primaries that stay: {offences:?}");
    println!(
        "of {done} locks, {} were lost with the primary, and {} times its successor repeated something; {} errors",
        ended.lost,
        ended.offences.len(),
        ended.errors.len()
    );
    for error in &ended.errors {
        assert!(KINDS.contains(&error.kind()), "{error:?}");
    }
    for name in &names {
        until_it_works(&backends[1], name).await;
    }
}

async fn a_primary_that_is_killed_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start();
    replaced(&mut cluster, |cluster| cluster.nodes[0].kill()).await;
}

async fn a_primary_that_falls_silent_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start();
    replaced(&mut cluster, |cluster| cluster.nodes[0].signal("STOP")).await;
    cluster.nodes[0].signal("CONT");
}

async fn a_failover_on_purpose_loses_nothing() {
    let cluster = RedisCluster::start();
    let backends = [backend(&cluster.url()), backend(&cluster.url())];
    let names = names(backends[0].as_ref());
    let slot = slot_of(backends[0].as_ref(), &names[1]);
    let load = Load::start(&backends, &names, Duration::from_secs(8));
    load.goes_on().await;
    for new in [RedisCluster::replica_of(1), 1] {
        tokio::task::block_in_place(|| cluster.fail_over(new, slot));
        load.goes_on().await;
    }
    let ended = load.end().await;
    assert!(ended.offences.is_empty(), "{:?}", ended.offences);
    assert_eq!(ended.lost, 0);
    for error in &ended.errors {
        assert!(KINDS.contains(&error.kind()), "{error:?}");
    }
}

async fn a_cluster_that_is_down_is_unavailable_and_comes_back() {
    let mut cluster = RedisCluster::start();
    let backend = quick(&cluster);
    let names = names(backend.as_ref());
    for name in &names {
        pair(&backend, name).await.unwrap();
    }
    // With a third of its hash slots, a cluster is down.
    let replica = RedisCluster::replica_of(0);
    for gone in [replica, 0] {
        cluster.nodes[gone].kill();
    }
    cluster.until("it is down", |raw| {
        raw.call(&["CLUSTER", "INFO"])
            .text()
            .contains("cluster_state:fail")
    });
    for name in &names {
        let start = Instant::now();
        let error = pair(&backend, name).await.unwrap_err();
        assert!(start.elapsed() < TIMEOUT + Duration::from_secs(2));
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(!error.is_outcome_unknown(), "it was not run");
    }
    let error = pair(&backend, &names[1]).await.unwrap_err();
    assert!(error.message().contains("CLUSTERDOWN"), "{error}");
    for back in [0, replica] {
        cluster.nodes[back].restart();
    }
    for name in &names {
        until_it_works(&backend, name).await;
    }
}

/// It runs scripts, and refuses what they want to write.
async fn a_cluster_that_is_down_and_may_be_read_is_waited_for() {
    for version in [Version::Installed, Version::Oldest] {
        let settings = [
            "cluster-enabled yes",
            "cluster-config-file nodes.conf",
            "cluster-allow-reads-when-down yes",
        ];
        let node = RedisServer::start_node(version, None, &settings);
        let mut raw = node.connect();
        let slots: Vec<_> = (1..16384).map(|slot| slot.to_string()).collect();
        let all = ["CLUSTER", "ADDSLOTS"].into_iter();
        let all: Vec<&str> = all.chain(slots.iter().map(String::as_str)).collect();
        assert_eq!(raw.call(&all), Answer::Text("OK".to_owned()));
        let url = format!("redis+cluster://127.0.0.1:{}", node.port());
        let hasty = backend_with(&url, |config| {
            config.locks.operation_timeout = Duration::from_millis(500);
        });
        let error = pair(&hasty, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        assert!(error.message().contains("CLUSTERDOWN"), "{error}");
        assert!(!error.is_outcome_unknown(), "it has written nothing");
        let patient = backend_with(&url, |config| {
            config.locks.operation_timeout = Duration::from_secs(60);
        });
        let waiting = tokio::spawn(async move { pair(&patient, "k").await });
        eventually("the script has been refused", async || {
            raw.call(&["INFO", "commandstats"])
                .text()
                .contains("cmdstat_evalsha")
        })
        .await;
        assert_eq!(raw.call(&["CLUSTER", "ADDSLOTS", "0"]).text(), "OK");
        waiting.await.unwrap().unwrap();
    }
}

async fn a_killed_primary_that_comes_back_serves_again() {
    let mut cluster = RedisCluster::start();
    let backend = quick(&cluster);
    let name = name_on(backend.as_ref(), 2);
    let held = acquire(backend.as_ref(), &name).await;
    cluster.nodes[2].kill();
    until_it_works(&backend, &name).await;
    // It has become the replica of its replica; then they change places again.
    cluster.nodes[2].restart();
    let slot = slot_of(backend.as_ref(), &name);
    tokio::task::block_in_place(|| cluster.fail_over(2, slot));
    until_it_works(&backend, &name).await;
    let _ = backend.release(&held.lock_id).await.unwrap();
    assert!(!backend.is_locked(&key(&name)).await.unwrap());
}

async fn a_lock_that_replicas_have_is_there_when_its_primary_is_gone() {
    let mut cluster = RedisCluster::start();
    let replicated = |replicas| {
        backend_with(&cluster.url(), |config| {
            config.locks.operation_timeout = TIMEOUT;
            config.locks.replicas = replicas;
        })
    };
    let (backend, impossible) = (replicated(1), replicated(2));
    let name = name_on(backend.as_ref(), 0);
    let slot = slot_of(backend.as_ref(), &name);
    let error = pair(&impossible, &name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    eventually("it is released", async || {
        !backend.is_locked(&key(&name)).await.unwrap()
    })
    .await;
    let grant = acquire(backend.as_ref(), &name).await;
    let replica = RedisCluster::replica_of(0);
    cluster.nodes[0].kill();
    cluster.until("its replica has taken over", |raw| {
        cluster.owner(raw, slot) == Some(replica)
    });
    cluster.until_ok();
    until_it_works(&backend, &name).await;
    let lookup = syncguard::Lookup::LockId(grant.lock_id.clone());
    let record = backend.lookup(&lookup).await.unwrap().unwrap();
    assert_eq!(record.fence, grant.fence);
}

/// Backends whose locks are all on the first primary.
fn on_the_first(cluster: &RedisCluster) -> (Make, u16) {
    let mut tags = (0..).map(|number| format!("{{tag{number}}}"));
    let is_there = |tag: &String| RedisCluster::first_owner(key_slot(tag)) == 0;
    let tag = tags.find(is_there).unwrap();
    let (url, slot) = (cluster.url(), key_slot(&tag));
    let make = move |replicas| {
        backend_with(&url, |config| {
            config.locks.key_prefix = tag.clone();
            config.locks.replicas = replicas;
        })
    };
    (Arc::new(make), slot)
}

async fn a_failover_on_purpose_gives_no_lock_to_two() {
    let cluster = RedisCluster::start();
    let (make, slot) = on_the_first(&cluster);
    let fail = || cluster.fail_over(RedisCluster::replica_of(0), slot);
    let all = watched(make, &[0, 1], fail).await;
    no_lock_had_two(&all, OVERLAP);
    assert_eq!(all[0].lost, None, "{all:?}");
}

async fn a_primary_that_is_killed_gives_no_lock_to_two() {
    let mut cluster = RedisCluster::start();
    let (make, slot) = on_the_first(&cluster);
    let fail = || {
        cluster.nodes[0].kill();
        let replica = RedisCluster::replica_of(0);
        cluster.until("its replica has taken over", |raw| {
            cluster.owner(raw, slot) == Some(replica)
        });
        cluster.nodes[0].restart();
    };
    no_lock_had_two(&watched(make, &[0, 1], fail).await, OVERLAP);
}

async fn holders_hear_of_a_failover_at_once() {
    let cluster = RedisCluster::start();
    let (make, slot) = on_the_first(&cluster);
    let backend = make(0);
    let options = LockOptions {
        // A heartbeat in a hundred seconds.
        ttl: ttl(300_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("held"), &options).await.unwrap();
    let granted = guard.expires_at_ms();
    tokio::task::block_in_place(|| cluster.fail_over(RedisCluster::replica_of(0), slot));
    eventually("it is extended long before its time", async || {
        until_it_works(&backend, "other").await;
        guard.expires_at_ms() > granted
    })
    .await;
    assert!(guard.release().await.unwrap());
}
