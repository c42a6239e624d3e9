//! Nodes that fail, and replicas that take their place.

use std::time::{Duration, Instant};

use syncguard::{Backend, ErrorKind};

use crate::stage::{backend, backend_with, name_on, pair, slot_of, until_it_works};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key};
use crate::support::redis_cluster::RedisCluster;
use crate::support::suite::tests;
use crate::witness::Load;

tests![
    a_primary_that_is_killed_is_replaced_by_its_replica,
    a_primary_that_falls_silent_is_replaced_by_its_replica,
    a_failover_on_purpose_loses_nothing,
    a_cluster_that_is_down_is_unavailable_and_comes_back,
    a_killed_primary_that_comes_back_serves_again,
    a_lock_that_replicas_have_is_there_when_its_primary_is_gone,
];

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
    // With a third of its slots, a cluster is down.
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
