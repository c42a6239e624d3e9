//! Hash slots that move from one node to another while locks are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use syncguard::{Error, ErrorKind, LockOptions, Lookup, ReleaseOutcome, lock};

use crate::stage::{backend, backend_with, name_on, names_in, names_of, pair, slot_of};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key, try_acquire, ttl};
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::Version;
use crate::support::suite::tests;
use crate::witness::Load;

tests![
    locks_move_with_their_slot,
    a_slot_that_is_half_moved_is_waited_for,
    a_slot_that_stays_half_moved_is_unavailable,
    what_belongs_together_is_never_used_apart,
    without_the_right_to_ask_it_says_so,
    a_slot_that_moves_under_load_loses_nothing,
    a_slot_that_moves_under_load_loses_nothing_before_version_7,
    a_node_that_joins_gets_locks_and_leaves_again,
];

async fn locks_move_with_their_slot() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 0);
    let slot = slot_of(backend.as_ref(), &name);
    let mut fence = 0;
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let held = acquire(backend.as_ref(), &name).await;
        assert!(held.fence.get() > fence);
        fence = held.fence.get();
        cluster.move_slot(slot, from, to, || {});
        assert!(backend.is_locked(&key(&name)).await.unwrap());
        let released = backend.release(&held.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert!(!backend.is_locked(&key(&name)).await.unwrap());
    }
}

async fn a_slot_that_is_half_moved_is_waited_for() {
    let cluster = Arc::new(RedisCluster::start());
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 0);
    let slot = slot_of(backend.as_ref(), &name);
    // Six keys: a lock with an index and a fence, and another one's.
    let held = acquire(backend.as_ref(), &name).await;
    acquire(backend.as_ref(), &names_in(backend.as_ref(), slot, 2)[1]).await;
    let (ready, go) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let moving = {
        let cluster = Arc::clone(&cluster);
        std::thread::spawn(move || {
            cluster.move_slot(slot, 0, 2, || {
                ready.0.send(()).unwrap();
                go.1.recv().unwrap();
            });
        })
    };
    tokio::task::spawn_blocking(move || ready.1.recv().unwrap())
        .await
        .unwrap();
    // A key alone is found on either side; those that belong together are waited for.
    let another = names_in(backend.as_ref(), slot, 3).pop().unwrap();
    assert!(!backend.is_locked(&key(&another)).await.unwrap());
    assert!(backend.is_locked(&key(&name)).await.unwrap());
    let taking = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { acquire(backend.as_ref(), &another).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!taking.is_finished(), "its index is on neither side yet");
    go.0.send(()).unwrap();
    tokio::task::spawn_blocking(move || moving.join().unwrap())
        .await
        .unwrap();
    taking.await.unwrap();
    assert_eq!(
        backend.release(&held.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
}

async fn a_slot_that_stays_half_moved_is_unavailable() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.locks.operation_timeout = Duration::from_millis(800);
    });
    let name = name_on(backend.as_ref(), 0);
    let slot = slot_of(backend.as_ref(), &name).to_string();
    let (source, target) = (cluster.id(0), cluster.id(1));
    cluster.nodes[1]
        .connect()
        .call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    cluster.nodes[0]
        .connect()
        .call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    let error = pair(&backend, &name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("TRYAGAIN"), "{error}");
    assert!(!error.is_outcome_unknown(), "it was not run");
    for node in &cluster.nodes[..2] {
        node.connect()
            .call(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    }
    pair(&backend, &name).await.unwrap();
}

async fn what_belongs_together_is_never_used_apart() {
    let cluster = RedisCluster::start();
    let hasty = || {
        backend_with(&cluster.url(), |config| {
            config.locks.operation_timeout = Duration::from_millis(400);
        })
    };
    let ours = hasty();
    let name = name_on(ours.as_ref(), 0);
    let slot = slot_of(ours.as_ref(), &name);
    let (port, number) = (cluster.nodes[1].port().to_string(), slot.to_string());
    let waits = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error}");
        assert!(error.message().contains("TRYAGAIN"), "{error}");
    };
    let mut fence = 0;
    for moved in 0..3 {
        let held = acquire(ours.as_ref(), &name).await;
        assert!(held.fence.get() > fence);
        fence = held.fence.get();
        let id = held.lock_id;
        let mut names = names_of(ours.as_ref(), &name);
        names[1] = format!("{}{}", &names[1][..names[1].len() - 22], id.as_str());
        // One of the three is on the other node.
        let (source, target) = (cluster.id(0), cluster.id(1));
        let mut at_source = cluster.nodes[0].connect();
        let mut at_target = cluster.nodes[1].connect();
        at_target.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source]);
        at_source.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target]);
        let gone = at_source.call(&["MIGRATE", "127.0.0.1", &port, &names[moved], "0", "5000"]);
        assert_eq!(gone.text(), "OK");
        let stranger = hasty();
        if moved == 2 {
            // Whoever releases does not need the counter. Whoever takes the lock does.
            assert_eq!(ours.release(&id).await.unwrap(), ReleaseOutcome::Released);
        } else {
            for backend in [&ours, &stranger] {
                waits(backend.release(&id).await.unwrap_err());
                waits(backend.extend(&id, ttl(60_000)).await.unwrap_err());
                waits(
                    backend
                        .lookup(&Lookup::LockId(id.clone()))
                        .await
                        .unwrap_err(),
                );
                waits(backend.force_release(&key(&name)).await.unwrap_err());
                assert!(backend.is_locked(&key(&name)).await.unwrap());
            }
        }
        waits(try_acquire(ours.as_ref(), &name).await.unwrap_err());
        cluster.move_slot(slot, 0, 1, || {});
        if moved != 2 {
            assert_eq!(ours.release(&id).await.unwrap(), ReleaseOutcome::Released);
        }
        assert!(!stranger.is_locked(&key(&name)).await.unwrap());
        cluster.move_slot(slot, 1, 0, || {});
    }
    assert!(acquire(ours.as_ref(), &name).await.fence.get() > fence);
}

async fn without_the_right_to_ask_it_says_so() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 0);
    let slot = slot_of(backend.as_ref(), &name).to_string();
    let (source, target) = (cluster.id(0), cluster.id(1));
    let mut at_target = cluster.nodes[1].connect();
    at_target.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    cluster.nodes[0]
        .connect()
        .call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    assert!(
        !backend.is_locked(&key(&name)).await.unwrap(),
        "both steps work"
    );
    at_target.call(&["ACL", "SETUSER", "default", "-asking"]);
    let error = backend.is_locked(&key(&name)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.message().contains("asking"), "{error}");
}

async fn a_slot_that_moves_under_load_loses_nothing() {
    moves_under_load(RedisCluster::start()).await;
}

async fn a_slot_that_moves_under_load_loses_nothing_before_version_7() {
    moves_under_load(RedisCluster::start_with(Version::Oldest, None, &[])).await;
}

async fn moves_under_load(cluster: RedisCluster) {
    let cluster = Arc::new(cluster);
    let backends = [backend(&cluster.url()), backend(&cluster.url())];
    let name = name_on(backends[0].as_ref(), 0);
    let slot = slot_of(backends[0].as_ref(), &name);
    let names = names_in(backends[0].as_ref(), slot, 3);
    let load = Load::start(&backends, &names, Duration::from_secs(8));
    load.goes_on().await;
    for round in 0..12 {
        let (from, to) = [(0, 1), (1, 2), (2, 0)][round % 3];
        let cluster = Arc::clone(&cluster);
        let moving = tokio::task::spawn_blocking(move || {
            // Long enough that calls meet the open slot.
            cluster.move_slot(slot, from, to, || {
                std::thread::sleep(Duration::from_millis(30))
            });
        });
        moving.await.unwrap();
        load.goes_on().await;
    }
    let done = load.done();
    let ended = load.end().await;
    assert!(ended.offences.is_empty(), "{:?}", ended.offences);
    assert_eq!(ended.lost, 0, "of {done} locks");
    for error in &ended.errors {
        let kinds = [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
    // Nothing is left behind on any node.
    for name in &names {
        assert!(!backends[0].is_locked(&key(name)).await.unwrap());
    }
    let fences: Vec<_> = names
        .iter()
        .map(|name| names_of(backends[0].as_ref(), name)[2].clone())
        .collect();
    let mut raw = cluster.nodes[0].connect();
    let keys = raw.call(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
    let left: Vec<_> = keys
        .list()
        .iter()
        .map(|key| key.text().to_owned())
        .collect();
    assert!(left.iter().all(|key| fences.contains(key)), "{left:?}");
}

async fn a_node_that_joins_gets_locks_and_leaves_again() {
    let mut cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 1);
    let slot = slot_of(backend.as_ref(), &name);
    let done = Arc::new(AtomicU64::new(0));
    let working = {
        let (backend, name, done) = (Arc::clone(&backend), name.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let mut fence = 0;
            loop {
                let options = LockOptions::default();
                let guard = lock(&backend, &key(&name), &options).await.unwrap();
                assert!(guard.fence().get() > fence);
                fence = guard.fence().get();
                guard.release().await.unwrap();
                done.fetch_add(1, SeqCst);
            }
        })
    };
    let goes_on = async || {
        let from = done.load(SeqCst);
        crate::support::locks::eventually("it goes on", async || done.load(SeqCst) > from + 20)
            .await;
    };
    goes_on().await;
    let new = cluster.add_node();
    let id = cluster.id(new);
    cluster.move_slot(slot, 1, new, || {});
    goes_on().await;
    cluster.move_slot(slot, new, 2, || {});
    goes_on().await;
    let gone = cluster.nodes.remove(new);
    for node in &cluster.nodes {
        node.connect().call(&["CLUSTER", "FORGET", &id]);
    }
    drop(gone);
    goes_on().await;
    working.abort();
    assert!(working.await.unwrap_err().is_cancelled(), "no lock failed");
}
