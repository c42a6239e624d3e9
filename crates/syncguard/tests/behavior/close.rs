use std::future::{pending, ready};
use std::sync::Arc;

use futures::future::maybe_done;
use std::time::{Duration, Instant};
use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ErrorKind, Jitter, Key, LockId, LockOptions, Lookup,
    Operation, ReleaseOutcome, RetryPolicy, Wait, lock,
};
use tokio::sync::Semaphore;

use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, prepared, tests};
use crate::support::attempts::Attempts as _;

tests![
    after_it_every_operation_is_refused,
    it_can_be_repeated,
    it_is_fine_before_the_first_operation,
    what_was_asked_before_is_answered,
    a_crowd_that_asked_before_is_answered,
    what_was_cancelled_before_is_undone,
    what_a_dropped_guard_held_is_released,
    meanwhile_nothing_new_is_started,
    those_who_wait_for_a_lock_end_at_once,
];

const CALL: CallOptions = CallOptions::DEFAULT;

/// That nobody holds `key` after the backend was closed, seen from outside.
async fn assert_free(t: &Context, key: &Key) {
    let peer = t.fixture.peer();
    if Arc::ptr_eq(&peer, &t.backend) {
        // Nobody else sees its locks, and they have ended with it.
        let error = peer.is_locked(key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
    } else {
        assert!(!peer.is_locked(key).await.unwrap(), "it is still held");
    }
}

async fn after_it_every_operation_is_refused(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    t.backend.close().await;
    let request = prepared(t.backend.as_ref(), &key, LONG);
    let id = LockId::generate().unwrap();
    let b = &t.backend;
    let errors = [
        b.acquire(&request).await.err(),
        b.release(&id).await.err(),
        b.extend(&id, LONG).await.err(),
        b.is_locked(&key).await.err(),
        b.lookup(&Lookup::Key(key.clone())).await.err(),
        b.force_release(&key).await.err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(error.message(), "the backend is closed");
        assert!(!error.is_outcome_unknown());
    }
}

async fn it_can_be_repeated(stage: Stage) {
    let t = stage.open().await;
    t.acquire(&t.key("a"), LONG).await;
    tokio::join!(t.backend.close(), t.backend.close());
    t.backend.close().await;
    let error = t.backend.is_locked(&t.key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

async fn it_is_fine_before_the_first_operation(stage: Stage) {
    let t = stage.open().await;
    t.backend.close().await;
    let error = t.backend.is_locked(&t.key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

async fn what_was_asked_before_is_answered(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let backend: Arc<dyn Backend> = Arc::clone(&t.backend);
    let request = prepared(t.backend.as_ref(), &key, LONG);
    // Polled in this order: the attempt is on its way before the backend closes.
    let (outcome, ()) = tokio::join!(biased; backend.acquire(&request), backend.close());
    assert!(outcome.is_ok(), "{outcome:?}");
}

async fn a_crowd_that_asked_before_is_answered(stage: Stage) {
    let t = stage.open().await;
    let mut grants = Vec::new();
    for number in 0..100 {
        grants.push(t.acquire(&t.key(&number.to_string()), LONG).await);
    }
    let releases = grants.iter().map(|grant| {
        let release = operation::run::<ReleaseOutcome>(
            &t.backend,
            Operation::Release([grant.lock_id.clone()].into()),
            CALL,
            pending(),
        );
        Box::pin(maybe_done(release))
    });
    let mut releases: Vec<_> = releases.collect();
    // Each has asked by then. join_all() alone may poll some only after the backend has closed.
    for release in &mut releases {
        let _ = futures::poll!(release.as_mut());
    }
    tokio::join!(
        biased;
        futures::future::join_all(&mut releases),
        t.backend.close()
    );
    for mut release in releases {
        let outcome = release.as_mut().take_output().unwrap();
        assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    }
}

async fn what_was_cancelled_before_is_undone(stage: Stage) {
    let t = stage.open().await;
    let keys: Vec<_> = (0..20).map(|number| t.key(&number.to_string())).collect();
    let attempts = keys.iter().map(|key| {
        let request = AcquireRequest::new(key.clone(), LONG).unwrap();
        operation::run::<AcquireOutcome>(&t.backend, Operation::Acquire(request), CALL, ready(()))
    });
    let mut cancelled = 0;
    for answer in futures::future::join_all(attempts).await {
        match answer {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Aborted);
                cancelled += 1;
            }
            // On a busy machine an answer can be there before the cancellation is looked at.
            Ok(AcquireOutcome::Acquired(grant)) => drop(t.backend.release(&grant[0].lock_id).await),
            Ok(locked) => panic!("{locked:?}"),
        }
    }
    assert!(cancelled > 0);
    t.backend.close().await;
    for key in &keys {
        assert_free(&t, key).await;
    }
}

async fn what_a_dropped_guard_held_is_released(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let guard = lock(&t.backend, &key, &LockOptions::default())
        .await
        .unwrap();
    drop(guard);
    t.backend.close().await;
    assert_free(&t, &key).await;
}

async fn meanwhile_nothing_new_is_started(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let permits = Arc::new(Semaphore::new(0));
    let faulty = Faulty::new(&t.backend, Fault::HeldBack(Arc::clone(&permits)));
    let backend: Arc<dyn Backend> = Arc::clone(&faulty) as _;
    let request = AcquireRequest::new(key.clone(), LONG).unwrap();
    let attempt =
        operation::run::<AcquireOutcome>(&backend, Operation::Acquire(request), CALL, pending());
    let late = async {
        faulty.done.acquire().await.unwrap().forget();
        let closing = Arc::clone(&backend);
        let closing = tokio::spawn(async move { closing.close().await });
        let error = loop {
            match operation::run::<bool>(
                &backend,
                Operation::IsLocked(key.clone()),
                CALL,
                pending(),
            )
            .await
            {
                Ok(locked) => assert!(locked),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert!(error.message().contains("closed"), "{error}");
        assert!(!closing.is_finished());
        permits.add_permits(1);
        closing.await.unwrap();
    };
    let (outcome, ()) = tokio::join!(attempt, late);
    assert!(matches!(outcome, Ok(AcquireOutcome::Acquired(_))));
}

/// Also those who only poll, and those whose turn has not come.
async fn those_who_wait_for_a_lock_end_at_once(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    let faulty = Faulty::new(&t.backend, Fault::First(0, ErrorKind::Internal));
    let waiters = [Wait::Poll, Wait::Poll, Wait::Notify].map(|wait| {
        let retry = RetryPolicy {
            max_retries: f64::INFINITY,
            retry_delay_ms: 30_000.0,
            jitter: Jitter::None,
            timeout_ms: f64::INFINITY,
            wait,
            ..RetryPolicy::default()
        };
        let options = LockOptions {
            retry,
            ..LockOptions::default()
        };
        let (backend, key) = (Arc::clone(&faulty) as Arc<dyn Backend>, key.clone());
        tokio::spawn(async move { lock(&backend, &key, &options).await })
    });
    // The first of them has asked.
    faulty.done.acquire().await.unwrap().forget();
    let start = Instant::now();
    faulty.close().await;
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(error.message(), "the backend is closed");
    }
    assert!(start.elapsed() < Duration::from_secs(10));
}
