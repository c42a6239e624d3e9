use crate::support::attempts::Attempts as _;
use syncguard::{ExtendOutcome, ReleaseOutcome, Ttl};

use crate::fixture::{LONG, Stage, tests, ttl};

tests![
    a_lock_is_taken_and_freed,
    a_grant_says_when_it_ends,
    the_shortest_and_the_longest_ttl_work,
    an_extension_counts_from_now,
    keys_are_independent,
    capabilities_are_declared,
    many_cycles_leave_the_key_free,
];

async fn a_lock_is_taken_and_freed(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    assert!(t.is_locked(&key).await);
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
    assert!(!t.is_locked(&key).await);
    t.acquire(&key, LONG).await;
}

async fn a_grant_says_when_it_ends(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, ttl(20_000)).await;
    let record = t.by_key(&key).await.unwrap();
    assert_eq!(grant.expires_at_ms, record.acquired_at_ms + 20_000);
    assert_eq!(grant.expires_at_ms, record.expires_at_ms);
}

async fn the_shortest_and_the_longest_ttl_work(stage: Stage) {
    let t = stage.open().await;
    for ttl in [ttl(1), ttl(Ttl::MAX_MS)] {
        let key = t.key(&ttl.as_millis().to_string());
        let grant = t.acquire(&key, ttl).await;
        let record = t.by_id(&grant.lock_id).await.unwrap();
        assert_eq!(
            record.expires_at_ms - record.acquired_at_ms,
            ttl.as_millis()
        );
    }
}

async fn an_extension_counts_from_now(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, ttl(60_000)).await;
    let outcome = t.backend.extend(&grant.lock_id, ttl(10_000)).await.unwrap();
    let ExtendOutcome::Extended { expires_at_ms } = outcome else {
        panic!("not extended");
    };
    // Not added to what was left: it ends sooner than before.
    assert!(expires_at_ms < grant.expires_at_ms);
    let record = t.by_key(&key).await.unwrap();
    assert_eq!(record.expires_at_ms, expires_at_ms);
    assert!(record.expires_at_ms >= record.acquired_at_ms + 10_000);
    assert_eq!(record.fence, grant.fence);
}

async fn keys_are_independent(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let first = t.acquire(&a, LONG).await;
    let second = t.acquire(&b, LONG).await;
    assert_ne!(first.lock_id, second.lock_id);
    t.backend.release(&first.lock_id).await.unwrap();
    assert!(!t.is_locked(&a).await);
    assert!(t.is_locked(&b).await);
}

async fn capabilities_are_declared(stage: Stage) {
    let t = stage.open().await;
    let capabilities = t.backend.capabilities();
    assert!(capabilities.supports_fencing);
    assert!(!capabilities.backend.is_empty());
    assert_eq!(capabilities, t.fixture.peer().capabilities());
}

async fn many_cycles_leave_the_key_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    for _ in 0..50 {
        let grant = t.acquire(&key, LONG).await;
        let released = t.backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
    assert_eq!(t.by_key(&key).await, None);
}
