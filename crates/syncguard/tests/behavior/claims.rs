//! Several keys at once, all or nothing, and slots of a key.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, AutoExtend, Backend, Batch, Claim, ErrorKind, ExtendOutcome,
    Extension, Grant, Key, LockId, LockOptions, Operation, ReleaseOutcome, RetryPolicy, Slots, Ttl,
    lock,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::{Context, LONG, Stage, eventually, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    several_keys_are_granted_together,
    a_key_that_is_held_refuses_all,
    a_repeated_attempt_spends_no_fence,
    a_release_frees_what_is_there,
    an_extension_is_for_all_or_none,
    slots_are_granted_until_none_is_free,
    a_slot_that_is_free_again_has_a_larger_fence,
    slots_and_their_key_are_apart,
    with_two_limits_the_larger_holds,
    several_slots_are_granted_or_none,
    keys_and_slots_go_together,
    a_slot_is_a_lock_like_any_other,
    a_slot_whose_time_is_over_is_free,
    who_asks_for_less_time_takes_no_slot_away,
    many_are_never_more_than_the_slots,
    overlapping_sets_come_through,
    whoever_waits_for_several_gets_them,
    whoever_waits_for_a_slot_gets_it,
    a_guard_holds_all_and_loses_all,
    a_dropped_guard_frees_all,
    a_guard_keeps_what_is_not_released_by_its_id,
];

const PATIENCE: Duration = Duration::from_secs(20);

fn plain(key: &Key) -> Claim {
    Claim::new(key.clone()).unwrap()
}

fn slot(key: &Key, count: u16) -> Claim {
    Claim::slot(key.clone(), Slots::new(count).unwrap()).unwrap()
}

async fn attempt(backend: &dyn Backend, claims: Vec<Claim>, ttl: Ttl) -> AcquireOutcome {
    let mut request = AcquireRequest::of(claims, ttl).unwrap();
    backend.prepare(&mut request);
    backend.acquire(&request).await.unwrap()
}

async fn take(t: &Context, claims: Vec<Claim>) -> Batch<Grant> {
    match attempt(t.backend.as_ref(), claims, LONG).await {
        AcquireOutcome::Acquired(grants) => grants,
        locked => panic!("{locked:?}"),
    }
}

fn ids(grants: &[Grant]) -> Batch<LockId> {
    grants.iter().map(|grant| grant.lock_id.clone()).collect()
}

async fn release(t: &Context, lock_ids: Batch<LockId>) -> Batch<ReleaseOutcome> {
    t.backend
        .ask(Operation::Release(lock_ids.into()))
        .await
        .unwrap()
}

async fn extend(t: &Context, lock_ids: Batch<LockId>, ttl: Ttl) -> ExtendOutcome {
    let operation = Operation::Extend(Extension::new(lock_ids, ttl));
    t.backend.ask(operation).await.unwrap()
}

fn keys(t: &Context, names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| t.key(name)).collect()
}

async fn several_keys_are_granted_together(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["d", "a", "c", "b"]);
    let grants = take(&t, keys.iter().map(plain).collect()).await;
    let mut sorted = keys.clone();
    sorted.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    for (key, grant) in sorted.iter().zip(&grants) {
        let record = t.by_key(key).await.unwrap();
        assert_eq!(
            (&record.lock_id, record.fence),
            (&grant.lock_id, grant.fence)
        );
        assert_eq!(record.expires_at_ms, grant.expires_at_ms);
        assert_eq!((record.key, grant.slot), (key.clone(), None));
        assert!(t.try_acquire(key, LONG).await.is_locked());
    }
    let released = release(&t, ids(&grants)).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released; 4]);
    for (key, grant) in sorted.iter().zip(&grants) {
        assert!(t.acquire(key, LONG).await.fence > grant.fence);
    }
}

async fn a_key_that_is_held_refuses_all(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b", "c", "d"]);
    for (held, key) in keys.iter().enumerate() {
        let grant = t.acquire(key, LONG).await;
        let outcome = attempt(t.backend.as_ref(), keys.iter().map(plain).collect(), LONG).await;
        let AcquireOutcome::Locked { claim, .. } = outcome else {
            panic!("granted");
        };
        assert_eq!(claim, held);
        for other in keys.iter().filter(|other| *other != key) {
            assert!(!t.is_locked(other).await);
        }
        t.backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn a_repeated_attempt_spends_no_fence(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let claims = vec![plain(&a), slot(&b, 3), slot(&b, 3)];
    let mut request = AcquireRequest::of(claims, LONG).unwrap();
    t.backend.prepare(&mut request);
    let first = t.backend.acquire(&request).await.unwrap();
    let again = t.backend.acquire(&request).await.unwrap();
    assert!(again.is_locked() || again == first, "{again:?}");
    let released = release(&t, request.lock_ids()).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released; 3]);
}

async fn a_release_frees_what_is_there(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b", "c"]);
    let grants = take(&t, keys.iter().map(plain).collect()).await;
    t.backend.release(&grants[1].lock_id).await.unwrap();
    let released = release(&t, ids(&grants)).await;
    let is_released = |outcome: &_| *outcome == ReleaseOutcome::Released;
    let each: Vec<_> = released.iter().map(is_released).collect();
    assert_eq!(each, [true, false, true]);
    for key in &keys {
        assert!(!t.is_locked(key).await);
    }
}

async fn an_extension_is_for_all_or_none(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b", "c"]);
    let grants = take(&t, keys.iter().map(plain).collect()).await;
    let extended = extend(&t, ids(&grants), ttl(90_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("{extended:?}");
    };
    assert!(expires_at_ms > grants[0].expires_at_ms);
    for key in &keys {
        assert!(t.by_key(key).await.unwrap().expires_at_ms >= expires_at_ms);
    }
    t.backend.release(&grants[1].lock_id).await.unwrap();
    let refused = extend(&t, ids(&grants), ttl(900_000)).await;
    assert!(
        matches!(refused, ExtendOutcome::Absent { lock: 1, .. }),
        "{refused:?}"
    );
    // In a cluster, keys in different slots are extended one by one.
    if !t.fixture.is_spread() {
        let ends = t.by_key(&keys[0]).await.unwrap().expires_at_ms;
        assert!(ends < grants[0].expires_at_ms + 800_000, "it was extended");
    }
}

async fn slots_are_granted_until_none_is_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut numbers = HashSet::new();
    for _ in 0..5 {
        let grant = take(&t, vec![slot(&key, 5)]).await.remove(0);
        numbers.insert(grant.slot.unwrap());
    }
    assert_eq!(numbers, HashSet::from([1, 2, 3, 4, 5]));
    for backend in [&t.backend, &t.fixture.peer()] {
        let outcome = attempt(backend.as_ref(), vec![slot(&key, 5)], LONG).await;
        assert!(matches!(outcome, AcquireOutcome::Locked { claim: 0, .. }));
    }
}

async fn a_slot_that_is_free_again_has_a_larger_fence(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut grants: Vec<_> = Vec::new();
    for _ in 0..3 {
        grants.push(take(&t, vec![slot(&key, 3)]).await.remove(0));
    }
    for freed in &grants {
        release(&t, [freed.lock_id.clone()].into()).await;
        let next = take(&t, vec![slot(&key, 3)]).await.remove(0);
        assert_eq!(next.slot, freed.slot);
        assert!(next.fence > freed.fence);
    }
}

async fn slots_and_their_key_are_apart(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    take(&t, vec![slot(&key, 1)]).await;
    assert!(!t.is_locked(&key).await);
    t.acquire(&key, LONG).await;
    let outcome = attempt(t.backend.as_ref(), vec![slot(&key, 1)], LONG).await;
    assert!(outcome.is_locked());
}

async fn with_two_limits_the_larger_holds(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    for _ in 0..4 {
        take(&t, vec![slot(&key, 4)]).await;
    }
    for count in [2, 3, 4] {
        let outcome = attempt(t.backend.as_ref(), vec![slot(&key, count)], LONG).await;
        assert!(outcome.is_locked(), "{count}");
    }
    let fifth = take(&t, vec![slot(&key, 5)]).await;
    assert_eq!(fifth[0].slot, Some(5));
}

async fn several_slots_are_granted_or_none(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let three = || vec![slot(&key, 5), slot(&key, 5), slot(&key, 5)];
    let grants = take(&t, three()).await;
    let numbers: HashSet<_> = grants.iter().map(|grant| grant.slot.unwrap()).collect();
    assert_eq!(numbers.len(), 3);
    let outcome = attempt(t.backend.as_ref(), three(), LONG).await;
    assert!(outcome.is_locked());
    let two = take(&t, vec![slot(&key, 5), slot(&key, 5)]).await;
    assert!(
        two.iter()
            .all(|grant| !numbers.contains(&grant.slot.unwrap()))
    );
}

async fn keys_and_slots_go_together(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let both = || vec![slot(&b, 2), plain(&a), slot(&b, 2)];
    let grants = take(&t, both()).await;
    assert_eq!(grants[0].slot, None);
    assert!(t.is_locked(&a).await);
    // The key is in the way, and then the slots.
    let outcome = attempt(t.backend.as_ref(), both(), LONG).await;
    assert!(outcome.is_locked());
    release(&t, [grants[0].lock_id.clone()].into()).await;
    let outcome = attempt(t.backend.as_ref(), both(), LONG).await;
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked { claim: 1 | 2, .. }
    ));
    assert!(!t.is_locked(&a).await);
    let released = release(&t, ids(&grants[1..])).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released; 2]);
    take(&t, both()).await;
}

async fn a_slot_is_a_lock_like_any_other(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = take(&t, vec![slot(&key, 2)]).await.remove(0);
    let number = grant.slot.unwrap();
    let name = key.slot(number);
    assert!(t.is_locked(&name).await);
    assert!(!t.is_locked(&key.slot(3 - number)).await);
    for record in [t.by_key(&name).await, t.by_id(&grant.lock_id).await] {
        let record = record.unwrap();
        assert_eq!(record.key, name);
        assert_eq!(
            (record.key.base(), record.key.slot_number()),
            (key.as_str(), Some(number))
        );
        assert_eq!(record.fence, grant.fence);
    }
    assert!(t.backend.force_release(&name).await.unwrap());
    assert!(!t.is_locked(&name).await);
    let released = release(&t, [grant.lock_id].into()).await;
    assert_ne!(released[0], ReleaseOutcome::Released);
}

async fn a_slot_whose_time_is_over_is_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let granted = attempt(t.backend.as_ref(), vec![slot(&key, 1)], ttl(50)).await;
    let AcquireOutcome::Acquired(old) = granted else {
        panic!("locked");
    };
    let outcome = attempt(t.backend.as_ref(), vec![slot(&key, 1)], LONG).await;
    assert!(outcome.is_locked());
    t.pass_ms(50 + 1000 + 50).await;
    let new = take(&t, vec![slot(&key, 1)]).await;
    assert!(new[0].fence > old[0].fence);
    let extended = extend(&t, ids(&old), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
}

async fn who_asks_for_less_time_takes_no_slot_away(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let held = take(&t, vec![slot(&key, 1)]).await;
    let peer = t.fixture.peer();
    for _ in 0..5 {
        let outcome = attempt(peer.as_ref(), vec![slot(&key, 1)], ttl(50)).await;
        assert!(outcome.is_locked());
        t.pass_ms(200).await;
    }
    let released = release(&t, ids(&held)).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released]);
}

fn patient() -> LockOptions {
    LockOptions {
        retry: RetryPolicy {
            max_retries: f64::INFINITY,
            timeout_ms: 60_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
}

async fn many_are_never_more_than_the_slots(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (holders, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut all = JoinSet::new();
    for number in 0..24 {
        let backend = match number % 2 {
            0 => Arc::clone(&t.backend),
            _ => t.fixture.peer(),
        };
        let (key, holders, most) = (key.clone(), Arc::clone(&holders), Arc::clone(&most));
        all.spawn(async move {
            let guard = lock(&backend, slot(&key, 4), &patient()).await.unwrap();
            most.fetch_max(holders.fetch_add(1, SeqCst) + 1, SeqCst);
            sleep(Duration::from_millis(5)).await;
            holders.fetch_sub(1, SeqCst);
            assert!(guard.release().await.unwrap());
        });
    }
    timeout(3 * PATIENCE, all.join_all()).await.unwrap();
    assert!((1..=4).contains(&most.load(SeqCst)), "{most:?}");
}

async fn overlapping_sets_come_through(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b", "c"]);
    let holders: Arc<[AtomicUsize; 3]> = Arc::default();
    let mut all = JoinSet::new();
    for number in 0..18_usize {
        let backend = match number % 2 {
            0 => Arc::clone(&t.backend),
            _ => t.fixture.peer(),
        };
        let (one, other) = (number % 3, (number + 1) % 3);
        let claims = vec![plain(&keys[one]), plain(&keys[other])];
        let holders = Arc::clone(&holders);
        all.spawn(async move {
            let guard = lock(&backend, claims, &patient()).await.unwrap();
            for held in [one, other] {
                assert_eq!(holders[held].fetch_add(1, SeqCst), 0, "two holders");
            }
            sleep(Duration::from_millis(2)).await;
            for held in [one, other] {
                holders[held].fetch_sub(1, SeqCst);
            }
            assert!(guard.release().await.unwrap());
        });
    }
    timeout(3 * PATIENCE, all.join_all()).await.unwrap();
    for key in &keys {
        assert!(!t.is_locked(key).await);
    }
}

async fn whoever_waits_for_several_gets_them(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b", "c"]);
    let held = t.acquire(&keys[1], LONG).await;
    let claims = keys.iter().map(plain).collect::<Vec<_>>();
    let backend = t.fixture.peer();
    let waiter = tokio::spawn(async move { lock(&backend, claims, &patient()).await });
    sleep(Duration::from_millis(100)).await;
    // While it waits, it holds nothing; in a cluster, but for the moments in which it asks.
    let holds_nothing = async || !t.is_locked(&keys[0]).await && !t.is_locked(&keys[2]).await;
    match t.fixture.is_spread() {
        true => eventually("it holds nothing", holds_nothing).await,
        false => assert!(holds_nothing().await),
    }
    t.backend.release(&held.lock_id).await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(guard.fence_of(&keys[1]).unwrap() > held.fence);
    for key in &keys {
        assert!(t.is_locked(key).await);
    }
    assert!(guard.release().await.unwrap());
}

async fn whoever_waits_for_a_slot_gets_it(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut grants = take(&t, vec![slot(&key, 2), slot(&key, 2)]).await;
    let (backend, wanted) = (t.fixture.peer(), slot(&key, 2));
    let waiter = tokio::spawn(async move { lock(&backend, wanted, &patient()).await });
    sleep(Duration::from_millis(100)).await;
    let freed = grants.remove(1);
    release(&t, [freed.lock_id].into()).await;
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.grants()[0].slot, freed.slot);
    assert_eq!(guard.fence_of(&key), Some(guard.fence()));
    assert!(guard.release().await.unwrap());
}

async fn a_guard_holds_all_and_loses_all(stage: Stage) {
    let t = stage.open().await;
    let keys = keys(&t, &["a", "b"]);
    let options = LockOptions {
        ttl: ttl(1500),
        auto_extend: Some(AutoExtend::default()),
        ..patient()
    };
    let claims = keys.iter().map(plain).collect::<Vec<_>>();
    let guard = lock(&t.backend, claims, &options).await.unwrap();
    for _ in 0..4 {
        let before = guard.expires_at_ms();
        t.pass_ms(500).await;
        crate::fixture::eventually("it is extended", async || guard.expires_at_ms() > before).await;
    }
    assert!(t.is_locked(&keys[0]).await && t.is_locked(&keys[1]).await);
    assert!(t.fixture.peer().force_release(&keys[1]).await.unwrap());
    let error = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert!(!guard.release().await.unwrap());
    // What was left of it was freed.
    assert!(!t.is_locked(&keys[0]).await);
}

async fn a_dropped_guard_frees_all(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let claims = vec![plain(&a), slot(&b, 2)];
    let guard = lock(&t.backend, claims, &patient()).await.unwrap();
    let number = guard.grants()[1].slot.unwrap();
    drop(guard);
    t.until_free(&a).await;
    t.until_free(&b.slot(number)).await;
}

async fn a_guard_keeps_what_is_not_released_by_its_id(stage: Stage) {
    const TTL_MS: i64 = 1500;
    let t = stage.open().await;
    for auto_extend in [None, Some(AutoExtend::default())] {
        let keys = keys(&t, &["a", "b", "c"]);
        let claims: Vec<_> = keys.iter().map(plain).collect();
        let options = LockOptions {
            ttl: if auto_extend.is_some() {
                ttl(TTL_MS)
            } else {
                LONG
            },
            auto_extend,
            ..LockOptions::default()
        };
        let mut guard = lock(&t.backend, claims, &options).await.unwrap();
        let lost = guard.lost();
        let lock_ids = guard.lock_ids();
        for number in [0, 2] {
            let release = Operation::Release([lock_ids[number].clone()].into());
            let call = CallOptions::default();
            let released: ReleaseOutcome = operation::run(&t.backend, release, call, pending())
                .await
                .unwrap();
            assert_eq!(released, ReleaseOutcome::Released);
            let before = guard.expires_at_ms();
            assert!(guard.extend(options.ttl).await.unwrap());
            if auto_extend.is_some() {
                t.pass_ms(TTL_MS as u64 / 3).await;
                eventually("the others are extended", async || {
                    guard.expires_at_ms() > before
                })
                .await;
            }
        }
        let is_locked = async |key: &Key| t.is_locked(key).await;
        assert!(
            !is_locked(&keys[0]).await && is_locked(&keys[1]).await && !is_locked(&keys[2]).await
        );
        assert!(guard.release().await.unwrap());
        assert!(!t.is_locked(&keys[1]).await);
        assert!(timeout(Duration::from_millis(50), lost).await.is_err());
    }
}
