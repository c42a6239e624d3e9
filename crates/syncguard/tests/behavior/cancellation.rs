//! What `operation` adds: an attempt that was given up leaves no lock.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, ExtendOutcome, Extension, Key,
    Operation, Outcome, ReleaseOutcome,
};
use tokio::sync::Semaphore;

use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, tests};
use crate::support::attempts::Attempts as _;

tests![
    an_answer_in_time_is_kept,
    a_cancelled_attempt_leaves_no_lock,
    an_attempt_cancelled_at_once_leaves_no_lock,
    a_timed_out_attempt_leaves_no_lock,
    an_attempt_that_is_never_answered_leaves_no_lock,
    a_dropped_attempt_leaves_no_lock,
    a_lost_answer_leaves_no_lock,
    giving_up_on_a_held_key_leaves_its_holder_alone,
    attempts_dropped_under_load_leave_no_lock,
    the_other_operations_can_be_cancelled,
];

const CALL: CallOptions = CallOptions::DEFAULT;

/// A backend whose store acquires and keeps the answer until the semaphore has a permit.
fn held_back(t: &Context) -> (Arc<Faulty>, Arc<dyn Backend>, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let faulty = Faulty::new(&t.backend, Fault::HeldBack(Arc::clone(&permits)));
    (Arc::clone(&faulty), faulty, permits)
}

fn request(key: &Key) -> AcquireRequest {
    AcquireRequest::new(key.clone(), LONG).unwrap()
}

async fn attempt(
    backend: &Arc<dyn Backend>,
    key: &Key,
    call: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<AcquireOutcome, Error> {
    operation::run(backend, Operation::Acquire(request(key)), call, cancelled).await
}

async fn an_answer_in_time_is_kept(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let outcome = attempt(&t.backend, &key, CALL, pending()).await;
    let AcquireOutcome::Acquired(mut grants) = outcome.unwrap() else {
        panic!("locked");
    };
    let grant = grants.remove(0);
    assert!(t.is_locked(&key).await);
    let released = operation::run::<ReleaseOutcome>(
        &t.backend,
        Operation::Release([grant.lock_id.clone()].into()),
        CALL,
        pending(),
    )
    .await;
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
}

async fn a_cancelled_attempt_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (faulty, backend, permits) = held_back(&t);
    let granted = async { faulty.done.acquire().await.unwrap().forget() };
    let error = attempt(&backend, &key, CALL, granted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    permits.add_permits(1);
    t.until_free(&key).await;
}

async fn an_attempt_cancelled_at_once_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (_, backend, permits) = held_back(&t);
    let error = attempt(&backend, &key, CALL, ready(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    permits.add_permits(1);
    t.until_free(&key).await;
}

async fn a_timed_out_attempt_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (_, backend, permits) = held_back(&t);
    let call = CallOptions {
        timeout: Some(Duration::from_millis(50)),
        ..CallOptions::default()
    };
    let error = attempt(&backend, &key, call, pending()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    permits.add_permits(1);
    t.until_free(&key).await;
}

async fn an_attempt_that_is_never_answered_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (faulty, backend, _) = held_back(&t);
    let granted = async { faulty.done.acquire().await.unwrap().forget() };
    let error = attempt(&backend, &key, CALL, granted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    // Well before the attempt itself would be given up.
    let limit = backend.operation_timeout() / 2;
    tokio::time::timeout(limit, t.until_free(&key))
        .await
        .unwrap();
}

async fn a_dropped_attempt_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let (faulty, backend, permits) = held_back(&t);
    let wanted = request(&key);
    let attempt = tokio::spawn(async move {
        operation::run::<AcquireOutcome>(&backend, Operation::Acquire(wanted), CALL, pending())
            .await
    });
    faulty.done.acquire().await.unwrap().forget();
    assert!(t.is_locked(&key).await);
    attempt.abort();
    assert!(attempt.await.unwrap_err().is_cancelled());
    permits.add_permits(1);
    t.until_free(&key).await;
}

async fn a_lost_answer_leaves_no_lock(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let backend: Arc<dyn Backend> = Faulty::new(&t.backend, Fault::AnswerLost);
    let error = attempt(&backend, &key, CALL, pending()).await.unwrap_err();
    assert!(error.is_outcome_unknown());
    t.until_free(&key).await;
}

async fn giving_up_on_a_held_key_leaves_its_holder_alone(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let holder = t.acquire(&key, LONG).await;
    let (faulty, backend, permits) = held_back(&t);
    let refused = async { faulty.done.acquire().await.unwrap().forget() };
    attempt(&backend, &key, CALL, refused).await.unwrap_err();
    permits.add_permits(1);
    // A second attempt over the same backend comes after whatever the first does in the background.
    assert!(t.try_acquire(&key, LONG).await.is_locked());
    assert_eq!(t.by_key(&key).await.unwrap().lock_id, holder.lock_id);
}

async fn attempts_dropped_under_load_leave_no_lock(stage: Stage) {
    let t = stage.open().await;
    let keys: Vec<_> = (0..32).map(|number| t.key(&number.to_string())).collect();
    let mut attempts = tokio::task::JoinSet::new();
    for key in &keys {
        let (backend, wanted) = (Arc::clone(&t.backend), request(key));
        attempts.spawn(async move {
            // Given up somewhere on the way, or not at all.
            let attempt = operation::run::<AcquireOutcome>(
                &backend,
                Operation::Acquire(wanted),
                CALL,
                pending(),
            );
            let lucky = tokio::time::timeout(Duration::from_micros(200), attempt).await;
            if let Ok(Ok(AcquireOutcome::Acquired(grant))) = lucky {
                backend.release(&grant[0].lock_id).await.unwrap();
            }
        });
    }
    attempts.join_all().await;
    for key in &keys {
        t.until_free(key).await;
    }
}

async fn the_other_operations_can_be_cancelled(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let grant = t.acquire(&key, LONG).await;
    let silent: Arc<dyn Backend> = Faulty::new(&t.backend, Fault::Silence);
    let (backend, id) = (&silent, &grant.lock_id);
    let lookup = syncguard::Lookup::Key(key.clone());
    let errors = [
        operation::run::<bool>(backend, Operation::IsLocked(key.clone()), CALL, ready(()))
            .await
            .err(),
        operation::run::<Outcome>(backend, Operation::Lookup(lookup.clone()), CALL, ready(()))
            .await
            .err(),
        operation::run::<ExtendOutcome>(
            backend,
            Operation::Extend(Extension::new([id.clone()].into(), LONG)),
            CALL,
            ready(()),
        )
        .await
        .err(),
        operation::run::<ReleaseOutcome>(
            backend,
            Operation::Release([id.clone()].into()),
            CALL,
            ready(()),
        )
        .await
        .err(),
        operation::run::<bool>(
            backend,
            Operation::ForceRelease(key.clone()),
            CALL,
            ready(()),
        )
        .await
        .err(),
    ];
    for error in errors {
        assert_eq!(error.unwrap().kind(), ErrorKind::Aborted);
    }
}
