//! When a loss is told while extensions are on their way: those of the holder, those of other locks, and heartbeats that are not
//! sent, or not awaited, any more.

use crate::asking::outcome::ExtendOutcome;
use crate::asking::request::Extension;
use crate::asking::request::Operation;
use crate::operation;
use tokio::runtime::Builder;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_holder_may_extend_for_longer_and_for_shorter() {
    let t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    sleep(ms(500)).await;
    t.extend(&lock_id, 60_000).await;
    // The next heartbeat would shorten it until two seconds before its end.
    sleep(ms(59_010)).await;
    assert_eq!(t.store.extended(t.start), [500, 58_500, 59_500]);
    // The end is nearer than a heartbeat is from its end.
    t.extend(&lock_id, 100).await;
    sleep(ms(1)).await;
    assert_eq!(t.store.extended(t.start)[3..], [59_510, 59_510]);
}

#[tokio::test(start_paused = true)]
async fn it_is_lost_too_when_the_holder_itself_finds_it_gone() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Absent);
    let call = CallOptions::default();
    let gone = operation::run::<ExtendOutcome>(
        &t.backend,
        Operation::Extend(Extension::new([lock_id.clone()].into(), ttl(1))),
        call,
        pending(),
    )
    .await;
    assert!(matches!(gone.unwrap(), ExtendOutcome::Absent { .. }));
    assert_eq!(t.lost().await.1, 0);
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn when_two_extensions_cross_the_earlier_end_counts() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    *t.store.delay.lock().unwrap() = ms(100);
    sleep(ms(1050)).await;
    // The heartbeat of 1000 ms is on its way: the store may carry this out before it or after it.
    let extending = t.extend(&lock_id, 200);
    tokio::join!(extending, async {
        sleep(ms(10)).await;
        t.store.answers(Answer::Fails);
    });
    // Its end is at 1250, and a try that was sent before may be answered after it.
    let (_, at) = t.lost().await;
    assert!((1250..=1350).contains(&at), "{at}");
}

#[tokio::test(start_paused = true)]
async fn a_nearer_end_is_seen_while_a_heartbeat_is_on_its_way() {
    for (is_client_timed, lost_at) in [(false, 1750), (true, 1250)] {
        let mut t = scene();
        t.store.is_client_timed.store(is_client_timed, SeqCst);
        let lock_id = t.acquire(3000, AutoExtend::default()).await;
        t.store.answers(Answer::Never);
        sleep(ms(1050)).await;
        // The heartbeat of 1000 ms had time for its answer until the old end.
        t.store.answers(Answer::Extended);
        t.extend(&lock_id, 200).await;
        let (error, at) = t.lost().await;
        assert_eq!(at, lost_at);
        let reason = format!("Operation timed out after {} ms", lost_at - 1000);
        assert!(error.message().ends_with(&reason), "{error}");
        t.assert_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent_after_an_answer_within_the_grace_has_no_more_time() {
    let mut t = scene();
    t.acquire(500, AutoExtend::default()).await;
    *t.store.delay.lock().unwrap() = ms(600);
    sleep(ms(500)).await;
    t.store.answers(Answer::Never);
    // The one of 167 was answered at 767, after its end at 667. One more follows at once.
    assert_eq!(t.lost().await.1, 1167);
    assert_eq!(t.store.extended(t.start), [167, 767]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_in_time_while_the_heartbeats_of_others_are_on_their_way() {
    let mut t = scene();
    t.store.one_at_a_time.store(true, SeqCst);
    t.store.answers(Answer::Never);
    let often = AutoExtend {
        every: Some(ms(1000)),
        max: None,
    };
    // All are due at 1000, one after the other, the nearest end first, and the first one gets no answer for five seconds.
    t.acquire(60_000, often).await;
    t.acquire(3000, often).await;
    t.acquire(3000, often).await;
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 3000));
    assert_eq!(t.store.extended(t.start), [1000]);
    // That whose heartbeat is on its way may be answered within the grace. Then the others go on with the next one.
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 3500));
    sleep(ms(1)).await;
    assert_eq!(t.store.extended(t.start), [1000, 3500]);
}

#[tokio::test(start_paused = true)]
async fn while_two_extensions_cross_heartbeats_keep_their_distance() {
    let t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    *t.store.delay.lock().unwrap() = ms(1000);
    sleep(ms(500)).await;
    // Its answer takes longer than it makes the lock last. Those to the heartbeats, which cannot help that, come at once.
    tokio::join!(t.extend(&lock_id, 400), async {
        *t.store.delay.lock().unwrap() = ms(1);
    });
    let count = t.store.count();
    assert!((4..=15).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn after_two_have_crossed_until_the_end_one_more_may_follow() {
    let mut t = scene();
    let delay = |t: &Scene, delay| *t.store.delay.lock().unwrap() = ms(delay);
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    sleep(ms(500)).await;
    delay(&t, 30);
    // The end is at 560. Of the two heartbeats that cross this, the second one is answered after it.
    tokio::join!(t.extend(&lock_id, 60), async {
        delay(&t, 10);
        sleep(ms(12)).await;
        delay(&t, 45);
    });
    delay(&t, 1);
    sleep(ms(500)).await;
    t.release(&lock_id).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
}

#[test]
fn a_heartbeat_that_ended_with_its_runtime_is_not_waited_for() {
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let mut t = scene();
    t.store.answers(Answer::Never);
    runtime().block_on(async {
        t.acquire(300, AutoExtend::default()).await;
        while t.store.count() == 0 {
            sleep(ms(1)).await;
        }
    });
    let (error, _) = runtime().block_on(async {
        t.acquire(60_000, AutoExtend::default()).await;
        t.lost().await
    });
    assert_eq!(error.kind(), ErrorKind::LockLost);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_a_closing_backend_does_not_send_makes_nothing_shorter() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    *t.store.delay.lock().unwrap() = ms(200);
    sleep(ms(900)).await;
    // The next heartbeat is due at 1000.
    tokio::join!(t.extend(&lock_id, 60_000), t.backend.close());
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 60_900));
    assert_eq!(t.store.extended(t.start), [900]);
}
