use std::sync::Arc;

use syncguard::{AcquireRequest, Backend, ErrorKind, LockId, Lookup};

use crate::fixture::{LONG, Stage, tests};

tests![
    after_it_every_operation_is_refused,
    it_can_be_repeated,
    it_is_fine_before_the_first_operation,
    what_was_asked_before_is_answered,
];

async fn after_it_every_operation_is_refused(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    t.backend.close().await;
    let request = AcquireRequest::new(key.clone(), LONG).unwrap();
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
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("closed"), "{error}");
        assert!(!error.is_outcome_unknown());
    }
}

async fn it_can_be_repeated(stage: Stage) {
    let t = stage.open().await;
    t.acquire(&t.key("a"), LONG).await;
    tokio::join!(t.backend.close(), t.backend.close());
    t.backend.close().await;
    let error = t.backend.is_locked(&t.key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

async fn it_is_fine_before_the_first_operation(stage: Stage) {
    let t = stage.open().await;
    t.backend.close().await;
    let error = t.backend.is_locked(&t.key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

async fn what_was_asked_before_is_answered(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let backend: Arc<dyn Backend> = Arc::clone(&t.backend);
    let request = AcquireRequest::new(key.clone(), LONG).unwrap();
    // Polled in this order: the attempt is on its way before the backend closes.
    let (outcome, ()) = tokio::join!(biased; backend.acquire(&request), backend.close());
    assert!(outcome.is_ok(), "{outcome:?}");
}
