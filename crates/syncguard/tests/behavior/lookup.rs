use crate::support::attempts::Attempts as _;
use syncguard::{Labels, LockId, ReleaseOutcome};

use crate::fixture::{LONG, Stage, tests, ttl};

tests![
    a_lock_is_found_by_key_and_by_id,
    what_is_found_is_what_was_granted,
    a_free_key_has_no_lock,
    a_released_lock_is_not_found,
    looking_changes_nothing,
    another_backend_finds_it,
];

async fn a_lock_is_found_by_key_and_by_id(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    let by_key = t.by_key(&key).await.unwrap();
    let mut by_id = t.by_id(&grant.lock_id).await.unwrap();
    by_id.read_at_ms = by_key.read_at_ms;
    assert_eq!(by_key, by_id);
}

async fn what_is_found_is_what_was_granted(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, ttl(12_345)).await;
    let record = t.by_key(&key).await.unwrap();
    assert_eq!(record.key, key);
    assert_eq!(record.lock_id, grant.lock_id);
    assert_eq!(record.fence, grant.fence);
    assert_eq!(record.expires_at_ms, grant.expires_at_ms);
    assert_eq!(record.acquired_at_ms, grant.expires_at_ms - 12_345);
    assert_eq!(record.labels, Labels::of_process());
    assert!(record.is_live());
    assert!((record.acquired_at_ms..grant.expires_at_ms).contains(&record.read_at_ms));
}

async fn a_free_key_has_no_lock(stage: Stage) {
    let t = stage.open().await;
    assert_eq!(t.by_key(&t.key("a")).await, None);
    assert_eq!(t.by_id(&LockId::generate().unwrap()).await, None);
}

async fn a_released_lock_is_not_found(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    t.backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(t.by_key(&key).await, None);
    assert_eq!(t.by_id(&grant.lock_id).await, None);
}

async fn looking_changes_nothing(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    for _ in 0..5 {
        t.by_key(&key).await;
        t.is_locked(&key).await;
    }
    let record = t.by_id(&grant.lock_id).await.unwrap();
    assert_eq!(record.expires_at_ms, grant.expires_at_ms);
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
}

async fn another_backend_finds_it(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire(&t.key("a"), LONG).await;
    let lookup = syncguard::Lookup::LockId(grant.lock_id.clone());
    let record = t.fixture.peer().lookup(&lookup).await.unwrap().unwrap();
    assert_eq!(record.fence, grant.fence);
}
