use crate::support::attempts::Attempts as _;
use syncguard::{Absence, ExtendOutcome, ReleaseOutcome};

use crate::fixture::{LONG, Stage, tests};

tests![
    a_held_key_becomes_free,
    the_holder_has_lost_its_lock,
    a_free_key_has_nothing_to_release,
    an_expired_lock_does_not_count,
    other_keys_stay_locked,
];

async fn a_held_key_becomes_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    assert!(!t.is_locked(&key).await);
    assert!(!t.backend.force_release(&key).await.unwrap());
}

async fn the_holder_has_lost_its_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    t.fixture.peer().force_release(&key).await.unwrap();
    assert_eq!(t.by_id(&grant.lock_id).await, None);
    assert_eq!(
        t.backend.extend(&grant.lock_id, LONG).await.unwrap(),
        ExtendOutcome::absent(Absence::NotFound)
    );
    let next = t.acquire(&key, LONG).await;
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(t.by_key(&key).await.unwrap().lock_id, next.lock_id);
}

async fn a_free_key_has_nothing_to_release(stage: Stage) {
    let t = stage.open().await;
    assert!(!t.backend.force_release(&t.key("a")).await.unwrap());
}

async fn an_expired_lock_does_not_count(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire_and_expire(&key).await;
    assert!(!t.backend.force_release(&key).await.unwrap());
}

async fn other_keys_stay_locked(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    t.acquire(&a, LONG).await;
    let other = t.acquire(&b, LONG).await;
    assert!(t.backend.force_release(&a).await.unwrap());
    assert_eq!(t.by_key(&b).await.unwrap().lock_id, other.lock_id);
}
