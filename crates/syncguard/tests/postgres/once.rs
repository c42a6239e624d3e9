//! What is done once, on tables that are older than that, and beside those who know nothing of it.

use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, Tables};
use syncguard::{
    Backend, DoneMark, Due, ErrorKind, MarkChange, OnceGuard, OnceOptions, OnceOutcome, Operation,
    Owner, once,
};
use syncguard_clients::tokio_postgres::done as done_in;

use crate::canonical::Canonical;
use crate::labels::older_tables;
use crate::scene::named;
use crate::stage::{backend, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key};
use crate::support::suite::tests;

tests![
    on_older_tables_it_says_what_is_missing,
    it_comes_with_the_columns,
    another_library_leaves_the_mark,
    the_order_is_that_of_bytes_whatever_the_columns_collation,
    a_mark_that_comes_while_an_acquisition_waits_is_seen,
    a_release_of_a_lock_that_is_gone_stores_nothing,
    what_is_done_is_stored_with_the_transaction_or_not_at_all,
    a_stale_holder_stores_nothing_in_a_transaction,
    what_was_committed_is_done_though_the_lock_is_lost,
];

fn due(text: &str) -> Due {
    Due::new(text).unwrap()
}

async fn ask(backend: &Arc<dyn Backend>, period: &str) -> Result<OnceOutcome, syncguard::Error> {
    once(backend, &key("k"), due(period), &OnceOptions::default()).await
}

async fn granted(backend: &Arc<dyn Backend>, period: &str) -> OnceGuard {
    match ask(backend, period).await.unwrap() {
        OnceOutcome::Granted(run) => run,
        other => panic!("{other:?}"),
    }
}

async fn done(backend: &Arc<dyn Backend>, period: &str) {
    granted(backend, period).await.done().await.unwrap();
}

async fn change(backend: &Arc<dyn Backend>, change: MarkChange) -> Option<DoneMark> {
    let key = key("k");
    backend.ask(Operation::Mark { key, change }).await.unwrap()
}

async fn opened() -> (Arc<dyn Backend>, Tables) {
    let (ours, tables) = backend(server().unix()).await;
    (Arc::new(ours), tables)
}

async fn on_older_tables_it_says_what_is_missing() {
    let (ours, _) = older_tables().await;
    let ours: Arc<PostgresBackend> = Arc::new(ours);
    let backend: Arc<dyn Backend> = ours.clone();
    for owner in [None, Some(Owner::new("me").unwrap()), None] {
        let options = OnceOptions {
            owner,
            ..OnceOptions::default()
        };
        let answer = once(&backend, &key("k"), due("1"), &options).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("setupSchema()"), "{error}");
        assert!(!backend.is_locked(&key("k")).await.unwrap());
    }
    for change in [MarkChange::Keep, MarkChange::Clear] {
        let mark = Operation::Mark {
            key: key("k"),
            change,
        };
        let error = backend.run(&mark).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    // Everything else works.
    let grant = acquire(backend.as_ref(), "k").await;
    backend.release(&grant.lock_id).await.unwrap();
}

async fn it_comes_with_the_columns() {
    let (ours, _) = older_tables().await;
    let ours = Arc::new(ours);
    let backend: Arc<dyn Backend> = ours.clone();
    let fence = acquire(backend.as_ref(), "k").await.fence;
    backend.force_release(&key("k")).await.unwrap();
    ours.setup_schema().await.unwrap();
    let OnceOutcome::Granted(run) = ask(&backend, "1").await.unwrap() else {
        panic!("not granted");
    };
    assert!(run.fence() > fence);
    run.done().await.unwrap();
    assert!(matches!(
        ask(&backend, "1").await.unwrap(),
        OnceOutcome::Done(_)
    ));
}

async fn another_library_leaves_the_mark() {
    let (ours, tables) = opened().await;
    done(&ours, "5").await;
    let mut older = Canonical::new(server().client().await, &tables);
    assert!(older.acquire(&key("k"), 60_000).await.unwrap().is_some());
    assert!(matches!(
        ask(&ours, "6").await.unwrap(),
        OnceOutcome::Running
    ));
    ours.force_release(&key("k")).await.unwrap();
    let mark = change(&ours, MarkChange::Keep).await.unwrap();
    assert_eq!(mark.due, due("5"));
    done(&ours, "6").await;
}

async fn the_order_is_that_of_bytes_whatever_the_columns_collation() {
    let (ours, tables) = opened().await;
    let client = server().client().await;
    // Of a language: "a" comes before "B" there.
    let fences = tables.fences();
    let sql = format!("ALTER TABLE {fences} ALTER COLUMN done_due TYPE text COLLATE \"en-x-icu\"");
    client.batch_execute(&sql).await.unwrap();
    let sorts = client
        .query_one("SELECT 'a' < 'B' COLLATE \"en-x-icu\"", &[])
        .await
        .unwrap();
    assert!(sorts.get::<_, bool>(0), "the test tests nothing");
    for period in ["A", "B", "a", "b"] {
        done(&ours, period).await;
    }
    for period in ["A", "B", "Z", "a", "b"] {
        let outcome = ask(&ours, period).await.unwrap();
        let is_refused = match outcome {
            OnceOutcome::Done(_) => period == "b",
            OnceOutcome::Ahead(_) => period != "b",
            _ => false,
        };
        assert!(is_refused, "{period}");
    }
}

async fn a_mark_that_comes_while_an_acquisition_waits_is_seen() {
    let (ours, tables) = backend(named("marked", server().unix())).await;
    let ours: Arc<dyn Backend> = Arc::new(ours);
    done(&ours, "1").await;
    let (mut writer, watcher) = (server().client().await, server().client().await);
    let turn = writer.transaction().await.unwrap();
    let advisory = "SELECT pg_advisory_xact_lock(hashtext('k'))";
    turn.execute(advisory, &[]).await.unwrap();
    let waiter = {
        let ours = Arc::clone(&ours);
        tokio::spawn(async move { ask(&ours, "2").await.unwrap() })
    };
    until_waiting(&watcher, "marked", 1).await;
    // Its snapshot shows the mark of the first period, and the counter does not change any more.
    let mark = format!("UPDATE {} SET done_due = $1", tables.fences());
    let second = due("2");
    watcher
        .execute(&mark, &[&second.as_stored()])
        .await
        .unwrap();
    turn.commit().await.unwrap();
    let outcome = waiter.await.unwrap();
    assert!(
        matches!(&outcome, OnceOutcome::Done(mark) if mark.due == second),
        "{outcome:?}"
    );
}

async fn a_release_of_a_lock_that_is_gone_stores_nothing() {
    let (ours, _) = opened().await;
    let run = granted(&ours, "1").await;
    ours.force_release(&key("k")).await.unwrap();
    let error = run.done().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert_eq!(change(&ours, MarkChange::Keep).await, None);
}

/// Lets the time of all locks be over.
async fn expire(tables: &Tables) {
    let sql = format!("UPDATE {} SET expires_at_ms = 1", tables.locks());
    server().client().await.batch_execute(&sql).await.unwrap();
}

async fn what_is_done_is_stored_with_the_transaction_or_not_at_all() {
    let (ours, tables) = opened().await;
    let run = granted(&ours, "1").await;
    let mut client = server().client().await;
    let given_up = client.transaction().await.unwrap();
    done_in(&run, &given_up).await.unwrap();
    given_up.rollback().await.unwrap();
    assert_eq!(change(&ours, MarkChange::Keep).await, None);
    let transaction = client.transaction().await.unwrap();
    done_in(&run, &transaction).await.unwrap();
    assert_eq!(change(&ours, MarkChange::Keep).await, None);
    // Nobody changes whose lock it is before it ends.
    let taken = format!(
        "SET lock_timeout = 100; UPDATE {} SET lock_id = 'another'",
        tables.locks()
    );
    let refused = server().client().await.batch_execute(&taken).await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "55P03");
    transaction.commit().await.unwrap();
    let stored = change(&ours, MarkChange::Keep).await.unwrap();
    assert_eq!(
        (stored.due.clone(), &stored.lock_id),
        (due("1"), &run.lock_ids()[0])
    );
    run.done().await.unwrap();
    assert_eq!(change(&ours, MarkChange::Keep).await, Some(stored));
    acquire(ours.as_ref(), "k").await;
}

async fn a_stale_holder_stores_nothing_in_a_transaction() {
    let (ours, tables) = opened().await;
    let run = granted(&ours, "1").await;
    expire(&tables).await;
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    let error = done_in(&run, &transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    assert!(transaction.execute("SELECT 1", &[]).await.is_err());
    transaction.rollback().await.unwrap();
    assert_eq!(change(&ours, MarkChange::Keep).await, None);
    let error = run.done().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    done(&ours, "1").await;
}

async fn what_was_committed_is_done_though_the_lock_is_lost() {
    let (ours, tables) = opened().await;
    let mut client = server().client().await;
    for (period, taken_over) in [("1", false), ("2", true)] {
        let run = granted(&ours, period).await;
        let transaction = client.transaction().await.unwrap();
        done_in(&run, &transaction).await.unwrap();
        transaction.commit().await.unwrap();
        expire(&tables).await;
        if taken_over {
            acquire(ours.as_ref(), "k").await;
        }
        run.lose(syncguard::Error::new(ErrorKind::LockLost, "paused"));
        run.done().await.unwrap();
        let outcome = ask(&ours, period).await.unwrap();
        assert!(matches!(outcome, OnceOutcome::Done(_)), "{outcome:?}");
        ours.force_release(&key("k")).await.unwrap();
    }
}
