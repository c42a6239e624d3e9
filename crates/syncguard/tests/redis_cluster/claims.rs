//! Several locks at once, and slots: in one shard, in several, and while they move.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{
    AcquireOutcome, Backend, Claim, Error, ErrorKind, ExtendOutcome, Lookup, ReleaseOutcome,
};

use crate::layout::{primaries, scripts};
use crate::stage::{backend, backend_with, name_on, names_in, slot_of};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{acquire, key, ttl};
use crate::support::readers;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::Version;
use crate::support::resp::Resp;
use crate::support::suite::tests;
use crate::support::waiters::{soon, wait_listening};

tests![
    several_shards_are_taken_together_or_not_at_all,
    overlapping_sets_of_several_shards_come_through,
    locks_of_one_shard_take_one_script,
    a_prefix_with_a_hash_tag_makes_it_one_step,
    lock_ids_from_elsewhere_find_their_locks,
    what_is_freed_in_a_shard_that_answers_is_free,
    all_slots_of_a_key_are_in_one_place,
    what_readers_share_is_in_one_place,
    sets_with_one_group_are_extended_at_once,
    the_last_reader_wakes_who_waits_for_the_key,
    freed_slots_wake,
    freed_slots_wake_before_version_7,
    slots_that_are_half_moved_are_not_given_twice,
    slots_move_with_their_key,
];

/// All names but those of fence counters.
fn stored(raw: &mut [Resp]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for raw in raw {
        let found = raw.call(&["KEYS", "*"]);
        let names = found.list().iter().map(|name| name.text().to_owned());
        all.extend(names.filter(|name| !name.contains(":fence:")));
    }
    all
}

/// A name on each primary.
fn spread(backend: &dyn Backend) -> [String; 3] {
    [0, 1, 2].map(|primary| name_on(backend, primary))
}

async fn several_shards_are_taken_together_or_not_at_all() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let mut raw = primaries(&cluster);
    let names = spread(backend.as_ref());
    let claims = || {
        names
            .iter()
            .map(|name| plain(name))
            .chain([slot("p", 3), slot("p", 3)])
    };
    let grants = take(backend.as_ref(), claims()).await;
    assert_eq!(stored(&mut raw).len(), 10);
    release(backend.as_ref(), ids(&grants)).await;
    assert!(stored(&mut raw).is_empty());
    for name in &names {
        let held = acquire(backend.as_ref(), name).await;
        let request = asking(backend.as_ref(), claims());
        let outcome = backend.acquire(&request).await.unwrap();
        let AcquireOutcome::Locked { claim, free_in, .. } = outcome else {
            panic!("granted");
        };
        assert_eq!(request.claims[claim].key, key(name));
        assert!(free_in.is_some());
        assert_eq!(stored(&mut raw).len(), 2, "the one that was held");
        backend.release(&held.lock_id).await.unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        // Nor is anything left where a shard answers with an error.
        let lock = crate::stage::names_of(backend.as_ref(), name).remove(0);
        raw[number].call(&["SET", &lock, "no lock"]);
        let error = try_take(backend.as_ref(), claims()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert_eq!(stored(&mut raw), [lock.clone()].into());
        raw[number].call(&["DEL", &lock]);
    }
    take(backend.as_ref(), claims()).await;
}

async fn overlapping_sets_of_several_shards_come_through() {
    let cluster = RedisCluster::start();
    let names = spread(backend(&cluster.url()).as_ref());
    let mut raw = primaries(&cluster);
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..6 {
        let backend = backend(&cluster.url());
        let mut names = names.to_vec();
        names.remove(number % 3);
        if number >= 3 {
            names.reverse();
        }
        tasks.spawn(async move {
            for _ in 0..20 {
                let claims = || names.iter().map(|name| plain(name));
                let grants = loop {
                    match try_take(backend.as_ref(), claims()).await.unwrap() {
                        AcquireOutcome::Acquired(grants) => break grants,
                        _ => {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                };
                let released = release(backend.as_ref(), ids(&grants)).await;
                assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
            }
        });
    }
    tasks.join_all().await;
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(stored(&mut raw).is_empty());
}

async fn locks_of_one_shard_take_one_script() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let mut raw = primaries(&cluster);
    let together = names_in(backend.as_ref(), slot_of(backend.as_ref(), "k"), 3);
    let apart = spread(backend.as_ref());
    let claims = |names: &[String]| names.iter().map(|name| plain(name)).collect::<Vec<_>>();
    for (names, expected) in [(&together[..], 1), (&apart[..], 3)] {
        // The nodes get to know the scripts.
        let grants = take(backend.as_ref(), claims(names)).await;
        extend(backend.as_ref(), ids(&grants), ttl(60_000)).await;
        release(backend.as_ref(), ids(&grants)).await;
        scripts(&mut raw);
        let grants = take(backend.as_ref(), claims(names)).await;
        assert_eq!(scripts(&mut raw), expected);
        extend(backend.as_ref(), ids(&grants), ttl(60_000)).await;
        assert_eq!(scripts(&mut raw), expected);
        release(backend.as_ref(), ids(&grants)).await;
        assert_eq!(scripts(&mut raw), expected);
    }
}

async fn a_prefix_with_a_hash_tag_makes_it_one_step() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.locks.key_prefix = "{locks}".into();
    });
    let mut raw = primaries(&cluster);
    let claims = || ["a", "b", "c"].map(plain).into_iter().chain([slot("p", 2)]);
    for round in 0..2 {
        scripts(&mut raw);
        let grants = take(backend.as_ref(), claims()).await;
        let extended = extend(backend.as_ref(), ids(&grants), ttl(60_000)).await;
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        let released = release(backend.as_ref(), ids(&grants)).await;
        assert_eq!(released[..], [ReleaseOutcome::Released; 4]);
        assert!(round == 0 || scripts(&mut raw) == 3);
    }
    // All or none, as on one server.
    let grants = take(backend.as_ref(), claims()).await;
    backend.release(&grants[2].lock_id).await.unwrap();
    let extended = extend(backend.as_ref(), ids(&grants), ttl(600_000)).await;
    assert!(matches!(extended, ExtendOutcome::Absent { lock: 2, .. }));
    let lookup = Lookup::LockId(grants[0].lock_id.clone());
    let record = backend.lookup(&lookup).await.unwrap().unwrap();
    assert_eq!(record.expires_at_ms, grants[0].expires_at_ms);
}

async fn lock_ids_from_elsewhere_find_their_locks() {
    let cluster = RedisCluster::start();
    let ours = backend(&cluster.url());
    let names = spread(ours.as_ref());
    let claims = || {
        names
            .iter()
            .map(|name| plain(name))
            .chain([slot("p", 3), slot("p", 3)])
    };
    let grants = take(ours.as_ref(), claims()).await;
    let theirs = backend(&cluster.url());
    let extended = extend(theirs.as_ref(), ids(&grants), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    let theirs = backend(&cluster.url());
    theirs.release(&grants[1].lock_id).await.unwrap();
    let theirs = backend(&cluster.url());
    let extended = extend(theirs.as_ref(), ids(&grants), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Absent { lock: 1, .. }));
    let released = release(theirs.as_ref(), ids(&grants)).await;
    let freed = released
        .iter()
        .map(|outcome| *outcome == ReleaseOutcome::Released);
    assert!(freed.eq([true, false, true, true, true]));
    assert!(stored(&mut primaries(&cluster)).is_empty());
}

async fn what_is_freed_in_a_shard_that_answers_is_free() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.locks.operation_timeout = Duration::from_millis(800);
    });
    let names = spread(backend.as_ref());
    let grants = take(backend.as_ref(), names.iter().map(|name| plain(name))).await;
    // The hash slot of one of them is between two nodes.
    let slot = slot_of(backend.as_ref(), &names[0]).to_string();
    let (source, target) = (cluster.id(0), cluster.id(1));
    let mut at_source = cluster.nodes[0].connect();
    let mut at_target = cluster.nodes[1].connect();
    at_target.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    at_source.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    let moved = crate::stage::names_of(backend.as_ref(), &names[0]).remove(0);
    let port = cluster.nodes[1].port().to_string();
    at_source.call(&["MIGRATE", "127.0.0.1", &port, &moved, "0", "5000"]);
    let release = syncguard::Operation::Release(ids(&grants).into());
    let error = backend
        .ask::<syncguard::Outcome>(release)
        .await
        .unwrap_err();
    assert!(error.message().contains("TRYAGAIN"), "{error}");
    assert!(error.is_outcome_unknown(), "some are free");
    for name in &names[1..] {
        assert!(!backend.is_locked(&key(name)).await.unwrap());
    }
    assert!(backend.is_locked(&key(&names[0])).await.unwrap());
}

async fn all_slots_of_a_key_are_in_one_place() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    for name in ["p", &"k".repeat(512)] {
        let claims = std::iter::repeat_with(|| slot(name, 50)).take(40);
        let grants = take(backend.as_ref(), claims).await;
        let shards: BTreeSet<_> = grants
            .iter()
            .map(|it| it.lock_id.as_str()[..1].to_owned())
            .collect();
        assert_eq!(shards.len(), 1);
        for grant in &grants {
            let lookup = Lookup::LockId(grant.lock_id.clone());
            let record = backend.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.key, key(name).slot(grant.slot.unwrap()));
        }
    }
}

async fn wakes(cluster: RedisCluster) {
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    for primary in 0..3 {
        let name = name_on(ours.as_ref(), primary);
        let grants = take(ours.as_ref(), [slot(&name, 2), slot(&name, 2)]).await;
        let watch = theirs.watch(&slot(&name, 2)).unwrap();
        // The first that it tells is that it listens.
        soon(watch.freed()).await;
        for grant in &grants {
            ours.release(&grant.lock_id).await.unwrap();
            soon(watch.freed()).await;
        }
        let grants = take(ours.as_ref(), [slot(&name, 2), plain("other")]).await;
        release(ours.as_ref(), ids(&grants)).await;
        soon(watch.freed()).await;
    }
}

async fn what_readers_share_is_in_one_place() {
    let cluster = RedisCluster::start();
    let [one, two, other] = [0, 1, 2].map(|_| backend(&cluster.url()));
    let mut raw = primaries(&cluster);
    let names = spread(one.as_ref());
    let claims = || {
        let shared = names.iter().map(|name| shared(name));
        shared.chain([slot("p", 3)])
    };
    // Nothing is left where one of them is held.
    let held = acquire(one.as_ref(), &names[2]).await;
    let outcome = try_take(one.as_ref(), claims()).await.unwrap();
    assert!(outcome.is_locked());
    assert_eq!(stored(&mut raw).len(), 2, "the one that was held");
    one.release(&held.lock_id).await.unwrap();

    let first = take(one.as_ref(), claims()).await;
    let second = take(two.as_ref(), claims()).await;
    let fences = first.iter().zip(&second).take(names.len());
    for (first, second) in fences {
        assert_eq!(first.fence, second.fence);
    }
    // The group, the ends of its readers, and of each reader lock and index; of each slot the two.
    assert_eq!(stored(&mut raw).len(), names.len() * 6 + 4);
    let outcome = try_take(one.as_ref(), [plain(&names[0])]).await.unwrap();
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            is_shared: true,
            ..
        }
    ));
    // By who has only the lock ids.
    let extended = extend(other.as_ref(), ids(&first), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    for grant in &first[..names.len()] {
        let lookup = Lookup::LockId(grant.lock_id.clone());
        let record = other.lookup(&lookup).await.unwrap().unwrap();
        assert!(record.is_shared);
    }
    assert!(other.force_release(&key(&names[0])).await.unwrap());
    let extended = extend(two.as_ref(), ids(&second), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    for grants in [&first, &second] {
        let released = release(other.as_ref(), ids(grants)).await;
        let is_released = |outcome: &&ReleaseOutcome| **outcome == ReleaseOutcome::Released;
        assert_eq!(released.iter().filter(is_released).count(), names.len());
    }
    let left = stored(&mut raw);
    assert!(
        left.iter().all(|name| name.ends_with("readers")),
        "{left:?}"
    );
    take(one.as_ref(), names.iter().map(|name| plain(name))).await;
}

async fn sets_with_one_group_are_extended_at_once() {
    let cluster = RedisCluster::start();
    let apart = backend(&cluster.url());
    let [a, b, c] = spread(apart.as_ref());
    let names = [&*a, &b, &c, "d"];
    readers::sets_with_one_group_are_extended_at_once(apart.as_ref(), names, false).await;
    let together = backend_with(&cluster.url(), |config| {
        config.locks.key_prefix = "{locks}".into();
    });
    readers::sets_with_one_group_are_extended_at_once(together.as_ref(), names, true).await;
}

async fn the_last_reader_wakes_who_waits_for_the_key() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let one = take(backend.as_ref(), [shared("k")]).await;
    let two = take(backend.as_ref(), [shared("k")]).await;
    let waiter = wait_listening(&backend, "k").await;
    for grants in [one, two] {
        release(backend.as_ref(), ids(&grants)).await;
    }
    assert!(soon(waiter).await.unwrap().release().await.unwrap());
}

async fn freed_slots_wake() {
    wakes(RedisCluster::start()).await;
}

async fn freed_slots_wake_before_version_7() {
    wakes(RedisCluster::start_with(Version::Oldest, None, &[])).await;
}

async fn slots_that_are_half_moved_are_not_given_twice() {
    for version in [Version::Installed, Version::Oldest] {
        let cluster = RedisCluster::start_with(version, None, &[]);
        let hasty: Arc<dyn Backend> = backend_with(&cluster.url(), |config| {
            config.locks.operation_timeout = Duration::from_millis(400);
        });
        let name = name_on(hasty.as_ref(), 0);
        let hash_slot = slot_of(hasty.as_ref(), &name);
        let both = || [slot(&name, 2), slot(&name, 2)];
        let request = asking(hasty.as_ref(), both());
        let granted = hasty.acquire(&request).await.unwrap();
        // Also what has the names that the script is given: a lock on the key itself.
        acquire(hasty.as_ref(), &name).await;
        let waits = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error}");
            assert!(error.message().contains("TRYAGAIN"), "{error}");
        };
        let (number, port) = (hash_slot.to_string(), cluster.nodes[1].port().to_string());
        let (source, target) = (cluster.id(0), cluster.id(1));
        let mut at_source = cluster.nodes[0].connect();
        let mut at_target = cluster.nodes[1].connect();
        at_target.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source]);
        at_source.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target]);
        let found = at_source.call(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]);
        assert_eq!(found.list().len(), 9);
        for moved in found.list() {
            let one = || -> [Claim; 1] { [slot(&name, 2)] };
            waits(try_take(hasty.as_ref(), one()).await.unwrap_err());
            // Nor is one's own found where a part of it is.
            waits(hasty.acquire(&request).await.unwrap_err());
            let gone = at_source.call(&["MIGRATE", "127.0.0.1", &port, moved.text(), "0", "5000"]);
            assert_eq!(gone.text(), "OK");
        }
        waits(try_take(hasty.as_ref(), both()).await.unwrap_err());
        cluster.move_slot(hash_slot, 0, 1, || {});
        assert!(
            try_take(hasty.as_ref(), [slot(&name, 2)])
                .await
                .unwrap()
                .is_locked()
        );
        assert_eq!(hasty.acquire(&request).await.unwrap(), granted);
    }
}

async fn slots_move_with_their_key() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 0);
    let hash_slot = slot_of(backend.as_ref(), &name);
    let both = || [slot(&name, 2), slot(&name, 2)];
    let mut fences = [0, 0];
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let grants = take(backend.as_ref(), both()).await;
        for grant in &grants {
            let at = usize::from(grant.slot.unwrap() - 1);
            assert!(grant.fence.get() > fences[at]);
            fences[at] = grant.fence.get();
        }
        cluster.move_slot(hash_slot, from, to, || {});
        assert!(
            try_take(backend.as_ref(), both())
                .await
                .unwrap()
                .is_locked()
        );
        let extended = extend(backend.as_ref(), ids(&grants), ttl(60_000)).await;
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        let released = release(backend.as_ref(), ids(&grants)).await;
        assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
    }
}
