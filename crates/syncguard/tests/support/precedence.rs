//! What keeps or frees a lock that is held goes before everything else that waits for the store.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncguard::operation::{self, CallOptions};
use syncguard::{AutoExtend, Backend, LockGuard, LockOptions, Operation, lock};
use tokio::task::JoinSet;

use super::locks::{eventually, key, ttl};

const LOCKS: usize = 20;
/// Look-ups that wait for the store, at any time.
const CROWD: usize = 2000;
/// Shorter than the crowd takes.
const TTL_MS: i64 = 6000;

/// Locks extend themselves, and are released, while a crowd of look-ups waits that takes longer than they last.
pub(crate) async fn locks_are_kept_and_freed_before_a_crowd(backend: &Arc<dyn Backend>) {
    let options = LockOptions {
        ttl: ttl(TTL_MS),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let names: Vec<_> = (0..LOCKS).map(|number| number.to_string()).collect();
    let guards = names.iter().map(async |name| {
        let guard = lock(backend, &key(name), &options).await;
        guard.unwrap()
    });
    let guards = futures::future::join_all(guards).await;
    let ends =
        |guards: &[LockGuard]| -> Vec<_> { guards.iter().map(LockGuard::expires_at_ms).collect() };
    let first = ends(&guards);

    let answered = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (backend, answered) = (Arc::clone(backend), Arc::clone(&answered));
        crowd.spawn(async move {
            let key = key("somebody else's");
            loop {
                // Some wait for too long.
                let _ = operation::run::<bool>(
                    &backend,
                    Operation::IsLocked(key.clone()),
                    CallOptions::default(),
                    pending(),
                )
                .await;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    eventually(
        "all have been extended for as long as they last",
        async || {
            let mut each = ends(&guards).into_iter().zip(&first);
            each.all(|(now, before)| now >= before + TTL_MS)
        },
    )
    .await;
    let before = answered.load(Ordering::Relaxed);
    let released = guards.into_iter().map(LockGuard::release);
    for released in futures::future::join_all(released).await {
        assert!(released.unwrap(), "a lock was lost");
    }
    // Had they waited for their turn, everybody who was there would have been answered before them.
    let meanwhile = answered.load(Ordering::Relaxed) - before;
    assert!(meanwhile < CROWD, "{meanwhile} went before the releases");
    crowd.shutdown().await;
}
