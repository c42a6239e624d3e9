use super::*;
use crate::forrst::{ErrorCode, Options, acquire};
use crate::sqlite::{SqliteBackend, SqliteConfig};
use serde_json::{Value, json};

fn backend() -> Arc<dyn Backend> {
    Arc::new(SqliteBackend::new(SqliteConfig::in_memory()).unwrap())
}

fn options(more: Value) -> Options {
    let mut json = json!({ "key": "user:1", "ttl": { "value": 30, "unit": "second" } });
    json.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Options::parse("payments.charge", &json).unwrap()
}

fn release_arguments(owner: &str) -> ReleaseArguments {
    let json = json!({ "key": "lock:payments.charge:user:1", "owner": owner });
    ReleaseArguments::parse(&json).unwrap()
}

fn code<T>(result: Result<T, Failure>) -> ErrorCode {
    match result {
        Err(Failure::Refused(error)) => error.code,
        Err(Failure::Store(error)) => panic!("the store failed: {error}"),
        Ok(_) => panic!("expected an error"),
    }
}

#[tokio::test]
async fn a_kept_lock_is_released_by_its_owner_alone() {
    let backend = backend();
    let held = acquire(&backend, options(json!({ "auto_release": false })))
        .await
        .unwrap();
    let owner = held.owner.as_str().to_owned();
    let data = serde_json::to_value(held.end().await.unwrap()).unwrap();
    assert_eq!(data["owner"], owner.as_str());
    assert_eq!(data.get("lost"), None);

    let again = acquire(&backend, options(json!({}))).await;
    assert_eq!(code(again), ErrorCode::LockAcquisitionFailed);
    let waited = options(json!({ "block": { "value": 20, "unit": "millisecond" } }));
    assert_eq!(
        code(acquire(&backend, waited).await),
        ErrorCode::LockTimeout
    );

    let key = release_arguments(&owner).key;
    let json = serde_json::to_value(status(&backend, &key).await.unwrap()).unwrap();
    assert_eq!(json["locked"], true);
    assert_eq!(json["owner"], owner.as_str());
    assert!(matches!(json["ttl_remaining"].as_i64(), Some(0..=30)));

    let other = release(&backend, &release_arguments("other")).await;
    assert_eq!(code(other), ErrorCode::LockOwnershipMismatch);
    let released = release(&backend, &release_arguments(&owner)).await.unwrap();
    assert!(released == ReleaseResult::new("lock:payments.charge:user:1"));
    let again = release(&backend, &release_arguments(&owner)).await;
    assert_eq!(code(again), ErrorCode::LockNotFound);
    let json = serde_json::to_value(status(&backend, &key).await.unwrap()).unwrap();
    assert_eq!(
        json,
        json!({ "key": "lock:payments.charge:user:1", "locked": false })
    );
}

#[tokio::test]
async fn a_forced_release_asks_nobody() {
    let backend = backend();
    let held = acquire(&backend, options(json!({}))).await.unwrap();
    let key = release_arguments("x").key;
    assert!(force_release(&backend, &key).await.is_ok());
    assert_eq!(
        code(force_release(&backend, &key).await),
        ErrorCode::LockNotFound
    );
    // The holder before finds out when it releases.
    let data = serde_json::to_value(held.end().await.unwrap()).unwrap();
    assert_eq!(data["lost"], true);
}

#[tokio::test]
async fn a_lock_without_an_owner_is_nobodys() {
    let backend = backend();
    let key = release_arguments("x").key;
    let guard = crate::lock(&backend, key.key(), &crate::LockOptions::default())
        .await
        .unwrap();
    let result = release(&backend, &release_arguments("x")).await;
    assert_eq!(code(result), ErrorCode::LockOwnershipMismatch);
    assert!(guard.release().await.unwrap());
}

#[test]
fn a_lock_that_vanished_was_freed_or_expired() {
    let absent = |absence| outcome_of_release("lock:k", ReleaseOutcome::Absent(absence));
    assert_eq!(
        absent(Absence::NotFound).err().unwrap().code,
        ErrorCode::LockAlreadyReleased
    );
    assert_eq!(
        absent(Absence::Expired).err().unwrap().code,
        ErrorCode::LockNotFound
    );
}
