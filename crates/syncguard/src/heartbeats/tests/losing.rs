//! When a lock is lost.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_extended_is_lost_at_its_end() {
    let mut t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Fails);
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 3000));
    assert_eq!(
        error.message(),
        "the lock was lost: it could not be extended before its end: refused"
    );
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_fails_late_is_tried_again_at_once() {
    let t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Fails);
    // Longer than the pause after one that fails at once.
    *t.store.delay.lock().unwrap() = ms(900);
    sleep(ms(1950)).await;
    assert_eq!(t.store.extended(t.start), [1000, 1910]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent_has_half_of_the_tolerance_left() {
    let mut t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Never);
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 3500));
    let sent = t.store.extended(t.start);
    assert!(sent.iter().all(|at| *at < 3000), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn where_clocks_may_differ_the_tolerance_is_not_used() {
    let mut t = scene();
    t.store.is_client_timed.store(true, SeqCst);
    t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Never);
    assert_eq!(t.lost().await.1, 3000);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_lost_at_the_next_heartbeat() {
    let mut t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Absent);
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 1000));
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_past_the_end_it_is_lost_and_not_extended() {
    let mut t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    // No task runs meanwhile, as when the process is stopped.
    tokio::time::advance(ms(3000)).await;
    let (error, _) = t.lost().await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(t.store.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hangs_loses_the_lock() {
    let mut t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.listener.is_stalled.store(true, SeqCst);
    sleep(ms(2500)).await;
    assert_eq!(t.store.count(), 0);
    // It has come back in time.
    t.listener.is_stalled.store(false, SeqCst);
    sleep(ms(490)).await;
    assert!(t.store.count() > 0);
    t.listener.is_stalled.store(true, SeqCst);
    let (error, at) = t.lost().await;
    assert!(error.message().ends_with("it hangs"), "{error}");
    assert!((5500..=6000).contains(&at), "{at}");
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn heartbeats_do_not_hold_a_lock_for_longer_than_its_limit() {
    let mut t = scene();
    let auto_extend = AutoExtend {
        max: Some(Duration::from_micros(4_500_400)),
        ..AutoExtend::default()
    };
    t.acquire(3000, auto_extend).await;
    let (error, at) = t.lost().await;
    assert_eq!((error.kind(), at), (ErrorKind::LockLost, 4500));
    assert!(error.message().contains("as long as"), "{error}");
    let extends = t.store.extends.lock().unwrap().clone();
    let ttls: Vec<_> = extends.iter().map(|(_, ttl)| ttl.as_millis()).collect();
    assert_eq!(ttls, [3000, 2500]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_the_ttl_ends_it_as_well() {
    let mut t = scene();
    let auto_extend = AutoExtend {
        max: Some(ms(1000)),
        ..AutoExtend::default()
    };
    t.acquire(3000, auto_extend).await;
    assert_eq!(t.lost().await.1, 1000);
    assert_eq!(t.store.count(), 0);
}
