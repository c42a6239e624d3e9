//! Several keys at once, all or nothing.

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
    overlapping_sets_come_through,
    whoever_waits_for_several_gets_them,
    a_guard_holds_all_and_loses_all,
    a_dropped_guard_frees_all,
    a_guard_keeps_what_is_not_released_by_its_id,
];

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn plain(key: &Key) -> Claim {
    Claim::new(key.clone()).unwrap()
}

pub(crate) fn shared(key: &Key) -> Claim {
    Claim::shared(key.clone()).unwrap()
}

pub(crate) fn slot(key: &Key, count: u16) -> Claim {
    Claim::slot(key.clone(), Slots::new(count).unwrap()).unwrap()
}

pub(crate) async fn attempt(backend: &dyn Backend, claims: Vec<Claim>, ttl: Ttl) -> AcquireOutcome {
    let mut request = AcquireRequest::of(claims, ttl).unwrap();
    backend.prepare(&mut request);
    backend.acquire(&request).await.unwrap()
}

pub(crate) async fn take(t: &Context, claims: Vec<Claim>) -> Batch<Grant> {
    match attempt(t.backend.as_ref(), claims, LONG).await {
        AcquireOutcome::Acquired(grants) => grants,
        locked => panic!("{locked:?}"),
    }
}

pub(crate) fn ids(grants: &[Grant]) -> Batch<LockId> {
    grants.iter().map(|grant| grant.lock_id.clone()).collect()
}

pub(crate) async fn release(t: &Context, lock_ids: Batch<LockId>) -> Batch<ReleaseOutcome> {
    t.backend
        .ask(Operation::Release(lock_ids.into()))
        .await
        .unwrap()
}

pub(crate) async fn extend(t: &Context, lock_ids: Batch<LockId>, ttl: Ttl) -> ExtendOutcome {
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
    // In a cluster, keys in different hash slots are extended one by one.
    if !t.fixture.is_spread() {
        let ends = t.by_key(&keys[0]).await.unwrap().expires_at_ms;
        assert!(ends < grants[0].expires_at_ms + 800_000, "it was extended");
    }
}

pub(crate) fn patient() -> LockOptions {
    LockOptions {
        retry: RetryPolicy {
            max_retries: f64::INFINITY,
            timeout_ms: 60_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
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
    // After a while it takes what it can, and leaves what comes behind.
    eventually("it gathers", async || t.is_locked(&keys[0]).await).await;
    t.backend.release(&held.lock_id).await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(guard.fence_of(&keys[1]).unwrap() > held.fence);
    for key in &keys {
        assert!(t.is_locked(key).await);
    }
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
