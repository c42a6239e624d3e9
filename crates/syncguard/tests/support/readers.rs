//! Shared locks: short forms that fail the test.

use syncguard::{AcquireOutcome, Backend, ExtendOutcome, Grant, ReleaseOutcome, Ttl};

use super::attempts::Attempts as _;
use super::claims::{asking, ids, plain, release, shared, try_take};

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
