//! Locks that readers share and writers have alone.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ExtendOutcome, Grant, Key, Operation, Outcome,
    PageRequest, ReleaseOutcome, TIME_TOLERANCE_MS, Ttl, lock,
};
use tokio::sync::Semaphore;

use crate::claims::{attempt, extend, ids, patient, plain, release, shared, slot, take};
use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, eventually, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    Sharing:
    many_share_a_key_and_a_writer_has_it_alone,
    readers_have_the_fence_of_their_group,
    a_join_that_is_repeated_is_answered_as_before,
    a_key_is_free_when_its_last_reader_ends,
    a_reader_extends_itself_alone,
    a_reader_who_leaves_takes_nothing_along,
    a_reader_who_is_gone_costs_its_own_time,
    a_reader_whose_time_is_made_shorter_costs_that,
    who_is_dropped_leaves_without_the_others,
    the_id_of_a_group_gives_no_right,
    who_frees_a_key_by_force_frees_it_of_all_readers,
    readers_of_an_earlier_group_have_lost_their_locks,
    no_reader_passes_the_gate,
    sets_are_shared_in_part,
    what_is_shared_and_slots_are_apart,
    a_group_and_its_readers_are_found,
];

/// Joins the readers of `key`, on another connection than the tests' own.
pub(crate) async fn joins(backend: &dyn Backend, key: &Key, ttl: Ttl) -> Grant {
    match attempt(backend, vec![shared(key)], ttl).await {
        AcquireOutcome::Acquired(grants) => grants[0].clone(),
        outcome => panic!("{outcome:?}"),
    }
}

/// Whether a writer is refused by readers; `None` if it is not refused. It leaves nothing behind.
pub(crate) async fn refused_by_readers(t: &Context, key: &Key) -> Option<bool> {
    match attempt(t.backend.as_ref(), vec![plain(key)], LONG).await {
        AcquireOutcome::Locked { is_shared, .. } => Some(is_shared),
        AcquireOutcome::Acquired(grants) => {
            release(t, ids(&grants)).await;
            None
        }
        AcquireOutcome::Done(_) => panic!("done"),
    }
}

pub(crate) async fn leaves(t: &Context, grant: &Grant) {
    let released = release(t, [grant.lock_id.clone()].into()).await;
    assert_eq!(released[0], ReleaseOutcome::Released);
}

async fn is_lost(t: &Context, grant: &Grant) {
    let extended = extend(t, [grant.lock_id.clone()].into(), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    assert_eq!(t.by_id(&grant.lock_id).await, None);
    let released = release(t, [grant.lock_id.clone()].into()).await;
    assert_ne!(released[0], ReleaseOutcome::Released);
}

async fn holds(t: &Context, grant: &Grant) {
    let extended = extend(t, [grant.lock_id.clone()].into(), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
}

/// How long a lock of that many milliseconds is held at most.
pub(crate) fn whole(ms: i64) -> u64 {
    (ms + TIME_TOLERANCE_MS).unsigned_abs() + 50
}

async fn many_share_a_key_and_a_writer_has_it_alone(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let first = joins(t.backend.as_ref(), &key, LONG).await;
    let second = joins(peer.as_ref(), &key, LONG).await;
    assert_ne!(first.lock_id, second.lock_id);
    assert_eq!((first.slot, second.slot), (None, None));
    assert!(t.is_locked(&key).await);
    for backend in [&t.backend, &peer] {
        let outcome = attempt(backend.as_ref(), vec![plain(&key)], LONG).await;
        let AcquireOutcome::Locked {
            claim,
            free_in,
            is_shared,
            ..
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((claim, is_shared), (0, true));
        assert!(free_in.is_some_and(|it| it > Duration::from_secs(1)));
    }
    leaves(&t, &first).await;
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    leaves(&t, &second).await;
    assert!(!t.is_locked(&key).await);
    take(&t, vec![plain(&key)]).await;
    for backend in [&t.backend, &peer] {
        let outcome = attempt(backend.as_ref(), vec![shared(&key)], LONG).await;
        let by_writer = AcquireOutcome::Locked {
            claim: 0,
            free_in: None,
            labels: syncguard::Labels::of_process(),
            is_shared: false,
        };
        assert_eq!(without_time(outcome), by_writer);
    }
}

fn without_time(outcome: AcquireOutcome) -> AcquireOutcome {
    match outcome {
        AcquireOutcome::Locked {
            claim,
            labels,
            is_shared,
            ..
        } => AcquireOutcome::Locked {
            claim,
            free_in: None,
            labels,
            is_shared,
        },
        outcome => outcome,
    }
}

async fn readers_have_the_fence_of_their_group(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = None;
    for _ in 0..2 {
        let writer = t.acquire(&key, LONG).await;
        leaves(&t, &writer).await;
        let first = joins(t.backend.as_ref(), &key, LONG).await;
        let second = joins(t.fixture.peer().as_ref(), &key, LONG).await;
        // Who comes after another has left is still one of them.
        leaves(&t, &first).await;
        let third = joins(t.backend.as_ref(), &key, LONG).await;
        assert_eq!((first.fence, second.fence), (second.fence, third.fence));
        assert!(first.fence > writer.fence && Some(writer.fence) > last);
        last = Some(first.fence);
        leaves(&t, &second).await;
        leaves(&t, &third).await;
    }
}

async fn a_join_that_is_repeated_is_answered_as_before(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let _other = joins(t.fixture.peer().as_ref(), &key, LONG).await;
    let mut request = AcquireRequest::of([shared(&key)], LONG).unwrap();
    t.backend.prepare(&mut request);
    let first = t.backend.acquire(&request).await.unwrap();
    // The gate is for those who are not in yet.
    take(&t, vec![plain(&key.slot(0))]).await;
    assert_eq!(t.backend.acquire(&request).await.unwrap(), first);
    let AcquireOutcome::Acquired(grants) = first else {
        panic!("{first:?}");
    };
    leaves(&t, &grants[0]).await;
    assert!(t.backend.acquire(&request).await.unwrap().is_locked());
}

async fn a_key_is_free_when_its_last_reader_ends(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    // Whichever comes first.
    for (first, second) in [(50, 5_000), (5_000, 50)] {
        let one = joins(t.backend.as_ref(), &key, ttl(first)).await;
        let other = joins(t.fixture.peer().as_ref(), &key, ttl(second)).await;
        let (short, long) = if first < second {
            (one, other)
        } else {
            (other, one)
        };
        t.pass_ms(whole(50)).await;
        is_lost(&t, &short).await;
        assert_eq!(refused_by_readers(&t, &key).await, Some(true));
        assert!(t.by_id(&long.lock_id).await.is_some());
        t.pass_ms(5_000).await;
        assert!(!t.is_locked(&key).await);
        assert_eq!(refused_by_readers(&t, &key).await, None);
        is_lost(&t, &long).await;
    }
}

async fn a_reader_extends_itself_alone(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let stays = joins(t.backend.as_ref(), &key, ttl(3_000)).await;
    let ends = joins(t.fixture.peer().as_ref(), &key, ttl(2_000)).await;
    let extended = extend(&t, ids(std::slice::from_ref(&stays)), ttl(20_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("{extended:?}");
    };
    assert!(expires_at_ms > stays.expires_at_ms);
    t.pass_ms(whole(3_000)).await;
    is_lost(&t, &ends).await;
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    let record = t.by_id(&stays.lock_id).await.unwrap();
    assert_eq!(record.expires_at_ms, expires_at_ms);
    holds(&t, &stays).await;
}

async fn a_reader_who_leaves_takes_nothing_along(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut readers = Vec::new();
    for ms in [20_000, 30_000, 10_000] {
        readers.push(joins(t.backend.as_ref(), &key, ttl(ms)).await);
    }
    // The one that ends last leaves first.
    for at in [1, 0] {
        let left = readers.remove(at);
        leaves(&t, &left).await;
        is_lost(&t, &left).await;
        for reader in &readers {
            let id = [reader.lock_id.clone()];
            let extended = extend(&t, id.into(), ttl(10_000)).await;
            assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        }
        assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    }
    leaves(&t, &readers[0]).await;
    assert_eq!(t.by_key(&key).await, None);
}

async fn a_reader_who_is_gone_costs_its_own_time(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let leaves_early = joins(t.backend.as_ref(), &key, LONG).await;
    joins(t.fixture.peer().as_ref(), &key, ttl(1_000)).await;
    leaves(&t, &leaves_early).await;
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    t.pass_ms(whole(1_000)).await;
    let writer = take(&t, vec![plain(&key)]).await;
    assert!(writer[0].fence > leaves_early.fence);
}

async fn a_reader_whose_time_is_made_shorter_costs_that(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let first = joins(t.backend.as_ref(), &key, LONG).await;
    let stays = joins(t.fixture.peer().as_ref(), &key, ttl(20_000)).await;
    // As a release does that comes before the shortest time to hold is over.
    for (reader, is_left) in [(&first, true), (&stays, false)] {
        let extended = extend(&t, ids(std::slice::from_ref(reader)), ttl(1_000)).await;
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        t.pass_ms(whole(1_000)).await;
        is_lost(&t, reader).await;
        assert_eq!(t.is_locked(&key).await, is_left);
        assert_eq!(refused_by_readers(&t, &key).await, is_left.then_some(true));
    }
}

/// A guard, and an attempt whose answer nobody waits for any more.
async fn who_is_dropped_leaves_without_the_others(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let stays = joins(t.fixture.peer().as_ref(), &key, LONG).await;
    let guard = lock(&t.backend, shared(&key), &patient()).await.unwrap();
    let dropped = guard.lock_id().clone();
    drop(guard);
    eventually("it has left", async || t.by_id(&dropped).await.is_none()).await;
    let permits = Arc::new(Semaphore::new(0));
    let held_back = Faulty::new(&t.backend, Fault::HeldBack(Arc::clone(&permits)));
    let backend: Arc<dyn Backend> = Arc::clone(&held_back) as _;
    let mut request = AcquireRequest::of([shared(&key)], LONG).unwrap();
    backend.prepare(&mut request);
    let dropped = request.claims[0].lock_id.clone();
    let attempt = tokio::spawn(async move {
        let (operation, call) = (Operation::Acquire(request), CallOptions::DEFAULT);
        operation::run::<AcquireOutcome>(&backend, operation, call, pending()).await
    });
    held_back.done.acquire().await.unwrap().forget();
    assert!(t.by_id(&dropped).await.is_some());
    attempt.abort();
    assert!(attempt.await.unwrap_err().is_cancelled());
    permits.add_permits(1);
    eventually("it has left", async || t.by_id(&dropped).await.is_none()).await;
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    leaves(&t, &stays).await;
    assert!(!t.is_locked(&key).await);
}

async fn the_id_of_a_group_gives_no_right(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let reader = joins(t.backend.as_ref(), &key, ttl(2_000)).await;
    let group = t.by_key(&key).await.unwrap().lock_id;
    let extended = extend(&t, [group.clone()].into(), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    let released = release(&t, [group.clone()].into()).await;
    assert_ne!(released[0], ReleaseOutcome::Released);
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
    let both = vec![reader.lock_id.clone(), group].into();
    let both = extend(&t, both, LONG).await;
    assert!(matches!(both, ExtendOutcome::Absent { lock: 1, .. }));
    t.pass_ms(whole(2_000)).await;
    assert_eq!(refused_by_readers(&t, &key).await, None);
}

async fn who_frees_a_key_by_force_frees_it_of_all_readers(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let readers = [
        joins(t.backend.as_ref(), &key, LONG).await,
        joins(t.fixture.peer().as_ref(), &key, LONG).await,
    ];
    assert!(t.backend.force_release(&key).await.unwrap());
    assert!(!t.is_locked(&key).await);
    for reader in &readers {
        is_lost(&t, reader).await;
    }
    assert!(!t.backend.force_release(&key).await.unwrap());
    let writer = t.acquire(&key, LONG).await;
    assert!(writer.fence > readers[0].fence);
}

async fn readers_of_an_earlier_group_have_lost_their_locks(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let old = joins(t.backend.as_ref(), &key, LONG).await;
    t.backend.force_release(&key).await.unwrap();
    let writer = t.acquire(&key, LONG).await;
    leaves(&t, &writer).await;
    let new = joins(t.fixture.peer().as_ref(), &key, LONG).await;
    assert!(new.fence > old.fence);
    is_lost(&t, &old).await;
    holds(&t, &new).await;
    assert_eq!(refused_by_readers(&t, &key).await, Some(true));
}

async fn no_reader_passes_the_gate(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let inside = joins(t.backend.as_ref(), &key, LONG).await;
    let gate = take(&t, vec![plain(&key.slot(0))]).await.remove(0);
    for backend in [&t.backend, &t.fixture.peer()] {
        let outcome = attempt(backend.as_ref(), vec![shared(&key)], LONG).await;
        let AcquireOutcome::Locked { is_shared, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(!is_shared);
    }
    holds(&t, &inside).await;
    leaves(&t, &inside).await;
    // Not even the first.
    let outcome = attempt(t.backend.as_ref(), vec![shared(&key)], LONG).await;
    assert!(outcome.is_locked());
    assert!(!t.is_locked(&key).await);
    assert_eq!(refused_by_readers(&t, &key).await, None);
    leaves(&t, &gate).await;
    joins(t.backend.as_ref(), &key, LONG).await;
}

async fn sets_are_shared_in_part(stage: Stage) {
    let t = stage.open().await;
    let (a, b) = (t.key("a"), t.key("b"));
    let set = take(&t, vec![plain(&b), shared(&a), shared(&a)]).await;
    assert_eq!(set.len(), 2);
    let beside = joins(t.fixture.peer().as_ref(), &a, LONG).await;
    // What is held alone is in the way, and nothing is joined.
    let outcome = attempt(t.backend.as_ref(), vec![shared(&a), shared(&b)], LONG).await;
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            claim: 1,
            is_shared: false,
            ..
        }
    ));
    let outcome = attempt(
        t.backend.as_ref(),
        vec![plain(&a), plain(&t.key("c"))],
        LONG,
    )
    .await;
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            claim: 0,
            is_shared: true,
            ..
        }
    ));
    assert!(!t.is_locked(&t.key("c")).await);
    let extended = extend(&t, ids(&set), LONG).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    let released = release(&t, ids(&set)).await;
    assert_eq!(released.as_slice(), [ReleaseOutcome::Released; 2]);
    assert!(!t.is_locked(&b).await);
    assert_eq!(refused_by_readers(&t, &a).await, Some(true));
    leaves(&t, &beside).await;
    // All readers of several keys, and all writers of them.
    let both = |of: fn(&Key) -> syncguard::Claim| vec![of(&a), of(&b)];
    let (one, two) = (take(&t, both(shared)).await, take(&t, both(shared)).await);
    let outcome = attempt(t.backend.as_ref(), both(plain), LONG).await;
    assert!(outcome.is_locked());
    release(&t, ids(&one)).await;
    release(&t, ids(&two)).await;
    take(&t, both(plain)).await;
}

async fn what_is_shared_and_slots_are_apart(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let slots = take(&t, vec![slot(&key, 1)]).await;
    let reader = joins(t.backend.as_ref(), &key, LONG).await;
    let outcome = attempt(t.backend.as_ref(), vec![slot(&key, 1)], LONG).await;
    assert!(outcome.is_locked());
    release(&t, ids(&slots)).await;
    take(&t, vec![slot(&key, 1)]).await;
    holds(&t, &reader).await;
}

async fn a_group_and_its_readers_are_found(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let readers = [
        joins(t.backend.as_ref(), &key, ttl(20_000)).await,
        joins(t.fixture.peer().as_ref(), &key, LONG).await,
    ];
    let group = t.by_key(&key).await.unwrap();
    assert!(group.is_shared);
    assert_eq!(
        (group.key.as_str(), group.fence),
        (key.as_str(), readers[0].fence)
    );
    assert!(group.expires_at_ms >= readers[1].expires_at_ms);
    for reader in &readers {
        let found = t.by_id(&reader.lock_id).await.unwrap();
        assert!(found.is_shared);
        assert_eq!(found.key, key.reader(&reader.lock_id));
        assert_eq!(
            (found.key.base(), &found.lock_id),
            (key.as_str(), &reader.lock_id)
        );
        assert_eq!(found.expires_at_ms, reader.expires_at_ms);
    }
    let mut listed = Vec::new();
    let mut page = PageRequest {
        after: None,
        limit: 100,
    };
    loop {
        let outcome = t.backend.run(&Operation::List(page.clone())).await.unwrap();
        let Outcome::List(found) = outcome else {
            panic!("{outcome:?}");
        };
        listed.extend(
            found
                .locks
                .into_iter()
                .filter(|it| it.key.base() == key.as_str()),
        );
        match found.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    // The readers, and not also what they share.
    let mut found: Vec<_> = listed.iter().map(|it| it.lock_id.as_str()).collect();
    found.sort_unstable();
    let mut ids: Vec<_> = readers.iter().map(|it| it.lock_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(found, ids);
    assert!(listed.iter().all(|it| it.is_shared));
    let alone = t.key("b");
    t.acquire(&alone, LONG).await;
    assert!(!t.by_key(&alone).await.unwrap().is_shared);
}
