//! Slots of a key: so many may hold it at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use syncguard::{AcquireOutcome, ExtendOutcome, ReleaseOutcome, lock};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::claims::{PATIENCE, attempt, extend, ids, patient, plain, release, slot, take};
use crate::fixture::{LONG, Stage, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    slots_are_granted_until_none_is_free,
    a_slot_that_is_free_again_has_a_larger_fence,
    slots_and_their_key_are_apart,
    with_two_limits_the_larger_holds,
    several_slots_are_granted_or_none,
    keys_and_slots_go_together,
    a_slot_is_a_lock_like_any_other,
    a_slot_whose_time_is_over_is_free,
    who_asks_for_less_time_takes_no_slot_away,
    many_are_never_more_than_the_slots,
    whoever_waits_for_a_slot_gets_it,
];

async fn slots_are_granted_until_none_is_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut numbers = HashSet::new();
    for _ in 0..5 {
        let grant = take(&t, vec![slot(&key, 5)]).await.remove(0);
        numbers.insert(grant.slot.unwrap());
    }
    assert_eq!(numbers, HashSet::from([1, 2, 3, 4, 5]));
    for backend in [&t.backend, &t.fixture.peer()] {
        let outcome = attempt(backend.as_ref(), vec![slot(&key, 5)], LONG).await;
        assert!(matches!(outcome, AcquireOutcome::Locked { claim: 0, .. }));
    }
}

async fn a_slot_that_is_free_again_has_a_larger_fence(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut grants: Vec<_> = Vec::new();
    for _ in 0..3 {
        grants.push(take(&t, vec![slot(&key, 3)]).await.remove(0));
    }
    for freed in &grants {
        release(&t, [freed.lock_id.clone()].into()).await;
        let next = take(&t, vec![slot(&key, 3)]).await.remove(0);
        assert_eq!(next.slot, freed.slot);
        assert!(next.fence > freed.fence);
    }
}

async fn slots_and_their_key_are_apart(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    take(&t, vec![slot(&key, 1)]).await;
    assert!(!t.is_locked(&key).await);
    t.acquire(&key, LONG).await;
    let outcome = attempt(t.backend.as_ref(), vec![slot(&key, 1)], LONG).await;
    assert!(outcome.is_locked());
}

async fn with_two_limits_the_larger_holds(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    for _ in 0..4 {
        take(&t, vec![slot(&key, 4)]).await;
    }
    for count in [2, 3, 4] {
        let outcome = attempt(t.backend.as_ref(), vec![slot(&key, count)], LONG).await;
        assert!(outcome.is_locked(), "{count}");
    }
    let fifth = take(&t, vec![slot(&key, 5)]).await;
    assert_eq!(fifth[0].slot, Some(5));
}

async fn several_slots_are_granted_or_none(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let three = || vec![slot(&key, 5), slot(&key, 5), slot(&key, 5)];
    let grants = take(&t, three()).await;
    let numbers: HashSet<_> = grants.iter().map(|grant| grant.slot.unwrap()).collect();
    assert_eq!(numbers.len(), 3);
    let outcome = attempt(t.backend.as_ref(), three(), LONG).await;
    assert!(outcome.is_locked());
    let two = take(&t, vec![slot(&key, 5), slot(&key, 5)]).await;
    assert!(
        two.iter()
            .all(|grant| !numbers.contains(&grant.slot.unwrap()))
    );
}

async fn keys_and_slots_go_together(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let both = || vec![slot(&b, 2), plain(&a), slot(&b, 2)];
    let grants = take(&t, both()).await;
    assert_eq!(grants[0].slot, None);
    assert!(t.is_locked(&a).await);
    // The key is in the way, and then the slots.
    let outcome = attempt(t.backend.as_ref(), both(), LONG).await;
    assert!(outcome.is_locked());
    release(&t, [grants[0].lock_id.clone()].into()).await;
    let outcome = attempt(t.backend.as_ref(), both(), LONG).await;
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked { claim: 1 | 2, .. }
    ));
    assert!(!t.is_locked(&a).await);
    let released = release(&t, ids(&grants[1..])).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released; 2]);
    take(&t, both()).await;
}

async fn a_slot_is_a_lock_like_any_other(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = take(&t, vec![slot(&key, 2)]).await.remove(0);
    let number = grant.slot.unwrap();
    let name = key.slot(number);
    assert!(t.is_locked(&name).await);
    assert!(!t.is_locked(&key.slot(3 - number)).await);
    for record in [t.by_key(&name).await, t.by_id(&grant.lock_id).await] {
        let record = record.unwrap();
        assert_eq!(record.key, name);
        assert_eq!(
            (record.key.base(), record.key.slot_number()),
            (key.as_str(), Some(number))
        );
        assert_eq!(record.fence, grant.fence);
    }
    assert!(t.backend.force_release(&name).await.unwrap());
    assert!(!t.is_locked(&name).await);
    let released = release(&t, [grant.lock_id].into()).await;
    assert_ne!(released[0], ReleaseOutcome::Released);
}

async fn a_slot_whose_time_is_over_is_free(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let granted = attempt(t.backend.as_ref(), vec![slot(&key, 1)], ttl(50)).await;
    let AcquireOutcome::Acquired(old) = granted else {
        panic!("locked");
    };
    let outcome = attempt(t.backend.as_ref(), vec![slot(&key, 1)], LONG).await;
    assert!(outcome.is_locked());
    t.pass_ms(50 + 1000 + 50).await;
    let new = take(&t, vec![slot(&key, 1)]).await;
    assert!(new[0].fence > old[0].fence);
    let extended = extend(&t, ids(&old), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
}

async fn who_asks_for_less_time_takes_no_slot_away(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let held = take(&t, vec![slot(&key, 1)]).await;
    let peer = t.fixture.peer();
    for _ in 0..5 {
        let outcome = attempt(peer.as_ref(), vec![slot(&key, 1)], ttl(50)).await;
        assert!(outcome.is_locked());
        t.pass_ms(200).await;
    }
    let released = release(&t, ids(&held)).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released]);
}

async fn many_are_never_more_than_the_slots(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (holders, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut all = JoinSet::new();
    for number in 0..24 {
        let backend = match number % 2 {
            0 => Arc::clone(&t.backend),
            _ => t.fixture.peer(),
        };
        let (key, holders, most) = (key.clone(), Arc::clone(&holders), Arc::clone(&most));
        all.spawn(async move {
            let guard = lock(&backend, slot(&key, 4), &patient()).await.unwrap();
            most.fetch_max(holders.fetch_add(1, SeqCst) + 1, SeqCst);
            sleep(Duration::from_millis(5)).await;
            holders.fetch_sub(1, SeqCst);
            assert!(guard.release().await.unwrap());
        });
    }
    timeout(3 * PATIENCE, all.join_all()).await.unwrap();
    assert!((1..=4).contains(&most.load(SeqCst)), "{most:?}");
}

async fn whoever_waits_for_a_slot_gets_it(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut grants = take(&t, vec![slot(&key, 2), slot(&key, 2)]).await;
    let (backend, wanted) = (t.fixture.peer(), slot(&key, 2));
    let waiter = tokio::spawn(async move { lock(&backend, wanted, &patient()).await });
    sleep(Duration::from_millis(100)).await;
    let freed = grants.remove(1);
    release(&t, [freed.lock_id].into()).await;
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.grants()[0].slot, freed.slot);
    assert_eq!(guard.fence_of(&key), Some(guard.fence()));
    assert!(guard.release().await.unwrap());
}
