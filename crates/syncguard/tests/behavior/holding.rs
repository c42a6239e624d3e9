//! Locks that extend themselves, and say when they are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{AutoExtend, Backend, Error, ErrorKind, Key, LockGuard, LockOptions, Ttl, lock};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, eventually, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    a_lock_outlives_its_ttl,
    many_locks_outlive_their_ttl,
    after_a_release_nothing_is_extended,
    a_lock_that_is_put_out_is_lost,
    a_lock_that_expired_is_lost,
    without_heartbeats_a_lock_is_lost_with_its_ttl,
    an_extension_puts_the_loss_off,
    a_lost_lock_is_neither_extended_nor_released,
    a_release_that_finds_its_lock_gone_is_a_loss,
    a_release_whose_answers_are_lost_frees_the_lock,
    a_release_before_its_least_time_lets_a_lock_end_then,
    bad_settings_are_refused,
];

/// Time enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);

fn extending(ttl: Ttl) -> LockOptions {
    LockOptions {
        ttl,
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    }
}

async fn hold(backend: &Arc<dyn Backend>, key: &Key, ttl: Ttl) -> LockGuard {
    lock(backend, key, &extending(ttl)).await.unwrap()
}

/// Lets a third of the TTL pass in the store, and waits for the heartbeats that this is time for.
async fn pass_a_heartbeat(t: &Context, guards: &[LockGuard], ttl_ms: u32) {
    let before: Vec<_> = guards.iter().map(LockGuard::expires_at_ms).collect();
    t.pass_ms(u64::from(ttl_ms / 3)).await;
    eventually("all are extended", async || {
        let mut each = guards.iter().zip(&before);
        each.all(|(guard, before)| guard.expires_at_ms() > *before)
    })
    .await;
}

/// Waits for the loss, which must come before a timer that starts now. A process without a share of the processor is late with
/// both: so their order is asked, not a clock.
async fn lost_within(guard: &LockGuard, limit: Duration) -> Error {
    let lost = guard.lost();
    tokio::pin!(lost);
    if let Ok(error) = timeout(limit, &mut lost).await {
        return error;
    }
    // What was due earlier may be told after the timer, on the turns that follow.
    for _ in 0..100 {
        yield_now().await;
    }
    let error = timeout(Duration::ZERO, lost).await;
    error.expect("the loss came after the timer")
}

async fn a_lock_outlives_its_ttl(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let guard = [hold(&t.backend, &key, ttl(1500)).await];
    for _ in 0..6 {
        pass_a_heartbeat(&t, &guard, 1500).await;
    }
    assert!(t.try_acquire(&key, LONG).await.is_locked());
    let [guard] = guard;
    let lost = guard.lost();
    assert!(guard.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
    assert!(timeout(Duration::from_millis(100), lost).await.is_err());
}

async fn many_locks_outlive_their_ttl(stage: Stage) {
    let t = stage.open().await;
    // A busy machine may extend some too late. Locks that are not extended end, however long they last.
    for ttl_ms in [2000, 8000, 32_000] {
        if many_outlive(&t, ttl_ms).await {
            return;
        }
    }
    panic!("some were lost, three times");
}

/// Whether a hundred locks last for longer than their TTL.
async fn many_outlive(t: &Context, ttl_ms: u32) -> bool {
    let mut guards = Vec::new();
    for number in 0..100 {
        let key = t.key(&format!("{ttl_ms}-{number}"));
        guards.push(hold(&t.backend, &key, ttl(ttl_ms.into())).await);
    }
    let is_lost = |guard: &LockGuard| guard.assert_held().is_err();
    for _ in 0..4 {
        let before: Vec<_> = guards.iter().map(LockGuard::expires_at_ms).collect();
        t.pass_ms(u64::from(ttl_ms / 3)).await;
        eventually("all are extended, or lost", async || {
            let mut each = guards.iter().zip(&before);
            each.all(|(guard, before)| guard.expires_at_ms() > *before || is_lost(guard))
        })
        .await;
    }
    let mut outlived = true;
    for guard in guards {
        outlived &= guard.release().await.unwrap();
    }
    outlived
}

async fn after_a_release_nothing_is_extended(stage: Stage) {
    let t = stage.open().await;
    let counted = Faulty::new(&t.backend, Fault::First(0, ErrorKind::Internal));
    let backend: Arc<dyn Backend> = Arc::clone(&counted) as _;
    // Often, and long before its end: a store that is slow for a moment loses none.
    let options = LockOptions {
        ttl: LONG,
        auto_extend: Some(AutoExtend {
            every: Some(Duration::from_millis(200)),
            ..AutoExtend::default()
        }),
        ..LockOptions::default()
    };
    let hold = async |name| lock(&backend, &t.key(name), &options).await.unwrap();
    let released = hold("released").await;
    let dropped = hold("dropped").await;
    let kept = hold("kept").await;
    eventually("they are extended", async || counted.extensions() > 3).await;
    drop(dropped);
    kept.keep();
    released.release().await.unwrap();
    let before = counted.extensions();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(counted.extensions(), before);
}

async fn a_lock_that_is_put_out_is_lost(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let guard = hold(&t.backend, &key, ttl(1500)).await;
    assert!(t.fixture.peer().force_release(&key).await.unwrap());
    let next = t.acquire(&key, LONG).await;
    let error = lost_within(&guard, Duration::from_millis(1500 + 1000)).await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert!(next.fence > guard.fence());
    // It stays lost, for all who ask.
    assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
    assert!(!guard.release().await.unwrap());
    assert!(t.is_locked(&key).await);
}

async fn a_lock_that_expired_is_lost(stage: Stage) {
    let t = stage.open().await;
    let faulty = Faulty::new(&t.backend, Fault::NoExtensions);
    let backend: Arc<dyn Backend> = faulty;
    let start = Instant::now();
    let guard = hold(&backend, &t.key("a"), ttl(300)).await;
    let error = lost_within(&guard, Duration::from_millis(300 + 1000)).await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert!(
        error.message().ends_with("the store is not well"),
        "{error}"
    );
    assert!(start.elapsed() >= Duration::from_millis(300));
}

async fn without_heartbeats_a_lock_is_lost_with_its_ttl(stage: Stage) {
    let t = stage.open().await;
    let start = Instant::now();
    let options = LockOptions {
        ttl: ttl(300),
        ..LockOptions::default()
    };
    let guard = lock(&t.backend, &t.key("a"), &options).await.unwrap();
    let error = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

async fn an_extension_puts_the_loss_off(stage: Stage) {
    let t = stage.open().await;
    let options = LockOptions {
        ttl: ttl(800),
        ..LockOptions::default()
    };
    let mut guard = lock(&t.backend, &t.key("a"), &options).await.unwrap();
    let lost = guard.lost();
    let start = Instant::now();
    assert!(guard.extend(ttl(1500)).await.unwrap());
    timeout(PATIENCE, lost).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(1500));
}

async fn a_lost_lock_is_neither_extended_nor_released(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let options = LockOptions {
        ttl: ttl(100),
        ..LockOptions::default()
    };
    let mut guard = lock(&t.backend, &key, &options).await.unwrap();
    timeout(PATIENCE, guard.lost()).await.unwrap();
    // The store would do both within the tolerance.
    assert!(!guard.extend(LONG).await.unwrap());
    assert!(!guard.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
}

async fn a_release_that_finds_its_lock_gone_is_a_loss(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let options = LockOptions {
        ttl: LONG,
        ..LockOptions::default()
    };
    let guard = lock(&t.backend, &key, &options).await.unwrap();
    let lost = guard.lost();
    t.backend.force_release(&key).await.unwrap();
    assert!(!guard.release().await.unwrap());
    let error = timeout(PATIENCE, lost).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::LockLost);
}

async fn a_release_whose_answers_are_lost_frees_the_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let backend: Arc<dyn Backend> = Faulty::new(&t.backend, Fault::ReleasesLost(2.into()));
    let guard = hold(&backend, &key, LONG).await;
    assert!(guard.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
}

async fn bad_settings_are_refused(stage: Stage) {
    let t = stage.open().await;
    let options = LockOptions {
        auto_extend: Some(AutoExtend {
            every: Some(Duration::from_secs(2)),
            max: None,
        }),
        ..extending(ttl(1000))
    };
    let error = lock(&t.backend, &t.key("a"), &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("auto_extend.every"), "{error}");
    assert!(!t.is_locked(&t.key("a")).await);
}

async fn a_release_before_its_least_time_lets_a_lock_end_then(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    for auto_extend in [None, Some(AutoExtend::default())] {
        let options = LockOptions {
            auto_extend,
            min_hold: Duration::from_millis(1500),
            ..LockOptions::default()
        };
        let start = Instant::now();
        let guard = lock(&t.backend, &key, &options).await.unwrap();
        let granted_ms = guard.expires_at_ms() - LONG.as_millis();
        assert!(guard.release().await.unwrap());
        // Where the store's clock stands still, what has passed since is missing.
        let passed_ms = i64::try_from(start.elapsed().as_millis()).unwrap();
        let record = t.by_key(&key).await.unwrap();
        let held_ms = record.expires_at_ms - granted_ms;
        assert!((1499 - passed_ms..3000).contains(&held_ms), "{held_ms}");
        t.pass_ms(1500 + 1000 + 500).await;
        assert!(!t.is_locked(&key).await);
    }
    // After that time it is released as ever.
    let options = LockOptions {
        min_hold: Duration::from_millis(1),
        ..LockOptions::default()
    };
    let guard = lock(&t.backend, &key, &options).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    assert!(guard.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
    let options = LockOptions {
        min_hold: Duration::from_secs(3600),
        ..LockOptions::default()
    };
    let error = lock(&t.backend, &key, &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
