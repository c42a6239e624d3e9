//! What takes longer than it may: it ends in time, says whose limit it was, and leaves nothing behind.

use std::collections::HashSet;
use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, PostgresConfig};
use syncguard::{AcquireOutcome, Error, ErrorKind, LockOptions, ReleaseOutcome, lock};
use tokio::task::JoinSet;

use crate::load::{TIMEOUT, in_time, no_lock_is_left, scene};
use crate::stage::{server, sessions, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, ttl};
use crate::support::suite::tests;

tests![
    a_full_pool,
    a_statement_timeout,
    a_lock_timeout,
    a_row_that_somebody_else_has_locked,
    an_advisory_lock_that_somebody_else_has,
    who_has_the_advisory_lock_is_said,
    who_has_it_is_not_said_at_any_price,
];

async fn a_full_pool() {
    // The server must not make room before the wait for a session is over.
    let config = PostgresConfig {
        parameters: vec![("statement_timeout".to_owned(), "0".to_owned())],
        ..server().unix()
    };
    let scene = scene(server(), "full", config).await;
    let mut grants = Vec::new();
    // One lock alone does not get all connections.
    for name in ["k", "l", "m", "n"] {
        grants.push(scene.hold(name).await);
    }
    let blocker = scene.lock_rows().await;
    let mut waiting = JoinSet::new();
    // Extensions, because releases end by themselves once they know what they wait for.
    for grant in grants {
        let (backend, id) = (Arc::clone(&scene.backend), grant.lock_id);
        waiting.spawn(async move { backend.extend(&id, ttl(60_000)).await });
    }
    until_waiting(&scene.client, "full", 4).await;
    let error = in_time(TIMEOUT, scene.backend.is_locked(&key("k")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
    assert!(!error.is_outcome_unknown());
    blocker.batch_execute("COMMIT").await.unwrap();
    waiting.join_all().await;
    scene.until_idle("full").await;
    assert_eq!(sessions(&scene.client, "full").await.0, 4);
}

async fn a_statement_timeout() {
    let config = PostgresConfig {
        parameters: vec![("statement_timeout".to_owned(), "200ms".to_owned())],
        ..server().tcp()
    };
    let scene = scene(server(), "hurried", config).await;
    let grant = scene.hold("k").await;
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'hurried'";
    let pids = async || {
        let rows = scene.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<HashSet<i32>>()
    };
    let blocker = scene.lock_rows().await;
    let error = scene.backend.release(&grant.lock_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("statement_timeout"), "{error}");
    assert!(!error.is_outcome_unknown());
    let before = pids().await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        scene.release(&grant).await.unwrap(),
        ReleaseOutcome::Released
    );
    // Sessions have survived. A slow machine may have opened another one beside them.
    let after = pids().await;
    assert!(
        !before.is_empty() && before.is_subset(&after),
        "{before:?} {after:?}"
    );
}

async fn a_lock_timeout() {
    let config = PostgresConfig {
        options: Some("-c lock_timeout=100ms".to_owned()),
        ..server().tcp()
    };
    let scene = scene(server(), "impatient", config).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let error = scene.backend.release(&grant.lock_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("lock_timeout"), "{error}");
    blocker.batch_execute("COMMIT").await.unwrap();
}

async fn a_row_that_somebody_else_has_locked() {
    let scene = scene(server(), "blocked", server().tcp()).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let error = in_time(TIMEOUT, scene.release(&grant)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    // The row is locked still, and nobody of ours waits for it.
    scene.until_idle("blocked").await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        scene.release(&grant).await.unwrap(),
        ReleaseOutcome::Released
    );
}

async fn an_advisory_lock_that_somebody_else_has() {
    let scene = scene(server(), "queued", server().tcp()).await;
    let blocker = server().client().await;
    let advisory = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('k'))";
    blocker.batch_execute(advisory).await.unwrap();
    let error = in_time(TIMEOUT, scene.try_acquire("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    scene.until_idle("queued").await;
    blocker.batch_execute("COMMIT").await.unwrap();
    no_lock_is_left(&scene).await;
    assert!(matches!(
        scene.try_acquire("k").await.unwrap(),
        AcquireOutcome::Acquired(_)
    ));
}

/// A lock that a session keeps, which does nothing, and the words by which it is known.
async fn foreign(key: &str) -> (tokio_postgres::Client, String) {
    let holder = server().client().await;
    let sql = "SELECT pg_advisory_lock(hashtext($1)), pg_backend_pid()";
    let process: i32 = holder.query_one(sql, &[&key]).await.unwrap().get(1);
    let words = format!("the server process {process} holds the advisory lock");
    (holder, words)
}

/// The error of the first of ten attempts that says so, or of the last. It is looked up in the time that is left, of which a
/// busy machine may leave none.
async fn until_said<T>(words: &str, attempt: impl AsyncFn() -> Result<T, Error>) -> Error {
    for _ in 0..9 {
        let error = attempt().await.err().unwrap();
        if error.message().contains(words) {
            return error;
        }
    }
    attempt().await.err().unwrap()
}

async fn who_has_the_advisory_lock_is_said() {
    const NAME: &str = "nightly-job";
    let scene = scene(server(), "hinted", server().tcp()).await;
    let (holder, words) = foreign(NAME).await;
    let assert_said = |error: &Error, kind| {
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.message().contains(&words), "{error}");
        assert!(error.message().contains("docs/postgres.md"), "{error}");
        assert!(!format!("{error:?}").contains(NAME), "{error:?}");
    };
    let asked = async || in_time(TIMEOUT, scene.try_acquire(NAME)).await;
    let error = until_said(&words, asked).await;
    assert_said(&error, ErrorKind::NetworkTimeout);
    // Whoever waits with less time hears of it, too.
    let mut options = LockOptions::default();
    options.retry.timeout_ms = 800.0;
    let name = key(NAME);
    let waited = async || in_time(TIMEOUT, lock(&scene.backend, &name, &options)).await;
    let error = until_said(&words, waited).await;
    assert_said(&error, ErrorKind::NetworkTimeout);
    // And who is told by the server that the time is over.
    let hurried = PostgresConfig {
        parameters: vec![("lock_timeout".to_owned(), "100ms".to_owned())],
        ..server().tcp()
    };
    let other = PostgresBackend::new(hurried, crate::stage::options(&scene.tables)).unwrap();
    let hurried = async || crate::support::locks::try_acquire(&other, NAME).await;
    let error = until_said(&words, hurried).await;
    assert_said(&error, ErrorKind::NetworkTimeout);
    drop(holder);
    scene.until_idle("hinted").await;
    no_lock_is_left(&scene).await;
    assert!(!scene.try_acquire(NAME).await.unwrap().is_locked());
}

async fn who_has_it_is_not_said_at_any_price() {
    let one = PostgresConfig {
        user: Some("single".to_owned()),
        pool_size: 1,
        ..server().unix()
    };
    let scene = scene(server(), "unhinted", one).await;
    let (locks, fences) = (scene.tables.locks(), scene.tables.fences());
    let rights = format!("CREATE ROLE single LOGIN; GRANT ALL ON {locks}, {fences} TO single");
    scene.client.batch_execute(&rights).await.unwrap();
    assert!(!scene.backend.is_locked(&key("k")).await.unwrap());
    let limit = "ALTER ROLE single CONNECTION LIMIT 1";
    scene.client.batch_execute(limit).await.unwrap();
    let (holder, words) = foreign("taken").await;
    // The only connection waits itself, and there can be no other one.
    let asked = async || in_time(TIMEOUT, scene.try_acquire("taken")).await;
    let error = asked().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert_eq!(error.message(), "Operation timed out after 2000 ms");
    let no_limit = "ALTER ROLE single CONNECTION LIMIT -1";
    scene.client.batch_execute(no_limit).await.unwrap();
    let error = until_said(&words, asked).await;
    assert!(error.message().contains(&words), "{error}");
    drop(holder);
    scene.until_idle("unhinted").await;
    no_lock_is_left(&scene).await;
}
