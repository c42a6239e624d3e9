//! Fences go on rising when the counters are lost, or come from an old copy.

use crate::support::attempts::Attempts as _;
use syncguard::Fence;
use syncguard::postgres::PostgresBackend;

use crate::canonical::Canonical;
use crate::stage::{backend, server};
use crate::support::locks::{acquire, is_from_the_clock, key, until_after};
use crate::support::suite::tests;

tests![
    fences_rise_without_counters,
    fences_rise_over_a_backup_that_is_restored,
    fences_rise_beside_a_library_that_counts,
];

/// Takes and frees the lock.
async fn pass(backend: &PostgresBackend) -> Fence {
    let grant = acquire(backend, "k").await;
    backend.release(&grant.lock_id).await.unwrap();
    grant.fence
}

async fn fences_rise_without_counters() {
    let (ours, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let delete = format!("DELETE FROM {}", tables.fences());
    let mut last = pass(&ours).await;
    for _ in 0..10 {
        until_after(last).await;
        client.batch_execute(&delete).await.unwrap();
        let next = pass(&ours).await;
        assert!(next > last);
        last = next;
    }
}

async fn fences_rise_over_a_backup_that_is_restored() {
    let (ours, tables) = backend(server().unix()).await;
    let client = server().client().await;
    pass(&ours).await;
    let fences = tables.fences();
    let copy = format!("CREATE TEMPORARY TABLE copy AS TABLE {fences}");
    client.batch_execute(&copy).await.unwrap();
    let mut last = pass(&ours).await;
    for _ in 0..10 {
        last = pass(&ours).await;
    }
    until_after(last).await;
    let restore = format!("TRUNCATE {fences}; INSERT INTO {fences} TABLE copy");
    client.batch_execute(&restore).await.unwrap();
    assert!(pass(&ours).await > last);
}

async fn fences_rise_beside_a_library_that_counts() {
    let (ours, tables) = backend(server().unix()).await;
    let mut theirs = Canonical::new(server().client().await, &tables);
    let mut last = 0;
    for _ in 0..10 {
        let counted = theirs.acquire(&key("k"), 60_000).await.unwrap().unwrap();
        assert_eq!(counted.fence.unsigned_abs(), last + 1);
        assert!(theirs.release(&counted.lock_id).await.unwrap());
        let fence = pass(&ours).await.get();
        assert!(fence > last + 1 && is_from_the_clock(fence));
        last = fence;
    }
}
