use crate::fixture::{LONG, Setup, Stage, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    it_follows_the_lock,
    it_needs_no_ownership,
    cleanup_never_changes_an_answer,
    cleanup_keeps_the_fence,
    cleanup_spares_live_and_late_locks,
];

const CLEANING: Setup = Setup {
    cleanup_in_is_locked: true,
};

async fn it_follows_the_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    assert!(!t.is_locked(&key).await);
    let grant = t.acquire(&key, LONG).await;
    assert!(t.is_locked(&key).await);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert!(!t.is_locked(&key).await);
}

async fn it_needs_no_ownership(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    assert!(t.fixture.peer().is_locked(&key).await.unwrap());
    assert!(!t.fixture.peer().is_locked(&t.key("b")).await.unwrap());
}

async fn cleanup_never_changes_an_answer(stage: Stage) {
    let t = stage.open_with(CLEANING).await;
    let key = t.key("a");
    t.acquire(&key, ttl(50)).await;
    // Before its end, in the tolerance, after it, and when it may be cleaned up.
    for (ms, expected) in [(0, true), (100, true), (1100, false), (1500, false)] {
        t.pass_ms(ms).await;
        assert_eq!(t.is_locked(&key).await, expected);
        assert_eq!(t.is_locked(&key).await, expected);
    }
}

async fn cleanup_keeps_the_fence(stage: Stage) {
    let t = stage.open_with(CLEANING).await;
    let key = t.key("a");
    let grant = t.acquire_and_expire(&key).await;
    t.pass_ms(2100).await;
    assert!(!t.is_locked(&key).await);
    assert!(t.acquire(&key, LONG).await.fence > grant.fence);
}

async fn cleanup_spares_live_and_late_locks(stage: Stage) {
    let t = stage.open_with(CLEANING).await;
    let (live, late) = (t.key("live"), t.key("late"));
    let live_grant = t.acquire(&live, LONG).await;
    let late_grant = t.acquire(&late, ttl(50)).await;
    t.pass_ms(500).await;
    assert!(t.is_locked(&live).await && t.is_locked(&late).await);
    for grant in [live_grant, late_grant] {
        let record = t.by_id(&grant.lock_id).await.unwrap();
        assert_eq!(record.expires_at_ms, grant.expires_at_ms);
    }
}
