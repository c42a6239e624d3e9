use crate::support::attempts::Attempts as _;
use syncguard::{Error, ErrorKind, Fence, Key};

use crate::fixture::{Context, LONG, Stage, prepared, tests};

tests![Inspection:
    the_last_fence_is_given,
    at_the_limit_nothing_is_left_behind,
    a_counter_beyond_all_bounds_is_refused,
    an_expired_lock_stays_expired_at_the_limit,
    fences_near_the_limit_are_marked,
];

const MAX: i64 = 900_000_000_000_000;

async fn refused(t: &Context, key: &Key) -> Error {
    let request = prepared(t.backend.as_ref(), key, LONG);
    let error = t.backend.acquire(&request).await.unwrap_err();
    let lookup = syncguard::Lookup::LockId(request.claims[0].lock_id.clone());
    assert_eq!(t.backend.lookup(&lookup).await.unwrap(), None);
    error
}

async fn the_last_fence_is_given(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.fixture.set_fence_counter(&key, MAX - 1).await;
    let grant = t.acquire(&key, LONG).await;
    assert_eq!(grant.fence, Fence::MAX);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(refused(&t, &key).await.kind(), ErrorKind::Internal);
}

async fn at_the_limit_nothing_is_left_behind(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.fixture.set_fence_counter(&key, MAX).await;
    for _ in 0..2 {
        let error = refused(&t, &key).await;
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("limit"), "{error}");
        assert!(!error.is_outcome_unknown());
        assert!(!t.is_locked(&key).await);
        assert!(!t.fixture.has_record(&key).await);
    }
    // Not even the counter: one less, and the last fence is there to be had.
    t.fixture.set_fence_counter(&key, MAX - 1).await;
    assert_eq!(t.acquire(&key, LONG).await.fence, Fence::MAX);
}

async fn a_counter_beyond_all_bounds_is_refused(stage: Stage) {
    let t = stage.open().await;
    for counter in [-1, i64::MIN, MAX + 1, 999_999_999_999_999, i64::MAX - 1] {
        let key = t.key(&counter.to_string());
        t.fixture.set_fence_counter(&key, counter).await;
        assert_eq!(refused(&t, &key).await.kind(), ErrorKind::Internal);
        assert!(!t.fixture.has_record(&key).await);
    }
}

async fn an_expired_lock_stays_expired_at_the_limit(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire_and_expire(&key).await;
    t.fixture.set_fence_counter(&key, MAX).await;
    assert_eq!(refused(&t, &key).await.kind(), ErrorKind::Internal);
    assert!(!t.is_locked(&key).await);
}

async fn fences_near_the_limit_are_marked(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.fixture
        .set_fence_counter(&key, 90_000_000_000_000 - 1)
        .await;
    let last_quiet = t.acquire(&key, LONG).await;
    assert_eq!(last_quiet.fence, Fence::WARN);
    assert!(!last_quiet.fence.is_near_limit());
    t.backend.release(&last_quiet.lock_id).await.unwrap();
    assert!(t.acquire(&key, LONG).await.fence.is_near_limit());
}
