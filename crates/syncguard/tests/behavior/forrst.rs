//! The Forrst extension: who takes and frees its locks.

use std::future::{pending, ready};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use syncguard::{Backend, ErrorKind, LockOptions, Owner, lock};
use syncguard_forrst::{
    ErrorCode, Failure, KeyArgument, Options, ReleaseArguments, acquire, force_release, release,
    status,
};

use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, Stage, tests};

tests![
    a_kept_lock_is_released_by_its_owner_alone,
    a_forced_release_asks_nobody,
    a_lock_without_an_owner_is_nobodys,
    an_owner_may_look_like_a_process,
    a_release_can_be_cancelled,
];

/// The options of a request for one lock.
fn options(t: &Context, more: &Value) -> Options {
    let ttl = json!({ "value": 30, "unit": "second" });
    let mut json = json!({ "key": t.key("user:1").as_str(), "ttl": ttl });
    json.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Options::parse("payments.charge", &json).unwrap()
}

fn full_key(t: &Context) -> String {
    format!("lock:payments.charge:{}", t.key("user:1").as_str())
}

fn release_arguments(t: &Context, owner: &str) -> ReleaseArguments {
    ReleaseArguments::parse(&json!({ "key": full_key(t), "owner": owner })).unwrap()
}

fn key_argument(t: &Context) -> KeyArgument {
    KeyArgument::parse(&json!({ "key": full_key(t) })).unwrap()
}

fn to_json(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

fn code<T>(result: Result<T, Failure>) -> ErrorCode {
    match result {
        Err(Failure::Refused(error)) => error.code,
        Err(Failure::Store(error)) => panic!("the store failed: {error}"),
        Ok(_) => panic!("expected an error"),
    }
}

async fn a_kept_lock_is_released_by_its_owner_alone(stage: Stage) {
    let t = stage.open().await;
    let backend = &t.backend;
    let kept = options(&t, &json!({ "auto_release": false }));
    let held = acquire(backend, kept).await.unwrap();
    let owner = held.owner.as_str().to_owned();
    let data = to_json(held.end().await.unwrap());
    assert_eq!(data["owner"], owner.as_str());
    assert_eq!(data.get("lost"), None);

    let again = acquire(backend, options(&t, &json!({}))).await;
    assert_eq!(code(again), ErrorCode::LockAcquisitionFailed);
    let block = json!({ "block": { "value": 500, "unit": "millisecond" } });
    let waited = acquire(backend, options(&t, &block)).await;
    assert_eq!(code(waited), ErrorCode::LockTimeout);

    let shown = to_json(status(backend, &key_argument(&t)).await.unwrap());
    assert_eq!(shown["locked"], true);
    assert_eq!(shown["owner"], owner.as_str());
    assert!(matches!(shown["ttl_remaining"].as_i64(), Some(0..=30)));

    let (own, other) = (
        release_arguments(&t, &owner),
        release_arguments(&t, "other"),
    );
    let refused = release(backend, &other, pending()).await;
    assert_eq!(code(refused), ErrorCode::LockOwnershipMismatch);
    let released = to_json(release(backend, &own, pending()).await.unwrap());
    assert_eq!(released, json!({ "released": true, "key": full_key(&t) }));
    let again = release(backend, &own, pending()).await;
    assert_eq!(code(again), ErrorCode::LockNotFound);
    let shown = to_json(status(backend, &key_argument(&t)).await.unwrap());
    assert_eq!(shown, json!({ "key": full_key(&t), "locked": false }));
}

async fn a_forced_release_asks_nobody(stage: Stage) {
    let t = stage.open().await;
    let held = acquire(&t.backend, options(&t, &json!({}))).await.unwrap();
    let key = key_argument(&t);
    assert!(force_release(&t.backend, &key).await.is_ok());
    let again = force_release(&t.backend, &key).await;
    assert_eq!(code(again), ErrorCode::LockNotFound);
    // The holder before finds out when it releases.
    let data = to_json(held.end().await.unwrap());
    assert_eq!(data["lost"], true);
}

async fn a_lock_without_an_owner_is_nobodys(stage: Stage) {
    let t = stage.open().await;
    for label in [None, Some("web-3:4711")] {
        let arguments = release_arguments(&t, label.unwrap_or("x"));
        let options = LockOptions {
            owner: label.map(|text| Owner::new(text).unwrap()),
            ..LockOptions::default()
        };
        let guard = lock(&t.backend, arguments.key.key(), &options)
            .await
            .unwrap();
        let refused = release(&t.backend, &arguments, pending()).await;
        assert_eq!(code(refused), ErrorCode::LockOwnershipMismatch);
        let shown = to_json(status(&t.backend, &arguments.key).await.unwrap());
        assert_eq!(shown["locked"], true);
        assert_eq!(shown.get("owner"), None);
        assert!(guard.release().await.unwrap());
    }
}

async fn an_owner_may_look_like_a_process(stage: Stage) {
    let t = stage.open().await;
    let owner = "worker:5";
    let kept = options(&t, &json!({ "auto_release": false, "owner": owner }));
    let held = acquire(&t.backend, kept).await.unwrap();
    let data = to_json(held.end().await.unwrap());
    let shown = to_json(status(&t.backend, &key_argument(&t)).await.unwrap());
    assert!(data["owner"] == owner && shown["owner"] == owner);
    let own = release_arguments(&t, owner);
    assert!(release(&t.backend, &own, pending()).await.is_ok());
}

async fn a_release_can_be_cancelled(stage: Stage) {
    let t = stage.open().await;
    let silent: Arc<dyn Backend> = Faulty::new(&t.backend, Fault::Silence);
    let result = release(&silent, &release_arguments(&t, "x"), ready(())).await;
    let Err(Failure::Store(error)) = result else {
        panic!("expected the store's error");
    };
    assert_eq!(error.kind(), ErrorKind::Aborted);
}
