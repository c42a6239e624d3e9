//! Shared locks: short forms that fail the test.

use syncguard::{AcquireOutcome, Backend, ExtendOutcome, Grant, Lookup, ReleaseOutcome, Ttl};

use super::attempts::Attempts as _;
use super::claims::{asking, extend, ids, plain, release, shared, slot, take, try_take};
use super::locks::{key, ttl};

/// One who shares the key for so long.
pub(crate) async fn join(backend: &dyn Backend, name: &str, ttl: Ttl) -> Grant {
    let mut request = asking(backend, [shared(name)]);
    request.ttl = ttl;
    match backend.acquire(&request).await.unwrap() {
        AcquireOutcome::Acquired(grants) => grants[0].clone(),
        outcome => panic!("{outcome:?}"),
    }
}

/// Whether a writer is refused by readers; `None` if it gets the lock, which it gives back.
pub(crate) async fn refused(backend: &dyn Backend, name: &str) -> Option<bool> {
    match try_take(backend, [plain(name)]).await.unwrap() {
        AcquireOutcome::Locked { is_shared, .. } => Some(is_shared),
        AcquireOutcome::Acquired(grants) => {
            release(backend, ids(&grants)).await;
            None
        }
        AcquireOutcome::Done(_) => panic!("done"),
    }
}

pub(crate) async fn leave(backend: &dyn Backend, grant: &Grant) -> ReleaseOutcome {
    backend.release(&grant.lock_id).await.unwrap()
}

pub(crate) async fn holds(backend: &dyn Backend, grant: &Grant) {
    let extended = backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
}

pub(crate) async fn has_lost(backend: &dyn Backend, grant: &Grant) {
    let extended = backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
}

/// Extends three sets at once, in each of which the first of these keys is shared. If one group is gone, that fails; `is_one_step` says whether
/// then nobody is extended.
pub(crate) async fn sets_with_one_group_are_extended_at_once(
    backend: &dyn Backend,
    names: [&str; 4],
    is_one_step: bool,
) {
    let [a, b, c, d] = names;
    let mut all = Vec::new();
    for claims in [
        vec![shared(a), plain(b)],
        vec![shared(a), shared(c)],
        vec![shared(a), shared(c), plain(d), slot("e", 3)],
    ] {
        all.extend(take(backend, claims).await);
    }
    let extended = extend(backend, ids(&all), ttl(600_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("{extended:?}");
    };
    let ends = async |names: &[&str]| {
        let mut ends = Vec::new();
        for name in names {
            let found = backend.lookup(&Lookup::Key(key(name))).await.unwrap();
            ends.push(found.unwrap().expires_at_ms);
        }
        ends
    };
    // What is told is the earliest of all ends.
    let is_later = |end: &i64| *end >= expires_at_ms;
    assert!(ends(&names).await.iter().all(is_later));
    let before = ends(&[a, b, d]).await;
    assert!(backend.force_release(&key(c)).await.unwrap());
    let extended = extend(backend, ids(&all), ttl(900_000)).await;
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    if is_one_step {
        assert_eq!(ends(&[a, b, d]).await, before);
    }
    let released = release(backend, ids(&all)).await;
    let gone = |outcome: &&ReleaseOutcome| **outcome != ReleaseOutcome::Released;
    assert_eq!(released.iter().filter(gone).count(), 2);
    for name in names {
        assert!(!backend.is_locked(&key(name)).await.unwrap());
    }
}
