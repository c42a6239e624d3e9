//! Locks that were granted together.

use super::*;
use crate::claim::Claim;

impl Scene {
    async fn acquire_three(&self) -> Batch<LockId> {
        let claim = |name| Claim::new(Key::new(name).unwrap()).unwrap();
        let claims = ["a", "b", "c"].map(claim);
        let mut request = AcquireRequest::of(claims, ttl(3000)).unwrap();
        request.hold = self.request(3000, AutoExtend::default()).hold;
        match self.run(Operation::Acquire(request)).await {
            AcquireOutcome::Acquired(grants) => {
                grants.into_iter().map(|grant| grant.lock_id).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    async fn extend_all(&self, lock_ids: &[LockId], ttl_ms: i64) {
        let extension = Extension::new(lock_ids.into(), ttl(ttl_ms));
        self.run::<ExtendOutcome>(Operation::Extend(extension))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn they_are_extended_in_one_call_until_they_are_released() {
    let t = scene();
    let ids = t.acquire_three().await;
    sleep(ms(2500)).await;
    assert_eq!(t.store.extended(t.start), [1000, 2000]);
    assert_eq!(*t.store.extended.lock().unwrap(), ids);
    let released: Batch<ReleaseOutcome> = t.run(Operation::Release(ids.into())).await;
    assert_eq!(released.len(), 1);
    t.assert_quiet().await;
    assert!(t.backend.work().heartbeats().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_is_the_loss_of_all_and_says_which() {
    let mut t = scene();
    t.acquire_three().await;
    t.store.answers(Answer::Absent);
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 1000));
    assert_eq!(*t.listener.gone.lock().unwrap(), Some(2));
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_of_them_ends_their_heartbeats() {
    for number in 0..3 {
        let t = scene();
        let ids = t.acquire_three().await;
        t.release(&ids[number]).await;
        t.assert_quiet().await;
        assert!(t.backend.work().heartbeats().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn their_holder_extends_them_together() {
    let t = scene();
    let ids = t.acquire_three().await;
    sleep(ms(500)).await;
    // For longer than a heartbeat would: the next one is as long before that end as ever.
    t.extend_all(&ids, 6000).await;
    sleep(ms(3000)).await;
    assert_eq!(t.store.extended(t.start), [500]);
    sleep(ms(1500)).await;
    assert_eq!(t.store.extended(t.start), [500, 4500]);
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_one_of_them_does_not_put_their_heartbeats_off() {
    let t = scene();
    let ids = t.acquire_three().await;
    sleep(ms(500)).await;
    t.extend(&ids[0], 60_000).await;
    sleep(ms(1000)).await;
    assert_eq!(t.store.extended(t.start), [500, 1000]);
}
