use crate::support::attempts::Attempts as _;
use syncguard::AcquireOutcome;

use crate::fixture::{LONG, Stage, prepared, tests, ttl};

tests![
    a_held_key_is_refused,
    a_holder_cannot_take_its_key_again,
    a_refused_attempt_changes_nothing,
    another_backend_sees_the_lock,
    another_backend_can_release,
];

async fn a_held_key_is_refused(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    for _ in 0..3 {
        assert!(t.try_acquire(&key, LONG).await.is_locked());
    }
}

async fn a_holder_cannot_take_its_key_again(stage: Stage) {
    let t = stage.open().await;
    let request = prepared(t.backend.as_ref(), &t.key("a"), LONG);
    let first = t.backend.acquire(&request).await.unwrap();
    let AcquireOutcome::Acquired(mut grants) = first.clone() else {
        panic!("nobody holds the key");
    };
    let grant = grants.remove(0);
    // The same attempt once more, as after an answer that was lost: there is no second grant.
    let again = t.backend.acquire(&request).await.unwrap();
    assert!(again.is_locked() || again == first);
    let key = t.key("a");
    assert!(t.try_acquire(&key, LONG).await.is_locked());
    t.backend.release(&request.claims[0].lock_id).await.unwrap();
    assert!(t.acquire(&key, LONG).await.fence > grant.fence);
}

async fn a_refused_attempt_changes_nothing(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    let before = t.by_key(&key).await.unwrap();
    t.try_acquire(&key, ttl(90_000)).await;
    let mut after = t.by_key(&key).await.unwrap();
    after.read_at_ms = before.read_at_ms;
    assert_eq!(after, before);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert!(t.acquire(&key, LONG).await.fence > grant.fence);
}

async fn another_backend_sees_the_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    let peer = t.fixture.peer();
    assert!(peer.is_locked(&key).await.unwrap());
    let request = prepared(peer.as_ref(), &key, LONG);
    assert!(peer.acquire(&request).await.unwrap().is_locked());
}

async fn another_backend_can_release(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    let peer = t.fixture.peer();
    peer.release(&grant.lock_id).await.unwrap();
    assert!(!t.is_locked(&key).await);
    let request = prepared(peer.as_ref(), &key, LONG);
    let AcquireOutcome::Acquired(mut nexts) = peer.acquire(&request).await.unwrap() else {
        panic!("still locked");
    };
    let next = nexts.remove(0);
    assert!(next.fence > grant.fence);
}
