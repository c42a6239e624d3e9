//! Those whose time is over while others come before them, on a store with much to do.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A store whose lock is held, and which takes so long for each question.
fn serving(time: Duration) -> Scene {
    Scene::with(S(500), |store| {
        store.serving = Some((Semaphore::new(1), time));
    })
}

/// Lets so many wait, each for a millisecond longer than the one before. Gives of what kind their errors are, if it is one, and by
/// how much the latest is late.
async fn all_end(t: &Scene, count: u32) -> (ErrorKind, Duration) {
    let wait = |number: u32| {
        let limit = S(2) + MS * number;
        let waiter = t.wait(until(limit.as_secs_f64() * 1000.0));
        (waiter, limit)
    };
    let waiters: Vec<_> = (0..count).map(wait).collect();
    let (mut kinds, mut latest) = (HashSet::new(), Duration::ZERO);
    for (waiter, limit) in waiters {
        let (guard, at) = waiter.await.unwrap();
        kinds.insert(guard.unwrap_err().kind());
        latest = latest.max(at.saturating_sub(limit));
    }
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    assert!(t.queues_are_over());
    (kinds.into_iter().next().unwrap(), latest)
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_no_silent_store_however_many_ask_at_last() {
    let t = serving(MS * 20);
    let (kind, latest) = all_end(&t, 1000).await;
    assert_eq!(kind, ErrorKind::AcquisitionTimeout);
    assert!(latest < MS * 50, "{latest:?}");
    // One at a time.
    assert!(t.asked() < 1000 / 20 + 20, "{}", t.asked());
}

#[tokio::test(start_paused = true)]
async fn nor_is_one_that_somebody_in_this_process_holds() {
    let t = serving(MS * 150);
    *t.store.free_at.lock().unwrap() = t.start;
    let holder = t.wait(patient());
    settle().await;
    let (kind, latest) = all_end(&t, 100).await;
    assert_eq!(kind, ErrorKind::AcquisitionTimeout);
    assert!(latest <= MS * 101, "{latest:?}");
    holder.await.unwrap().0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_told_as_such_soon_and_asked_seldom() {
    let t = serving(S(1000));
    let (kind, latest) = all_end(&t, 100).await;
    assert_eq!(kind, ErrorKind::NetworkTimeout);
    assert!(latest <= MS * 101, "{latest:?}");
    assert!(t.asked() < 10, "{}", t.asked());
}

#[tokio::test(start_paused = true)]
async fn the_one_that_asks_for_all_may_get_the_lock() {
    let t = serving(MS * 20);
    let first = t.wait(patient());
    // Nobody asks between the release and the end of the first wait.
    let others = [1000.0, 1001.0, 1002.0].map(|ms| {
        t.wait(RetryPolicy {
            jitter: Jitter::None,
            ..until(ms)
        })
    });
    sleep(MS * 950).await;
    // Nobody has told the first.
    *t.store.free_at.lock().unwrap() = t.start;
    let mut granted = Vec::new();
    for other in others {
        granted.push(other.await.unwrap().0.map_err(|error| error.kind()));
    }
    assert!(granted[0].is_ok());
    for late in &granted[1..] {
        assert_eq!(*late.as_ref().unwrap_err(), ErrorKind::AcquisitionTimeout);
    }
    first.abort();
}
