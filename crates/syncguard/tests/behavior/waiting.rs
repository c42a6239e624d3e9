//! `lock()` and its guard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{AcquireOutcome, Backend, ErrorKind, Jitter, LockOptions, RetryPolicy, lock};

use crate::faulty::{Fault, Faulty};
use crate::fixture::{LONG, Stage, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    a_free_key_is_locked_at_once,
    a_waiter_gets_the_lock_when_it_is_released,
    a_waiter_takes_over_an_expired_lock,
    a_waiter_gives_up_when_its_time_is_over,
    a_waiter_gives_up_after_its_last_retry,
    passing_failures_are_tried_again,
    lasting_failures_are_not,
    the_last_failure_is_reported,
    a_guard_extends_its_lock,
    a_guard_notices_that_its_lock_is_lost,
    a_dropped_guard_frees_its_lock,
    a_dropped_waiter_leaves_nothing,
];

fn options(retry_delay_ms: f64, max_retries: f64, timeout_ms: f64) -> LockOptions {
    LockOptions {
        ttl: LONG,
        retry: RetryPolicy {
            max_retries,
            retry_delay_ms,
            timeout_ms,
            jitter: Jitter::None,
            ..RetryPolicy::default()
        },
        owner: None,
        ..LockOptions::default()
    }
}

/// Enough time for anything that comes at all.
fn patient() -> LockOptions {
    options(5.0, f64::INFINITY, 20_000.0)
}

async fn a_free_key_is_locked_at_once(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let guard = lock(&t.backend, &key, &options(1000.0, 0.0, 20_000.0))
        .await
        .unwrap();
    let record = t.by_key(&key).await.unwrap();
    assert_eq!(&record.lock_id, guard.lock_id());
    assert_eq!(record.fence, guard.fence());
    assert_eq!(record.expires_at_ms, guard.expires_at_ms());
    assert!(guard.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
}

async fn a_waiter_gets_the_lock_when_it_is_released(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let holder = t.acquire(&key, LONG).await;
    let (backend, wanted) = (t.fixture.peer(), key.clone());
    let counted = Faulty::new(&backend, Fault::First(0, ErrorKind::Internal));
    let store: Arc<dyn Backend> = Arc::clone(&counted) as _;
    let waiter = tokio::spawn(async move { lock(&store, &wanted, &patient()).await });
    // It has been refused at least once.
    counted.done.acquire().await.unwrap().forget();
    t.backend.release(&holder.lock_id).await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.fence() > holder.fence);
    assert!(counted.acquisitions() >= 2);
}

async fn a_waiter_takes_over_an_expired_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let gone = t.acquire(&key, ttl(50)).await;
    let options = patient();
    let (waiter, ()) = tokio::join!(lock(&t.backend, &key, &options), t.pass_ms(1100));
    assert!(waiter.unwrap().fence() > gone.fence);
}

async fn a_waiter_gives_up_when_its_time_is_over(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    // On a busy machine the store may not have answered by then.
    let mut time_ms = 100.0;
    let (start, error) = loop {
        let start = Instant::now();
        let error = lock(&t.backend, &key, &options(5.0, f64::INFINITY, time_ms))
            .await
            .unwrap_err();
        if error.kind() != ErrorKind::NetworkTimeout || time_ms > 10_000.0 {
            break (start, error);
        }
        time_ms *= 4.0;
    };
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert!(
        error
            .message()
            .starts_with("Timeout reached before next retry")
    );
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert!(!error.to_string().contains(key.as_str()));
}

async fn a_waiter_gives_up_after_its_last_retry(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    let counted = Faulty::new(&t.backend, Fault::First(0, ErrorKind::Internal));
    let store: Arc<dyn Backend> = Arc::clone(&counted) as _;
    let error = lock(&store, &key, &options(1.0, 3.0, 20_000.0))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert!(error.message().starts_with("Failed to acquire lock after"));
    assert_eq!(counted.acquisitions(), 4);
}

async fn passing_failures_are_tried_again(stage: Stage) {
    let t = stage.open().await;
    for kind in [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout] {
        let key = t.key(kind.as_str());
        let faulty = Faulty::new(&t.backend, Fault::First(3, kind));
        let store: Arc<dyn Backend> = Arc::clone(&faulty) as _;
        let guard = lock(&store, &key, &patient()).await.unwrap();
        assert_eq!(faulty.acquisitions(), 4);
        assert_eq!(t.by_key(&key).await.unwrap().fence, guard.fence());
    }
}

async fn lasting_failures_are_not(stage: Stage) {
    let t = stage.open().await;
    for kind in [
        ErrorKind::AuthFailed,
        ErrorKind::InvalidArgument,
        ErrorKind::RateLimited,
        ErrorKind::Internal,
    ] {
        let faulty = Faulty::new(&t.backend, Fault::First(1, kind));
        let store: Arc<dyn Backend> = Arc::clone(&faulty) as _;
        let error = lock(&store, &t.key("a"), &patient()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(faulty.acquisitions(), 1);
    }
}

async fn the_last_failure_is_reported(stage: Stage) {
    let t = stage.open().await;
    let faulty = Faulty::new(
        &t.backend,
        Fault::First(usize::MAX, ErrorKind::ServiceUnavailable),
    );
    let store: Arc<dyn Backend> = Arc::clone(&faulty) as _;
    let error = lock(&store, &t.key("a"), &options(1.0, 2.0, 20_000.0))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    let message = error.message();
    assert!(
        message.starts_with("gave up after ")
            && message.ends_with(" ms and 3 attempts: the store is not well"),
        "{message}"
    );
    assert_eq!(faulty.acquisitions(), 3);
}

async fn a_guard_extends_its_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut guard = lock(&t.backend, &key, &patient()).await.unwrap();
    let before = guard.expires_at_ms();
    assert!(guard.extend(ttl(90_000)).await.unwrap());
    assert!(guard.expires_at_ms() > before);
    assert_eq!(
        t.by_key(&key).await.unwrap().expires_at_ms,
        guard.expires_at_ms()
    );
}

async fn a_guard_notices_that_its_lock_is_lost(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut guard = lock(&t.backend, &key, &patient()).await.unwrap();
    t.backend.force_release(&key).await.unwrap();
    assert!(!guard.extend(LONG).await.unwrap());
    assert!(!guard.release().await.unwrap());
}

async fn a_dropped_guard_frees_its_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let guard = lock(&t.backend, &key, &patient()).await.unwrap();
    assert!(t.is_locked(&key).await);
    drop(guard);
    t.until_free(&key).await;
}

async fn a_dropped_waiter_leaves_nothing(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let holder = t.acquire(&key, LONG).await;
    let (backend, wanted) = (Arc::clone(&t.backend), key.clone());
    let counted = Faulty::new(&backend, Fault::First(0, ErrorKind::Internal));
    let store: Arc<dyn Backend> = Arc::clone(&counted) as _;
    let waiter = tokio::spawn(async move { lock(&store, &wanted, &patient()).await });
    counted.done.acquire().await.unwrap().forget();
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    t.backend.release(&holder.lock_id).await.unwrap();
    t.until_free(&key).await;
    // Nobody is waiting any more: the next attempt is not contended.
    assert!(matches!(
        t.try_acquire(&key, LONG).await,
        AcquireOutcome::Acquired(_)
    ));
}
