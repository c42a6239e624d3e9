use crate::support::attempts::Attempts as _;
use syncguard::{Absence, ExtendOutcome, ReleaseOutcome};

use crate::fixture::{LONG, Stage, tests, ttl};

tests![
    an_expired_lock_is_free,
    within_the_tolerance_a_lock_is_held,
    within_the_tolerance_a_lock_can_be_extended,
    within_the_tolerance_a_lock_can_be_released,
    release_says_that_it_came_too_late,
    extend_does_not_bring_a_lock_back,
    an_extended_lock_outlives_its_first_ttl,
    a_late_release_leaves_the_next_holder_alone,
];

async fn an_expired_lock_is_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire_and_expire(&key).await;
    assert!(!t.is_locked(&key).await);
    assert_eq!(t.by_key(&key).await, None);
    assert_eq!(t.by_id(&grant.lock_id).await, None);
    t.acquire(&key, LONG).await;
}

/// A lock that is past its expiry by less than the tolerance of one second.
async fn late(t: &crate::fixture::Context) -> (syncguard::Key, syncguard::Grant) {
    let key = t.key("late");
    let grant = t.acquire(&key, ttl(50)).await;
    t.pass_ms(150).await;
    (key, grant)
}

async fn within_the_tolerance_a_lock_is_held(stage: Stage) {
    let t = stage.open().await;
    let (key, grant) = late(&t).await;
    assert!(t.is_locked(&key).await);
    let record = t.by_id(&grant.lock_id).await.unwrap();
    assert!(record.expires_at_ms < record.read_at_ms);
    assert!(t.try_acquire(&key, LONG).await.is_locked());
}

async fn within_the_tolerance_a_lock_can_be_extended(stage: Stage) {
    let t = stage.open().await;
    let (key, grant) = late(&t).await;
    let extended = t.backend.extend(&grant.lock_id, LONG).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    t.pass_ms(1100).await;
    assert!(t.is_locked(&key).await);
}

async fn within_the_tolerance_a_lock_can_be_released(stage: Stage) {
    let t = stage.open().await;
    let (key, grant) = late(&t).await;
    let released = t.backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert!(!t.is_locked(&key).await);
}

async fn release_says_that_it_came_too_late(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire_and_expire(&t.key("a")).await;
    let reason = t.fixture.absence_of_expired();
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Absent(reason)
    );
    // It is gone now.
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
}

async fn extend_does_not_bring_a_lock_back(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire_and_expire(&key).await;
    let reason = t.fixture.absence_of_expired();
    assert_eq!(
        t.backend.extend(&grant.lock_id, LONG).await.unwrap(),
        ExtendOutcome::absent(reason)
    );
    assert!(!t.is_locked(&key).await);
    assert_eq!(
        t.backend.extend(&grant.lock_id, LONG).await.unwrap(),
        ExtendOutcome::absent(Absence::NotFound)
    );
    t.acquire(&key, LONG).await;
}

async fn an_extended_lock_outlives_its_first_ttl(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, ttl(50)).await;
    t.backend.extend(&grant.lock_id, LONG).await.unwrap();
    t.pass_ms(1200).await;
    assert!(t.is_locked(&key).await);
    assert_eq!(t.by_id(&grant.lock_id).await.unwrap().fence, grant.fence);
}

async fn a_late_release_leaves_the_next_holder_alone(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let late = t.acquire_and_expire(&key).await;
    let holder = t.acquire(&key, LONG).await;
    assert_eq!(
        t.backend.release(&late.lock_id).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        t.backend.extend(&late.lock_id, LONG).await.unwrap(),
        ExtendOutcome::absent(Absence::NotFound)
    );
    let record = t.by_key(&key).await.unwrap();
    assert_eq!(record.lock_id, holder.lock_id);
    assert_eq!(record.expires_at_ms, holder.expires_at_ms);
}
