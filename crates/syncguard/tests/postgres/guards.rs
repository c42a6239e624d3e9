//! Locks that are checked in transactions of the application's own: who waits for those, and who does not.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use syncguard::postgres::{PostgresBackend, PostgresOptions, Tables};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Backend, Claim, Error, ErrorKind, ExtendOutcome,
    Extension, Grant, LockGuard, LockOptions, Operation, Outcome, Slots, lock,
};
use syncguard_clients::tokio_postgres::check;
use tokio_postgres::Client;

use crate::stage::{backend, own_tables, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, request, try_acquire, ttl};
use crate::support::suite::tests;

tests![
    a_guarded_lock_is_not_taken_over_when_its_time_is_over,
    a_guarded_slot_and_one_of_several_are_not_taken_over,
    extensions_and_heartbeats_do_not_wait_for_a_guard,
    an_expired_lock_that_is_guarded_is_not_extended_and_stays,
    a_release_waits_for_the_guard_and_is_done_after_it,
    a_release_that_waits_too_long_says_for_whom_and_is_done_later,
    an_expired_lock_is_taken_over_after_what_others_do_with_its_row,
];

/// A lock that the crate's own guard holds, on tables of its own.
pub(crate) async fn held(ttl_ms: i64) -> (Arc<PostgresBackend>, Tables, LockGuard) {
    let (backend, tables) = backend(server().unix()).await;
    let backend = Arc::new(backend);
    let guard = hold(&backend, "k", ttl_ms).await;
    (backend, tables, guard)
}

pub(crate) async fn hold(backend: &Arc<PostgresBackend>, name: &str, ttl_ms: i64) -> LockGuard {
    let options = LockOptions {
        ttl: ttl(ttl_ms),
        ..LockOptions::default()
    };
    let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
    lock(&backend, &key(name), &options).await.unwrap()
}

/// Lets the time of all locks be over, also for a transaction that guards one of them.
pub(crate) async fn expire(tables: &Tables) {
    let sql = format!("UPDATE {} SET expires_at_ms = 1", tables.locks());
    server().client().await.batch_execute(&sql).await.unwrap();
}

/// How a transaction that checks the lock is refused. It is rolled back.
pub(crate) async fn refusal(client: &mut Client, guard: &LockGuard) -> Error {
    let transaction = client.transaction().await.unwrap();
    let error = check(guard, &transaction).await.unwrap_err();
    transaction.rollback().await.unwrap();
    error
}

/// Commits a transaction that has checked the lock.
pub(crate) async fn commit_guarded(client: &mut Client, guard: &LockGuard) {
    let transaction = client.transaction().await.unwrap();
    check(guard, &transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

fn is_locked(outcome: &AcquireOutcome) -> bool {
    outcome.is_locked()
}

async fn a_guarded_lock_is_not_taken_over_when_its_time_is_over() {
    let (backend, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    expire(&tables).await;
    // Neither alone nor in a group, and not with a label either.
    let mut labelled = request("k");
    labelled.labels.owner = Some(syncguard::Owner::new("me").unwrap());
    for asked in [request("k"), labelled] {
        let answer = backend.acquire(&asked);
        let answer = tokio::time::timeout(Duration::from_secs(2), answer).await;
        assert!(is_locked(&answer.expect("it waits").unwrap()));
    }
    let many = (0..40).map(|_| try_acquire(&*backend, "k"));
    for answer in join_all(many).await {
        assert!(is_locked(&answer.unwrap()));
    }
    // No number was used for nothing.
    transaction.commit().await.unwrap();
    let next = acquire(&*backend, "k").await;
    assert!(next.fence > guard.fence());
    guard.keep();
}

async fn a_guarded_slot_and_one_of_several_are_not_taken_over() {
    let (backend, tables) = backend(server().unix()).await;
    let backend = Arc::new(backend);
    let shared: Arc<dyn Backend> = Arc::clone(&backend) as _;
    let slots = || vec![Claim::slot(key("s"), Slots::new(1).unwrap()).unwrap()];
    let both = || [key("b"), key("k")].map(|key| Claim::new(key).unwrap());
    let options = LockOptions::default();
    let slot = lock(&shared, slots(), &options).await.unwrap();
    let other = hold(&backend, "k", 60_000).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&slot, &transaction).await.unwrap();
    check(&other, &transaction).await.unwrap();
    expire(&tables).await;
    let asked = AcquireRequest::of(slots(), ttl(1000)).unwrap();
    assert_eq!(
        backend.acquire(&asked).await.unwrap(),
        AcquireOutcome::Locked {
            claim: 0,
            free_in: None,
            labels: syncguard::Labels::default(),
            is_shared: false,
        }
    );
    let asked = AcquireRequest::of(both(), ttl(1000)).unwrap();
    assert_eq!(
        backend.acquire(&asked).await.unwrap(),
        AcquireOutcome::Locked {
            claim: 1,
            free_in: None,
            labels: syncguard::Labels::default(),
            is_shared: false,
        }
    );
    // The other one of both was not taken, nor counted.
    let count = format!(
        "SELECT count(*) FROM {} WHERE fence_key LIKE '%b'",
        tables.fences()
    );
    let count: i64 = transaction.query_one(&count, &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
    transaction.rollback().await.unwrap();
    let AcquireOutcome::Acquired(grants) = backend.acquire(&asked).await.unwrap() else {
        panic!("locked after the transaction");
    };
    assert_eq!(grants.len(), 2);
    slot.keep();
    other.keep();
}

async fn extensions_and_heartbeats_do_not_wait_for_a_guard() {
    let (backend, _, guard) = held(60_000).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    let mut extension = Extension::new(guard.lock_ids(), ttl(90_000));
    for is_heartbeat in [false, true] {
        extension.is_heartbeat = is_heartbeat;
        let many = (0..40).map(|_| {
            let operation = Operation::Extend(extension.clone());
            let backend = Arc::clone(&backend);
            async move { backend.run(&operation).await.unwrap() }
        });
        let many = join_all(many);
        let outcomes = tokio::time::timeout(Duration::from_secs(3), many).await;
        for outcome in outcomes.expect("it waits") {
            let Outcome::Extend(ExtendOutcome::Extended { expires_at_ms }) = outcome else {
                panic!("not extended");
            };
            assert!(expires_at_ms > guard.expires_at_ms());
        }
    }
    // It is still guarded, and can be again.
    check(&guard, &transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert!(guard.release().await.unwrap());
}

async fn an_expired_lock_that_is_guarded_is_not_extended_and_stays() {
    let (backend, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    expire(&tables).await;
    let gone = ExtendOutcome::absent(Absence::Expired);
    let extended = backend.extend(guard.lock_id(), ttl(1000));
    let extended = tokio::time::timeout(Duration::from_secs(2), extended).await;
    assert_eq!(extended.expect("it waits").unwrap(), gone);
    assert_eq!(rows(&tables).await, 1);
    transaction.commit().await.unwrap();
    // Without a guard it is removed.
    assert_eq!(
        backend.extend(guard.lock_id(), ttl(1000)).await.unwrap(),
        gone
    );
    assert_eq!(rows(&tables).await, 0);
    guard.keep();
}

async fn rows(tables: &Tables) -> i64 {
    let sql = format!("SELECT count(*) FROM {}", tables.locks());
    server()
        .client()
        .await
        .query_one(&sql, &[])
        .await
        .unwrap()
        .get(0)
}

async fn a_release_waits_for_the_guard_and_is_done_after_it() {
    let (config, tables) = (server().unix(), own_tables());
    let config = syncguard::postgres::PostgresConfig {
        application_name: Some("guarded release".to_owned()),
        ..config
    };
    let options = PostgresOptions {
        tables,
        ..PostgresOptions::default()
    };
    let backend = Arc::new(PostgresBackend::new(config, options).unwrap());
    backend.setup_schema().await.unwrap();
    let guard = hold(&backend, "k", 60_000).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    let releasing = tokio::spawn(guard.release());
    until_waiting(&server().client().await, "guarded release", 1).await;
    transaction.commit().await.unwrap();
    assert!(releasing.await.unwrap().unwrap());
}

async fn a_release_that_waits_too_long_says_for_whom_and_is_done_later() {
    let tables = own_tables();
    let options = PostgresOptions {
        tables: tables.clone(),
        operation_timeout: Duration::from_millis(1500),
        ..PostgresOptions::default()
    };
    let backend = Arc::new(PostgresBackend::new(server().unix(), options).unwrap());
    backend.setup_schema().await.unwrap();
    let guard = hold(&backend, "k", 60_000).await;
    let mut client = server().client().await;
    let pid: i32 = client
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    let forced = backend.force_release(&key("k")).await.unwrap_err();
    let released = guard.release().await.unwrap_err();
    for error in [forced, released] {
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
        let words = format!("the server process {pid} has locked the lock's row: with a guard");
        assert!(error.message().contains(&words), "{error}");
    }
    assert!(backend.is_locked(&key("k")).await.unwrap());
    transaction.commit().await.unwrap();
    // The release goes on in the background.
    eventually("the lock is free", async || {
        !backend.is_locked(&key("k")).await.unwrap()
    })
    .await;
}

/// What is no guard is waited for, as ever.
async fn an_expired_lock_is_taken_over_after_what_others_do_with_its_row() {
    let (backend, tables, guard) = held(60_000).await;
    let grant: Grant = guard.keep().remove(0);
    expire(&tables).await;
    let writer = server().client().await;
    let sql = format!("BEGIN; DELETE FROM {}", tables.locks());
    writer.batch_execute(&sql).await.unwrap();
    let taking = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { try_acquire(&*backend, "k").await.unwrap() }
    });
    eventually("the acquisition waits", async || {
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
        server()
            .client()
            .await
            .query_one(sql, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            > 0
    })
    .await;
    writer.batch_execute("COMMIT").await.unwrap();
    let AcquireOutcome::Acquired(grants) = taking.await.unwrap() else {
        panic!("locked by nobody");
    };
    assert!(grants[0].fence > grant.fence);
}
