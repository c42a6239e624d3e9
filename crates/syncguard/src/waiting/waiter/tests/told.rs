//! How often the store is asked that tells of releases.

use super::hand_over::Server;
use super::*;

/// Polls every two to three seconds, however long it takes.
fn polls(wait: Wait) -> RetryPolicy {
    RetryPolicy {
        max_retries: f64::INFINITY,
        retry_delay_ms: 2000.0,
        max_retry_delay_ms: 3000.0,
        timeout_ms: f64::INFINITY,
        jitter: Jitter::None,
        wait,
        ..RetryPolicy::default()
    }
}

/// A store that tells of releases, and whose lock is held and ends by itself after so long; with one who waits for it.
async fn waiting(policy: RetryPolicy, ends: Duration) -> (Scene, JoinHandle<WaitResult>) {
    let server = Messages::default();
    let t = Scene::with(S(100_000), |store| {
        store.wakeups = Some(Wakeups::new(Server(Arc::clone(&server))));
        store.messages = server;
        *store.ends.lock().unwrap() = Some(Instant::now() + ends);
    });
    let waiter = t.wait(policy);
    settle().await;
    (t, waiter)
}

impl Scene {
    fn send(&self, message: StoreMessage) {
        let messages = self.store.messages.lock().unwrap().clone();
        messages.unwrap().send(message).unwrap();
    }

    fn frees(&self) {
        *self.store.free_at.lock().unwrap() = Instant::now();
    }

    /// How often it is asked in that time.
    async fn asked_within(&self, time: Duration) -> usize {
        let before = self.asked();
        sleep(time).await;
        self.asked() - before
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_tells_is_asked_less_and_less_often() {
    let (t, waiter) = waiting(polls(Wait::Notify), S(100_000)).await;
    assert!((1..=2).contains(&t.asked()), "first, and once it tells");
    let asked = t.asked_within(S(30)).await;
    assert!((3..=5).contains(&asked), "{asked}");
    let asked = t.asked_within(S(600)).await;
    assert!((18..=21).contains(&asked), "{asked}");
    t.frees();
    t.send(StoreMessage::Freed("k".to_owned()));
    settle().await;
    assert!(waiter.is_finished());
}

#[tokio::test(start_paused = true)]
async fn or_not_at_all_before_the_lock_ends() {
    let (t, waiter) = waiting(polls(Wait::NotifyOnly), S(1000)).await;
    assert_eq!(t.asked_within(S(999)).await, 0);
    t.frees();
    sleep(S(2)).await;
    assert!(waiter.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_is_made_up_for_when_the_lock_ends() {
    for wait in [Wait::Notify, Wait::NotifyOnly] {
        let (t, waiter) = waiting(polls(wait), S(12)).await;
        t.frees();
        let (guard, at) = waiter.await.unwrap();
        guard.unwrap();
        // Or earlier, by a retry that asks after as much time as it has waited.
        assert!(at < S(13), "{wait:?} {at:?}");
        assert!(at >= S(12) || wait == Wait::Notify, "{wait:?} {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_tells_nothing_is_polled() {
    for wait in [Wait::Notify, Wait::NotifyOnly] {
        let t = Scene::with(S(100_000), |store| {
            *store.ends.lock().unwrap() = Some(Instant::now() + S(90_000));
        });
        let waiter = t.wait(polls(wait));
        let asked = t.asked_within(S(600)).await;
        assert!(asked >= 198, "{asked}");
        waiter.abort();
    }
    let (t, waiter) = waiting(polls(Wait::Poll), S(90_000)).await;
    assert!(t.asked_within(S(600)).await >= 198);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn it_is_polled_while_its_connection_is_lost() {
    let (t, waiter) = waiting(polls(Wait::NotifyOnly), S(90_000)).await;
    assert_eq!(t.asked_within(S(60)).await, 0);
    t.send(StoreMessage::Unsubscribed("k".to_owned()));
    assert!(t.asked_within(S(60)).await >= 18);
    // That it tells again is itself a reason to ask.
    t.send(StoreMessage::Listening("k".to_owned()));
    settle().await;
    assert_eq!(t.asked_within(S(60)).await, 0);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_polled() {
    let (t, waiter) = waiting(polls(Wait::NotifyOnly), S(100)).await;
    *t.store.fails.lock().unwrap() = Some(ErrorKind::ServiceUnavailable);
    assert_eq!(t.asked_within(S(99)).await, 0);
    assert!(t.asked_within(S(60)).await >= 19);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn after_a_release_without_a_message_it_is_polled_for_a_while() {
    let (t, waiter) = waiting(polls(Wait::Notify), S(90_000)).await;
    assert!(t.asked_within(S(13)).await <= 4);
    t.frees();
    // At most after as much time as it had waited before.
    let (guard, at) = waiter.await.unwrap();
    assert!(at > S(13) && at <= S(13 * 2), "{at:?}");
    // Somebody else wants it now.
    let other = t.wait(polls(Wait::Notify));
    settle().await;
    let asked = t.asked_within(S(300)).await;
    assert!(asked >= 98, "{asked}");
    sleep(S(400)).await;
    assert!(t.asked_within(S(300)).await <= 11);
    drop((guard, other.abort()));
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_asks_and_retries_are_counted_all_the_same() {
    let limited = RetryPolicy {
        timeout_ms: 10_000.0,
        ..polls(Wait::NotifyOnly)
    };
    let (t, waiter) = waiting(limited, S(90_000)).await;
    sleep(S(5)).await;
    t.frees();
    let (guard, at) = waiter.await.unwrap();
    guard.unwrap();
    assert_eq!(at, S(10));
    let few = RetryPolicy {
        max_retries: 4.0,
        ..polls(Wait::NotifyOnly)
    };
    let (_, waiter) = waiting(few, S(90_000)).await;
    let (error, at) = waiter.await.unwrap();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AcquisitionTimeout);
    // Two seconds, and then three at a time.
    assert_eq!(at, S(11));
}

#[tokio::test(start_paused = true)]
async fn who_polls_behind_one_who_does_not_is_no_worse_off() {
    let (t, first) = waiting(polls(Wait::NotifyOnly), S(90_000)).await;
    let second = t.wait(polls(Wait::Poll));
    settle().await;
    let asked = t.asked_within(S(300)).await;
    assert!(asked >= 90, "{asked}");
    second.abort();
    first.abort();
}
