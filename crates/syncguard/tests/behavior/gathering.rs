//! Who needs several things, and gathers them while others take them one by one.

use std::sync::Arc;
use std::time::Duration;

use syncguard::{
    Backend, Claim, ClaimKind, Error, Key, LockGuard, LockOptions, Owner, RetryPolicy,
    TIME_TOLERANCE_MS, lock,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::claims::{PATIENCE, plain, shared, slot, take};
use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, eventually, tests};
use crate::support::attempts::Attempts as _;

tests![
    a_set_gets_through_among_those_who_want_one_of_its_keys,
    all_slots_are_had_among_those_who_want_one,
    two_who_gather_both_get_through,
    one_who_gives_up_while_it_gathers_leaves_nothing,
    one_who_dies_while_it_gathers_costs_its_window,
    a_part_that_is_freed_by_force_is_none_of_the_grant,
    what_is_gathered_has_the_owner_of_the_waiter,
];

/// The longest time for which a part is taken.
const PART_MS: i64 = 3000;

fn patient() -> LockOptions {
    LockOptions {
        ttl: LONG,
        retry: RetryPolicy {
            timeout_ms: 60_000.0,
            retry_delay_ms: 20.0,
            max_retry_delay_ms: 100.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
}

fn keys(t: &Context) -> [Key; 2] {
    ["a", "b"].map(|name| t.key(name))
}

/// Loops of another process that want one of these each, until what this gives is dropped.
fn loops(t: &Context, each: impl IntoIterator<Item = Claim>) -> JoinSet<()> {
    let backend = t.fixture.peer();
    let mut loops = JoinSet::new();
    for claim in each {
        let backend = Arc::clone(&backend);
        loops.spawn(async move {
            loop {
                let wanted = match claim.kind {
                    ClaimKind::Exclusive => plain(&claim.key),
                    ClaimKind::Shared => shared(&claim.key),
                    ClaimKind::SlotOf(slots) => slot(&claim.key, slots.count()),
                };
                let guard = lock(&backend, wanted, &patient()).await.unwrap();
                sleep(Duration::from_millis(5)).await;
                guard.release().await.unwrap();
            }
        });
    }
    loops
}

async fn gets(backend: &Arc<dyn Backend>, claims: Vec<Claim>) {
    let options = patient();
    let waits = timeout(3 * PATIENCE, lock(backend, claims, &options));
    assert!(waits.await.unwrap().unwrap().release().await.unwrap());
}

async fn a_set_gets_through_among_those_who_want_one_of_its_keys(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t);
    let _others = loops(&t, keys.iter().chain(&keys).map(plain));
    for _ in 0..3 {
        gets(&t.backend, keys.iter().map(plain).collect()).await;
    }
}

async fn all_slots_are_had_among_those_who_want_one(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("s");
    let _others = loops(&t, (0..4).map(|_| slot(&key, 3)));
    for _ in 0..3 {
        gets(&t.backend, (0..3).map(|_| slot(&key, 3)).collect()).await;
    }
}

async fn two_who_gather_both_get_through(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t);
    let _others = loops(&t, keys.iter().map(plain));
    let mut sets = JoinSet::new();
    for (backend, is_turned) in [(t.backend.clone(), false), (t.fixture.peer(), true)] {
        let mut keys = keys.clone();
        if is_turned {
            keys.reverse();
        }
        sets.spawn(async move {
            for _ in 0..2 {
                gets(&backend, keys.iter().map(plain).collect()).await;
            }
        });
    }
    while let Some(set) = sets.join_next().await {
        set.unwrap();
    }
}

/// One who wants both keys, of which somebody holds the second for good, has got the first. Gives also the lock id of the other.
async fn gathers(t: &Context, backend: &Arc<dyn Backend>) -> JoinHandle<Result<LockGuard, Error>> {
    let keys = keys(t);
    t.acquire(&keys[1], LONG).await;
    let (backend, claims) = (
        Arc::clone(backend),
        keys.iter().map(plain).collect::<Vec<_>>(),
    );
    let gathers = tokio::spawn(async move { lock(&backend, claims, &patient()).await });
    eventually("it has a part", async || t.is_locked(&keys[0]).await).await;
    gathers
}

async fn one_who_gives_up_while_it_gathers_leaves_nothing(stage: Stage) {
    let t = stage.open().await;
    let gathers = gathers(&t, &t.backend).await;
    gathers.abort();
    assert!(gathers.await.unwrap_err().is_cancelled());
    t.until_free(&keys(&t)[0]).await;
}

async fn one_who_dies_while_it_gathers_costs_its_window(stage: Stage) {
    let t = stage.open().await;
    let dying: Arc<dyn Backend> = Faulty::new(&t.fixture.peer(), Fault::NoReleases);
    let gathers = gathers(&t, &dying).await;
    gathers.abort();
    assert!(gathers.await.unwrap_err().is_cancelled());
    t.pass_ms((PART_MS + TIME_TOLERANCE_MS).unsigned_abs() + 100)
        .await;
    t.until_free(&keys(&t)[0]).await;
}

async fn a_part_that_is_freed_by_force_is_none_of_the_grant(stage: Stage) {
    let t = stage.open().await;
    let [first, second] = keys(&t);
    let gathers = gathers(&t, &t.fixture.peer()).await;
    let part = t.by_key(&first).await;
    t.backend.force_release(&first).await.unwrap();
    let other = lock(&t.backend, &first, &patient()).await.unwrap();
    t.backend.force_release(&second).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    assert!(!gathers.is_finished());
    let fence = other.fence();
    assert!(other.release().await.unwrap());
    let guard = timeout(3 * PATIENCE, gathers)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(guard.fence() > fence);
    assert!(part.is_none_or(|part| !guard.lock_ids().contains(&part.lock_id)));
    assert!(guard.release().await.unwrap());
}

async fn what_is_gathered_has_the_owner_of_the_waiter(stage: Stage) {
    let t = stage.open().await;
    let (key, pool) = (t.key("a"), t.key("s"));
    let held = take(&t, vec![slot(&pool, 2)]).await.remove(0);
    let owner = Some(Owner::new("the waiter").unwrap());
    let options = LockOptions {
        owner: owner.clone(),
        ..patient()
    };
    let claims = vec![plain(&key), slot(&pool, 2), slot(&pool, 2)];
    let backend = Arc::clone(&t.backend);
    let gathers = tokio::spawn(async move { lock(&backend, claims, &options).await });
    let free = 3 - held.slot.unwrap();
    // The one of them is the gate.
    for part in [key, pool.slot(0), pool.slot(free)] {
        eventually("it has the part", async || {
            let found = t.by_key(&part).await;
            assert!(found.as_ref().is_none_or(|part| part.labels.owner == owner));
            found.is_some()
        })
        .await;
    }
    t.backend.release(&held.lock_id).await.unwrap();
    let granted = timeout(3 * PATIENCE, gathers).await.unwrap();
    let guard = granted.unwrap().unwrap();
    for lock_id in guard.lock_ids() {
        assert_eq!(t.by_id(&lock_id).await.unwrap().labels.owner, owner);
    }
    assert!(guard.release().await.unwrap());
}
