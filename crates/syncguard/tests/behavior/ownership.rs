use crate::support::attempts::Attempts as _;
use syncguard::{Absence, ExtendOutcome, LockId, ReleaseOutcome};

use crate::fixture::{LONG, Stage, tests};

tests![
    an_unknown_id_owns_nothing,
    a_lock_is_released_once,
    of_many_releases_one_succeeds,
    an_id_opens_only_its_own_lock,
    a_released_lock_cannot_be_extended,
];

async fn an_unknown_id_owns_nothing(stage: Stage) {
    let t = stage.open().await;
    let unknown = LockId::generate().unwrap();
    assert_eq!(
        t.backend.release(&unknown).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        t.backend.extend(&unknown, LONG).await.unwrap(),
        ExtendOutcome::absent(Absence::NotFound)
    );
    assert_eq!(t.by_id(&unknown).await, None);
}

async fn a_lock_is_released_once(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire(&t.key("a"), LONG).await;
    let release = || t.backend.release(&grant.lock_id);
    assert_eq!(release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(
        release().await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
}

async fn of_many_releases_one_succeeds(stage: Stage) {
    let t = stage.open().await;
    let grant = t.acquire(&t.key("a"), LONG).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let backend = if number % 2 == 0 {
            t.fixture.backend()
        } else {
            t.fixture.peer()
        };
        let lock_id = grant.lock_id.clone();
        tasks.spawn(async move { backend.release(&lock_id).await.unwrap() });
    }
    let outcomes = tasks.join_all().await;
    let released = outcomes
        .iter()
        .filter(|outcome| **outcome == ReleaseOutcome::Released)
        .count();
    assert_eq!(released, 1, "{outcomes:?}");
}

async fn an_id_opens_only_its_own_lock(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let first = t.acquire(&a, LONG).await;
    let second = t.acquire(&b, LONG).await;
    t.backend.release(&first.lock_id).await.unwrap();
    let taken_over = t.acquire(&a, LONG).await;
    assert_eq!(
        t.backend.release(&first.lock_id).await.unwrap(),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(t.by_key(&a).await.unwrap().lock_id, taken_over.lock_id);
    assert_eq!(t.by_key(&b).await.unwrap().lock_id, second.lock_id);
}

async fn a_released_lock_cannot_be_extended(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    t.backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(
        t.backend.extend(&grant.lock_id, LONG).await.unwrap(),
        ExtendOutcome::absent(Absence::NotFound)
    );
    assert!(!t.is_locked(&key).await);
}
