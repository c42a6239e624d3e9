//! Locks that were granted together.

use super::*;
use crate::values::claim::Claim;

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
async fn a_release_of_one_of_them_leaves_the_others_their_heartbeats() {
    for number in 0..3 {
        let mut t = scene();
        let ids = t.acquire_three().await;
        let mut left = ids.clone();
        left.remove(number);
        t.release(&ids[number]).await;
        sleep(ms(2500)).await;
        assert_eq!(t.store.extended(t.start), [1000, 2000]);
        assert_eq!(*t.store.extended.lock().unwrap(), left);
        // A loss is told of by the place among all.
        t.store.answers(Answer::Absent);
        t.lost().await;
        let last = if number == 2 { 1 } else { 2 };
        assert_eq!(*t.listener.gone.lock().unwrap(), Some(last));
        t.assert_quiet().await;
        assert!(t.backend.work().heartbeats().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn their_heartbeats_end_with_the_release_of_the_last() {
    let t = scene();
    let ids = t.acquire_three().await;
    for lock_id in &ids {
        t.release(lock_id).await;
    }
    t.assert_quiet().await;
    assert!(t.backend.work().heartbeats().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_under_way_at_the_release_of_one_is_no_loss_of_the_others() {
    let mut t = scene();
    let ids = t.acquire_three().await;
    *t.store.delay.lock().unwrap() = ms(200);
    t.store.answers(Answer::Absent);
    sleep(ms(1100)).await;
    t.release(&ids[2]).await;
    t.store.answers(Answer::Extended);
    sleep(ms(100)).await;
    // The one under way is not waited for: it may have named what is gone.
    assert_eq!(t.store.extended(t.start), [1000, 1100]);
    assert_eq!(t.store.extended.lock().unwrap().as_slice(), &ids[..2]);
    sleep(ms(10_000)).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_end_keeps_what_was_not_released_meanwhile() {
    let mut t = scene();
    let ids = t.acquire_three().await;
    *t.store.delay.lock().unwrap() = ms(2300);
    // They have ended at 3000, and the answer to the heartbeat of 1000 may come until 3500.
    sleep(ms(3200)).await;
    t.release(&ids[2]).await;
    *t.store.delay.lock().unwrap() = Duration::ZERO;
    sleep(ms(10_000)).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_their_holder_hears_of_one_that_was_released_is_no_loss_of_the_others() {
    let mut t = scene();
    let ids = t.acquire_three().await;
    *t.store.delay.lock().unwrap() = ms(300);
    t.store.answers(Answer::Absent);
    let extending = t.extend_all(&ids, 4000);
    let releasing = async {
        sleep(ms(100)).await;
        t.release(&ids[2]).await;
        t.store.answers(Answer::Extended);
    };
    tokio::join!(extending, releasing);
    sleep(ms(10_000)).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_one_that_makes_it_shorter_brings_their_heartbeat_forward() {
    let t = scene();
    let ids = t.acquire_three().await;
    sleep(ms(500)).await;
    t.extend(&ids[1], 1500).await;
    sleep(ms(400)).await;
    assert_eq!(t.store.extended(t.start), [500, 500]);
    assert_eq!(*t.store.extended.lock().unwrap(), ids);
    sleep(ms(1000)).await;
    assert_eq!(t.store.extended(t.start), [500, 500, 1500]);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_them_that_is_gone_is_the_loss_of_all() {
    let mut t = scene();
    let ids = t.acquire_three().await;
    t.store.answers(Answer::Absent);
    t.extend_all(&ids[..2], 3000).await;
    let (error, _) = t.lost().await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(*t.listener.gone.lock().unwrap(), Some(1));
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
