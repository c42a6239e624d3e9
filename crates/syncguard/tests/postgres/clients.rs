//! A pool that the application brings: what becomes of its sessions, and what is told of errors.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{Password, PostgresBackend, PostgresConfig, PostgresOptions, Tables};
use syncguard::{Absence, AcquireOutcome, Backend, Error, ErrorKind, Operation, ReleaseOutcome};

use crate::mediator::{Forwarding, Mediator};
use crate::stage::{backend, count, options, own_tables, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::clients::deadpool;
use crate::support::locks::{AHEAD, acquire, eventually, key, request};
use crate::support::suite::tests;

tests![
    a_lost_answer_is_unknown_and_a_repetition_finds_the_lock,
    a_session_with_an_unfinished_statement_does_not_go_back,
    a_pool_without_a_free_session_says_so,
    settings_of_the_sessions_stay_and_do_no_harm,
    errors_are_those_of_connections_of_our_own,
];

const CALL: CallOptions = CallOptions::DEFAULT;

async fn a_lost_answer_is_unknown_and_a_repetition_finds_the_lock() {
    let (beside, tables) = backend(server().unix()).await;
    let mediator = Mediator::start(server().port()).await;
    let pool = deadpool(&mediator.config(server().tcp()), 1, "");
    let ours: Arc<dyn Backend> = Arc::new(syncguard_clients::deadpool_postgres::backend(
        &pool,
        options(&tables),
    ));
    assert!(!ours.is_locked(&key("k")).await.unwrap());
    let request = request("k");
    count(&tables, "k").await;
    mediator.meet(Forwarding::Deny);
    let error = ours.acquire(&request).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    // It was granted. Repeated, in a new session, it is the same lock.
    let AcquireOutcome::Acquired(mut grants) = ours.acquire(&request).await.unwrap() else {
        panic!("locked for its own caller");
    };
    let grant = grants.remove(0);
    assert_eq!(grant.fence.get(), AHEAD + 1);
    mediator.meet(Forwarding::Deny);
    let error = ours.release(&request.claims[0].lock_id).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    let again = ours.release(&request.claims[0].lock_id).await.unwrap();
    assert_eq!(again, ReleaseOutcome::Absent(Absence::NotFound));
    assert_eq!(acquire(&beside, "k").await.fence.get(), AHEAD + 2);
    // An attempt as users make them leaves nothing behind.
    mediator.meet(Forwarding::Deny);
    let lost = operation::run::<AcquireOutcome>(
        &ours,
        Operation::Acquire(crate::support::locks::request("l")),
        CALL,
        pending(),
    );
    assert!(lost.await.unwrap_err().is_outcome_unknown());
    eventually("what was granted is released", async || {
        !beside.is_locked(&key("l")).await.unwrap()
    })
    .await;
}

async fn a_session_with_an_unfinished_statement_does_not_go_back() {
    let (beside, tables) = backend(server().unix()).await;
    let name = "unfinished";
    let config = PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().unix()
    };
    let pool = deadpool(&config, 1, "");
    let pid = async || {
        let query = async {
            let session = pool.get().await.unwrap();
            let row = session.query_one("SELECT pg_backend_pid()", &[]).await;
            row.unwrap().get::<_, i32>(0)
        };
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, query).await.expect("it waits")
    };
    let ours: Arc<dyn Backend> = Arc::new(syncguard_clients::deadpool_postgres::backend(
        &pool,
        options(&tables),
    ));
    let grant = acquire(&*ours, "k").await;
    let first = pid().await;
    let observer = server().client().await;
    let blocker = server().client().await;
    let lock = format!("BEGIN; LOCK TABLE {} IN EXCLUSIVE MODE", tables.locks());
    blocker.batch_execute(&lock).await.unwrap();
    // Dropped while the statement waits in the server.
    tokio::select! {
        answer = ours.release(&grant.lock_id) => panic!("{answer:?}"),
        () = until_waiting(&observer, name, 1) => {}
    }
    // The pool's next session is another, which answers at once and nothing but what it is asked.
    assert_ne!(pid().await, first);
    assert!(ours.is_locked(&key("k")).await.unwrap());
    // Cancelled while the statement waits in the server: what is granted later is released.
    let acquisition =
        operation::run::<AcquireOutcome>(&ours, Operation::Acquire(request("l")), CALL, async {
            until_waiting(&observer, name, 2).await;
        });
    let error = acquisition.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    blocker.batch_execute("COMMIT").await.unwrap();
    eventually("what was granted is released", async || {
        !beside.is_locked(&key("l")).await.unwrap()
    })
    .await;
    ours.force_release(&key("k")).await.unwrap();
    assert!(pool.status().size <= 1);
}

async fn a_pool_without_a_free_session_says_so() {
    let (_, tables) = backend(server().unix()).await;
    let pool = deadpool(&server().unix(), 1, "");
    let ours = syncguard_clients::deadpool_postgres::backend(
        &pool,
        PostgresOptions {
            operation_timeout: Duration::from_millis(500),
            ..options(&tables)
        },
    );
    let theirs = pool.get().await.unwrap();
    let error = ours.acquire(&request("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
    assert!(!error.is_outcome_unknown());
    drop(theirs);
    acquire(&ours, "k").await;
    pool.close();
    let error = ours.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.message(), "the pool is closed");
}

async fn settings_of_the_sessions_stay_and_do_no_harm() {
    let beside = server().client().await;
    beside
        .batch_execute("CREATE SCHEMA IF NOT EXISTS apart")
        .await
        .unwrap();
    let settings = "-c search_path=apart -c synchronous_commit=off \
                    -c default_transaction_isolation=serializable -c DateStyle=German";
    let pool = deadpool(&server().tcp(), 8, settings);
    let ours = syncguard_clients::deadpool_postgres::backend(&pool, options(&own_tables()));
    ours.setup_schema().await.unwrap();
    let ours: Arc<dyn Backend> = Arc::new(ours);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..32 {
        let ours = Arc::clone(&ours);
        tasks.spawn(async move {
            let name = format!("k{}", number % 3);
            match ours.acquire(&request(&name)).await? {
                AcquireOutcome::Locked { .. } | AcquireOutcome::Done(_) => Ok(0),
                AcquireOutcome::Acquired(grant) => {
                    let released = ours.release(&grant[0].lock_id).await?;
                    assert_eq!(released, ReleaseOutcome::Released);
                    Ok::<_, Error>(1)
                }
            }
        });
    }
    let granted: i32 = tasks.join_all().await.into_iter().map(Result::unwrap).sum();
    assert!(granted > 0);
    let row = pool.get().await.unwrap();
    let sql = "SELECT current_setting('search_path'), current_setting('synchronous_commit')";
    let row = row.query_one(sql, &[]).await.unwrap();
    let found: (String, String) = (row.get(0), row.get(1));
    assert_eq!(found, ("apart".to_owned(), "off".to_owned()));
}

async fn errors_are_those_of_connections_of_our_own() {
    let missing = || options(&Tables::new("no_locks", "no_fences").unwrap());
    let nobody = PostgresConfig {
        user: Some("nobody".to_owned()),
        ..server().tcp()
    };
    let wrong = PostgresConfig {
        password: Password::Text("secret".to_owned()),
        ..server().tcp()
    };
    let mut refused = server().tcp();
    refused.hosts[0].port = crate::support::process::free_port();
    let nowhere = PostgresConfig {
        database: Some("nowhere".to_owned()),
        ..server().unix()
    };
    for (config, kind) in [
        (server().unix(), ErrorKind::InvalidArgument),
        (nobody, ErrorKind::AuthFailed),
        (wrong, ErrorKind::AuthFailed),
        (refused, ErrorKind::ServiceUnavailable),
        (nowhere, ErrorKind::InvalidArgument),
    ] {
        let pool = deadpool(&config, 2, "");
        let ours = syncguard_clients::deadpool_postgres::backend(&pool, missing());
        let native = PostgresBackend::new(config, missing()).unwrap();
        let error = ours.acquire(&request("secret")).await.unwrap_err();
        let expected = native.acquire(&request("secret")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(error.kind(), expected.kind(), "{expected:?}");
        assert!(!error.is_outcome_unknown());
        assert!(std::error::Error::source(&error).is_some(), "{error:?}");
        assert!(
            !format!("{error:?} {error}").contains("secret"),
            "{error:?}"
        );
    }
}
