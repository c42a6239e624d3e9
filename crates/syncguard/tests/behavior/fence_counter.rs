use crate::fixture::{LONG, Stage, is_the_time, tests};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, until_after};

tests![Inspection:
    a_counter_ahead_of_the_clock_is_counted_one_by_one,
    a_counter_of_a_library_that_counts_is_overtaken,
    a_counter_that_another_library_raises_goes_on_from_there,
    no_fence_falls_when_the_counter_does,
    each_key_has_its_own_counter,
];

async fn a_counter_ahead_of_the_clock_is_counted_one_by_one(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.fixture.set_fence_counter(&key, AHEAD.cast_signed()).await;
    let released = t.acquire(&key, LONG).await;
    assert_eq!(released.fence.get(), AHEAD + 1);
    // An attempt that is refused counts nothing, and neither do extensions.
    assert!(t.try_acquire(&key, LONG).await.is_locked());
    t.backend.extend(&released.lock_id, LONG).await.unwrap();
    t.backend.release(&released.lock_id).await.unwrap();
    let expired = t.acquire_and_expire(&key).await;
    assert_eq!(expired.fence.get(), AHEAD + 2);
    assert_eq!(t.acquire(&key, LONG).await.fence.get(), AHEAD + 3);
    assert!(t.backend.force_release(&key).await.unwrap());
    assert_eq!(t.acquire(&key, LONG).await.fence.get(), AHEAD + 4);
}

async fn a_counter_of_a_library_that_counts_is_overtaken(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.fixture.set_fence_counter(&key, 41).await;
    assert!(is_the_time(&t.acquire(&key, LONG).await));
}

async fn a_counter_that_another_library_raises_goes_on_from_there(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let ours = t.acquire(&key, LONG).await;
    t.backend.release(&ours.lock_id).await.unwrap();
    // As the script of SyncGuard for TypeScript does it with INCR.
    let theirs = ours.fence.get() + 1;
    t.fixture
        .set_fence_counter(&key, theirs.cast_signed())
        .await;
    assert!(t.acquire(&key, LONG).await.fence.get() > theirs);
}

/// As after a failover with lost replication, or when a backup is restored.
async fn no_fence_falls_when_the_counter_does(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = t.acquire(&key, LONG).await;
    for counter in [0, 1, last.fence.get().cast_signed() - 1] {
        t.backend.release(&last.lock_id).await.unwrap();
        t.pass_ms(5).await;
        until_after(last.fence).await;
        t.fixture.set_fence_counter(&key, counter).await;
        let next = t.acquire(&key, LONG).await;
        assert!(next.fence > last.fence);
        last = next;
    }
}

async fn each_key_has_its_own_counter(stage: Stage) {
    let t = stage.open().await;
    let (busy, quiet) = (t.key("busy"), t.key("quiet"));
    for key in [&busy, &quiet] {
        t.fixture.set_fence_counter(key, AHEAD.cast_signed()).await;
    }
    for _ in 0..3 {
        let grant = t.acquire(&busy, LONG).await;
        t.backend.release(&grant.lock_id).await.unwrap();
    }
    assert_eq!(t.acquire(&quiet, LONG).await.fence.get(), AHEAD + 1);
}
