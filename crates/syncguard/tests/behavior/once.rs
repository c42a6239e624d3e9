//! What is to be done once for each period.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Claim, DoneMark, Due, ErrorKind, Finish, Key,
    MarkChange, OnceGuard, OnceOptions, OnceOutcome, Operation, ReleaseOutcome, ReleaseRequest,
    Slots, Ttl, once,
};

use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, tests, ttl};
use crate::support::attempts::Attempts as _;

tests![
    it_is_done_once_for_each_period,
    while_it_runs_others_are_told_so,
    an_older_period_is_refused_for_ever,
    a_date_that_is_far_ahead_is_refused_unless_it_is_allowed,
    what_is_done_stays_done_behind_a_lock_that_has_ended,
    texts_have_the_order_of_their_bytes_and_numbers_their_own,
    a_number_and_a_text_are_no_periods_of_one_key,
    what_was_left_is_open_at_once,
    what_a_dead_holder_began_is_done_by_another,
    a_lock_that_was_lost_stores_nothing,
    a_lock_that_has_ended_stores_nothing,
    a_release_whose_answer_was_lost_has_stored_it,
    a_release_that_is_repeated_after_the_lock_was_lost_does_not_count,
    an_acquisition_that_is_repeated_is_answered_as_before,
    of_many_one_does_it,
    the_mark_can_be_set_and_cleared,
    a_later_period_that_was_set_meanwhile_stays,
    locks_without_a_period_leave_the_mark,
    a_period_is_for_one_lock,
];

fn due(text: &str) -> Due {
    Due::new(text).unwrap()
}

async fn ask(backend: &Arc<dyn Backend>, key: &Key, period: &str, ttl: Ttl) -> OnceOutcome {
    let options = OnceOptions {
        ttl,
        // The clocks of some stores stand where the test has set them.
        allow_ahead: true,
        ..OnceOptions::default()
    };
    once(backend, key, due(period), &options).await.unwrap()
}

async fn run(backend: &Arc<dyn Backend>, key: &Key, period: &str) -> OnceGuard {
    match ask(backend, key, period, LONG).await {
        OnceOutcome::Granted(run) => run,
        other => panic!("{other:?}"),
    }
}

/// Does it.
async fn done(backend: &Arc<dyn Backend>, key: &Key, period: &str) {
    run(backend, key, period).await.done().await.unwrap();
}

async fn change(t: &Context, key: &Key, change: MarkChange) -> Option<DoneMark> {
    let key = key.clone();
    t.backend
        .ask(Operation::Mark { key, change })
        .await
        .unwrap()
}

/// The last period that is stored as done.
async fn last(t: &Context, key: &Key) -> Option<String> {
    let mark = change(t, key, MarkChange::Keep).await;
    mark.map(|mark| mark.due.to_string())
}

async fn it_is_done_once_for_each_period(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let first = run(&t.backend, &key, "2026-11-24").await;
    let (fence, ends_ms) = (first.fence(), first.expires_at_ms());
    first.done().await.unwrap();
    assert!(!t.is_locked(&key).await);
    for backend in [&t.backend, &peer] {
        let OnceOutcome::Done(mark) = ask(backend, &key, "2026-11-24", LONG).await else {
            panic!("done twice");
        };
        assert_eq!(mark.due, due("2026-11-24"));
        // On the store's clock, as the end of the lock.
        let since_grant_ms = mark.done_at_ms - (ends_ms - LONG.as_millis());
        assert!(
            (-1000..60_000).contains(&since_grant_ms),
            "{since_grant_ms}"
        );
    }
    let second = run(&peer, &key, "2026-11-25").await;
    assert!(second.fence() > fence);
    second.done().await.unwrap();
    assert_eq!(last(&t, &key).await.as_deref(), Some("2026-11-25"));
}

async fn while_it_runs_others_are_told_so(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let first = run(&t.backend, &key, "1").await;
    for period in ["1", "2"] {
        let outcome = ask(&peer, &key, period, LONG).await;
        assert!(matches!(outcome, OnceOutcome::Running), "{outcome:?}");
    }
    assert_eq!(last(&t, &key).await, None);
    first.done().await.unwrap();
    // What is done is told also while the next one runs.
    let _next = run(&peer, &key, "2").await;
    let outcome = ask(&t.backend, &key, "1", LONG).await;
    assert!(matches!(outcome, OnceOutcome::Done(_)), "{outcome:?}");
}

async fn an_older_period_is_refused_for_ever(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    done(&t.backend, &key, "10").await;
    t.acquire_and_expire(&key).await;
    t.backend.force_release(&key).await.unwrap();
    for period in ["10", "9", "0"] {
        match ask(&t.backend, &key, period, LONG).await {
            OnceOutcome::Done(mark) if period == "10" => assert_eq!(mark.due, due("10")),
            OnceOutcome::Ahead(mark) if period != "10" => assert_eq!(mark.due, due("10")),
            outcome => panic!("{period}: {outcome:?}"),
        }
    }
    assert!(!t.is_locked(&key).await);
}

async fn a_date_that_is_far_ahead_is_refused_unless_it_is_allowed(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut options = OnceOptions::default();
    let refused = once(&t.backend, &key, due("9999-12-31"), &options).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!t.is_locked(&key).await);
    assert_eq!(last(&t, &key).await, None);
    options.allow_ahead = true;
    let granted = once(&t.backend, &key, due("9999-12-31"), &options).await;
    assert!(matches!(granted.unwrap(), OnceOutcome::Granted(_)));
}

async fn what_is_done_stays_done_behind_a_lock_that_has_ended(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    done(&t.backend, &key, "10").await;
    // Its holder has died, and what it has left is taken over by whoever comes next.
    t.acquire_and_expire(&key).await;
    for period in ["9", "10"] {
        let outcome = ask(&t.backend, &key, period, LONG).await;
        let is_right = match outcome {
            OnceOutcome::Done(_) => period == "10",
            OnceOutcome::Ahead(_) => period == "9",
            _ => false,
        };
        assert!(is_right, "{period}: {outcome:?}");
        assert!(!t.is_locked(&key).await);
    }
    t.acquire_and_expire(&key).await;
    done(&t.backend, &key, "11").await;
    assert_eq!(last(&t, &key).await.as_deref(), Some("11"));
}

async fn texts_have_the_order_of_their_bytes_and_numbers_their_own(stage: Stage) {
    let t = stage.open().await;
    // A language would sort letters otherwise, and leave out what is none.
    let texts = [
        " ",
        "!",
        "-a",
        "1.10",
        "1.9",
        "2026-11-24",
        "A",
        "B",
        "Z",
        "_",
        "a",
        "a b",
        "a\"'\\%{}",
        "ab",
        "b",
        "~",
    ];
    let numbers = [
        "0",
        "9",
        "10",
        "99",
        "1764000000000",
        "18446744073709551615",
    ];
    for (name, periods) in [("texts", &texts[..]), ("numbers", &numbers[..])] {
        let key = t.key(name);
        for (at, period) in periods.iter().enumerate() {
            done(&t.backend, &key, period).await;
            let before = periods[at.saturating_sub(1)];
            let outcome = ask(&t.backend, &key, before, LONG).await;
            let mark = match outcome {
                OnceOutcome::Done(mark) if at == 0 => mark,
                OnceOutcome::Ahead(mark) if at > 0 => mark,
                _ => panic!("{before:?} after {period:?}"),
            };
            assert_eq!(mark.due.to_string(), *period);
        }
    }
}

async fn a_number_and_a_text_are_no_periods_of_one_key(stage: Stage) {
    let t = stage.open().await;
    for (first, second) in [("42", "v43"), ("v42", "43")] {
        let key = t.key(first);
        done(&t.backend, &key, first).await;
        let options = OnceOptions::default();
        let answer = once(&t.backend, &key, due(second), &options).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("due is a number"), "{error}");
        assert!(!t.is_locked(&key).await);
        assert_eq!(last(&t, &key).await.as_deref(), Some(first));
    }
}

async fn what_was_left_is_open_at_once(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    assert!(run(&t.backend, &key, "1").await.leave().await.unwrap());
    drop(run(&t.backend, &key, "1").await);
    t.until_free(&key).await;
    done(&t.backend, &key, "1").await;
}

async fn what_a_dead_holder_began_is_done_by_another(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let OnceOutcome::Granted(dead) = ask(&t.backend, &key, "1", ttl(50)).await else {
        panic!("not granted");
    };
    let outcome = ask(&peer, &key, "1", LONG).await;
    assert!(matches!(outcome, OnceOutcome::Running), "{outcome:?}");
    t.pass_ms(1200).await;
    let second = run(&peer, &key, "1").await;
    // What it did was in vain.
    let error = dead.done().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(last(&t, &key).await, None);
    second.done().await.unwrap();
    assert_eq!(last(&t, &key).await.as_deref(), Some("1"));
}

async fn a_lock_that_was_lost_stores_nothing(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let stale = run(&t.backend, &key, "1").await;
    assert!(t.backend.force_release(&key).await.unwrap());
    // Once while nobody holds the lock, and once while somebody else does.
    let other = run(&peer, &key, "1").await;
    let error = stale.done().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(last(&t, &key).await, None);
    assert!(t.is_locked(&key).await);
    assert!(peer.force_release(&key).await.unwrap());
    let error = other.done().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(last(&t, &key).await, None);
    done(&t.backend, &key, "1").await;
}

async fn a_lock_that_has_ended_stores_nothing(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire_and_expire(&key).await;
    let finish = ReleaseRequest {
        done: Some(Finish {
            key: key.clone(),
            due: due("1"),
        }),
        ..[grant.lock_id].into()
    };
    let outcome: ReleaseOutcome = t.backend.ask(Operation::Release(finish)).await.unwrap();
    let absence = t.fixture.absence_of_expired();
    assert_eq!(outcome, ReleaseOutcome::Absent(absence));
    assert_eq!(last(&t, &key).await, None);
    done(&t.backend, &key, "1").await;
}

async fn a_release_whose_answer_was_lost_has_stored_it(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let fault = Fault::ReleasesLost(AtomicUsize::new(2));
    let faulty: Arc<dyn Backend> = Faulty::new(&t.backend, fault);
    done(&faulty, &key, "1").await;
    let mark = change(&t, &key, MarkChange::Keep).await.unwrap();
    assert_eq!(mark.due, due("1"));
    let outcome = ask(&t.backend, &key, "1", LONG).await;
    assert!(matches!(outcome, OnceOutcome::Done(_)), "{outcome:?}");
}

async fn a_release_that_is_repeated_after_the_lock_was_lost_does_not_count(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let fault = Fault::ReleasesLost(AtomicUsize::new(1));
    let faulty: Arc<dyn Backend> = Faulty::new(&t.backend, fault);
    let stale = run(&faulty, &key, "1").await;
    assert!(t.backend.force_release(&key).await.unwrap());
    // By all that the first answer, which is lost, and the second say, somebody else may have stored a later one since.
    let error = stale.done().await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(last(&t, &key).await, None);
    done(&t.backend, &key, "1").await;
}

async fn an_acquisition_that_is_repeated_is_answered_as_before(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut request = AcquireRequest::new(key.clone(), LONG).unwrap();
    request.due = Some(due("1"));
    t.backend.prepare(&mut request);
    let first = t.backend.acquire(&request).await.unwrap();
    assert!(matches!(first, AcquireOutcome::Acquired(_)), "{first:?}");
    assert_eq!(t.backend.acquire(&request).await.unwrap(), first);
    // Also if somebody has said meanwhile that it is done.
    change(&t, &key, MarkChange::Set(due("1"))).await;
    assert_eq!(t.backend.acquire(&request).await.unwrap(), first);
}

async fn of_many_one_does_it(stage: Stage) {
    const PERIODS: usize = 8;
    let t = stage.open().await;
    let key = t.key("a");
    let backends = [Arc::clone(&t.backend), t.fixture.peer()];
    let runs: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (key, runs) = (key.clone(), Arc::clone(&runs));
        let backend = Arc::clone(&backends[number % 2]);
        tasks.push(tokio::spawn(async move {
            for period in 1..=PERIODS {
                loop {
                    match ask(&backend, &key, &period.to_string(), LONG).await {
                        OnceOutcome::Granted(run) => {
                            *runs.lock().unwrap().entry(period).or_default() += 1;
                            run.done().await.unwrap();
                        }
                        OnceOutcome::Done(_) | OnceOutcome::Ahead(_) => break,
                        OnceOutcome::Running => tokio::time::sleep(Duration::from_millis(2)).await,
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let expected = (1..=PERIODS).map(|period| (period, 1)).collect();
    assert_eq!(*runs.lock().unwrap(), expected);
}

async fn the_mark_can_be_set_and_cleared(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    // Also of a key that nobody has held.
    assert_eq!(change(&t, &key, MarkChange::Clear).await, None);
    assert_eq!(change(&t, &key, MarkChange::Set(due("10"))).await, None);
    let mark = change(&t, &key, MarkChange::Keep).await.unwrap();
    assert_eq!(mark.due, due("10"));
    let outcome = ask(&t.backend, &key, "10", LONG).await;
    assert!(
        matches!(&outcome, OnceOutcome::Done(told) if *told == mark),
        "{outcome:?}"
    );
    // Back, and to the other kind.
    for period in ["9", "v1"] {
        assert!(
            change(&t, &key, MarkChange::Set(due(period)))
                .await
                .is_some()
        );
        assert_eq!(last(&t, &key).await.as_deref(), Some(period));
    }
    assert!(change(&t, &key, MarkChange::Clear).await.is_some());
    assert_eq!(last(&t, &key).await, None);
    done(&t.backend, &key, "1").await;
}

async fn a_later_period_that_was_set_meanwhile_stays(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let first = run(&t.backend, &key, "5").await;
    change(&t, &key, MarkChange::Set(due("9"))).await;
    first.done().await.unwrap();
    assert!(!t.is_locked(&key).await);
    assert_eq!(last(&t, &key).await.as_deref(), Some("9"));
}

async fn locks_without_a_period_leave_the_mark(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let first = run(&t.backend, &key, "5").await;
    let fence = first.fence();
    first.done().await.unwrap();
    let grant = t.acquire(&key, LONG).await;
    assert!(grant.fence > fence);
    t.backend.extend(&grant.lock_id, LONG).await.unwrap();
    t.backend.release(&grant.lock_id).await.unwrap();
    t.acquire_and_expire(&key).await;
    t.acquire(&key, LONG).await;
    assert_eq!(last(&t, &key).await.as_deref(), Some("5"));
    assert_eq!(last(&t, &t.key("b")).await, None);
}

async fn a_period_is_for_one_lock(stage: Stage) {
    let t = stage.open().await;
    let plain = |name: &str| Claim::new(t.key(name)).unwrap();
    let slot = Claim::slot(t.key("s"), Slots::new(2).unwrap()).unwrap();
    for claims in [vec![plain("a"), plain("b")], vec![slot]] {
        let mut request = AcquireRequest::of(claims, LONG).unwrap();
        request.due = Some(due("1"));
        let acquire = Operation::Acquire(request);
        let never = std::future::pending();
        let answer =
            operation::run::<AcquireOutcome>(&t.backend, acquire, CallOptions::DEFAULT, never);
        let error = answer.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("due"), "{error}");
    }
}
