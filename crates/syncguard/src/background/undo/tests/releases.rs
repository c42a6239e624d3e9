//! Releases that are asked for, and fail.

use super::*;

fn release_of(
    store: &Arc<Store>,
    call: CallOptions,
) -> impl Future<Output = Result<ReleaseOutcome, Error>> + use<> {
    let backend: Arc<dyn Backend> = Arc::clone(store) as _;
    let id = LockId::generate().unwrap();
    async move {
        operation::run::<ReleaseOutcome>(
            &backend,
            Operation::Release([id.clone()].into()),
            call,
            pending(),
        )
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_repeated_while_it_has_time() {
    for after in [0.0, 0.05, 0.5, 3.0] {
        let store = Store::new(|store, now| {
            store.grants_at = Some(now);
            store.unreachable_until = now + secs(after);
        });
        let start = Instant::now();
        let outcome = release_of(&store, CallOptions::default()).await;
        assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
        assert!(start.elapsed() <= secs(after) + PAUSE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_may_have_been_done_and_then_finds_nothing_was_done() {
    let store = Store::new(|store, now| store.grants_at = Some(now));
    *store.lost_answers.lock().unwrap() = 2;
    let start = Instant::now();
    let held = CallOptions {
        lasts: Some(Ttl::DEFAULT),
        ..CallOptions::default()
    };
    let outcome = release_of(&store, held).await;
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    assert!(start.elapsed() < secs(0.2));
    assert_eq!(store.held(), Some(Duration::ZERO));

    // Whoever does not know whether there was a lock does not learn it.
    let store = Store::new(|store, now| store.grants_at = Some(now));
    *store.lost_answers.lock().unwrap() = 1;
    let error = release_of(&store, CallOptions::default())
        .await
        .unwrap_err();
    assert!(error.is_outcome_unknown());
    assert_eq!(store.held(), Some(Duration::ZERO));

    // None of the tries before was sent, so that it was somebody else.
    let store = Store::new(|store, now| store.unreachable_until = now + secs(0.05));
    let outcome = release_of(&store, CallOptions::default()).await;
    let absent = ReleaseOutcome::Absent(Absence::NotFound);
    assert_eq!(outcome.unwrap(), absent);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_for_longer_is_reported_in_time_and_goes_on_if_the_lock_may_last() {
    for lasts in [None, Some(Ttl::DEFAULT)] {
        let store = Store::new(|store, now| {
            store.grants_at = Some(now);
            store.unreachable_until = now + secs(20.0);
        });
        let start = Instant::now();
        let call = CallOptions {
            lasts,
            ..CallOptions::default()
        };
        let error = release_of(&store, call).await.unwrap_err();
        assert_eq!(error.message(), "no connection");
        assert!(start.elapsed() > LIMIT - PAUSE && start.elapsed() <= LIMIT);
        let tries = store.tries();
        while Arc::strong_count(&store) > 1 {
            sleep(secs(0.01)).await;
        }
        match lasts {
            Some(_) => assert!(store.held().unwrap() <= secs(20.0) + PAUSE),
            None => assert_eq!(store.tries(), tries),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_under_way_when_its_time_is_over_may_be_done() {
    for (answered, is_unknown) in [(1, true), (usize::MAX, false)] {
        let store = Store::new(|store, now| {
            store.grants_at = Some(now);
            store.unreachable_until = now + secs(20.0);
            store.silent_after = Some(answered);
        });
        let release = release_of(&store, CallOptions::default());
        let error = release.await.unwrap_err();
        assert_eq!(error.message(), "no connection");
        assert_eq!(error.is_outcome_unknown(), is_unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_cancelled_goes_on_if_the_lock_may_last() {
    let store = Store::new(|store, now| {
        store.grants_at = Some(now);
        store.stands_still_until = now + secs(1.0);
    });
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let id = LockId::generate().unwrap();
    let call = CallOptions {
        lasts: Some(Ttl::DEFAULT),
        ..CallOptions::default()
    };
    let error = operation::run::<ReleaseOutcome>(
        &backend,
        Operation::Release([id.clone()].into()),
        call,
        ready(()),
    )
    .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Aborted);
    backend.close().await;
    assert_eq!(store.held(), Some(secs(1.0)));
}
