//! Transactions that a check refuses: because the lock is lost, or because the check could not tell.

use futures::FutureExt as _;
use syncguard::{ErrorKind, ReleaseOutcome};
use syncguard_clients::tokio_postgres::check;
use tokio_postgres::IsolationLevel;

use crate::guards::{commit_guarded, expire, held, hold, refusal};
use crate::stage::{server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::acquire;
use crate::support::suite::tests;

tests![
    a_lock_that_was_taken_over_cannot_be_guarded,
    a_lock_whose_time_is_over_cannot_be_guarded,
    a_takeover_under_way_decides,
    what_is_guarded_is_written_by_its_holder_in_every_isolation_level,
    without_the_unique_index_nothing_is_guarded,
    a_role_needs_few_rights_for_a_guard,
    a_guard_counts_after_savepoints_and_in_them,
    a_guard_that_fails_in_a_savepoint_stops_the_whole_transaction,
    an_old_snapshot_is_no_loss,
];

async fn a_lock_that_was_taken_over_cannot_be_guarded() {
    let (backend, tables, guard) = held(60_000).await;
    expire(&tables).await;
    let next = acquire(&*backend, "k").await;
    let mut client = server().client().await;
    client
        .batch_execute("CREATE TEMP TABLE written (n int)")
        .await
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction
        .execute("INSERT INTO written VALUES (1)", &[])
        .await
        .unwrap();
    let error = check(&guard, &transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
    // Whoever does not look at the error writes nothing either.
    transaction.commit().await.unwrap();
    let count: i64 = client
        .query_one("SELECT count(*) FROM written", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(count, 0);
    assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
    // The next holder has noticed nothing.
    assert_eq!(
        backend.release(&next.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
}

async fn a_lock_whose_time_is_over_cannot_be_guarded() {
    let (_, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    for (past_ms, holds) in [(500, true), (1500, false)] {
        let sql = format!(
            "UPDATE {} SET expires_at_ms = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - {past_ms}",
            tables.locks()
        );
        client.batch_execute(&sql).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        assert_eq!(
            check(&guard, &transaction).await.is_ok(),
            holds,
            "{past_ms}"
        );
    }
    guard.keep();
}

async fn a_takeover_under_way_decides() {
    for commits in [true, false] {
        let (_, tables, guard) = held(60_000).await;
        let writer = server().client().await;
        let sql = format!(
            "BEGIN; UPDATE {} SET lock_id = 'AAAAAAAAAAAAAAAAAAAAAA'",
            tables.locks()
        );
        writer.batch_execute(&sql).await.unwrap();
        let name = format!("guard beside a takeover {commits}");
        let mut client = server().client().await;
        client
            .execute("SELECT set_config('application_name', $1, false)", &[&name])
            .await
            .unwrap();
        let checking = tokio::spawn(async move {
            let transaction = client.transaction().await.unwrap();
            let found = check(&guard, &transaction).await;
            guard.keep();
            found.map_err(|error| error.kind())
        });
        until_waiting(&server().client().await, &name, 1).await;
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        writer.batch_execute(end).await.unwrap();
        let expected = if commits {
            Err(ErrorKind::LockLost)
        } else {
            Ok(())
        };
        assert_eq!(checking.await.unwrap(), expected);
    }
}

/// A holder that is overtaken between what it reads and what it writes.
async fn what_is_guarded_is_written_by_its_holder_in_every_isolation_level() {
    for level in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        let (backend, tables, stale) = held(60_000).await;
        let table = format!("{}_sum", tables.locks());
        let [mut one, mut other] = [server().client().await, server().client().await];
        let setup = format!("CREATE TABLE {table} (n int); INSERT INTO {table} VALUES (0)");
        one.batch_execute(&setup).await.unwrap();
        let (read, write) = (
            format!("SELECT n FROM {table}"),
            format!("UPDATE {table} SET n = $1"),
        );
        let begun = one
            .build_transaction()
            .isolation_level(level)
            .start()
            .await
            .unwrap();
        let n: i32 = begun.query_one(&read, &[]).await.unwrap().get(0);
        expire(&tables).await;
        let next = hold(&backend, "k", 60_000).await;
        let theirs = other
            .build_transaction()
            .isolation_level(level)
            .start()
            .await
            .unwrap();
        check(&next, &theirs).await.unwrap();
        theirs.execute(&write, &[&(n + 1)]).await.unwrap();
        theirs.commit().await.unwrap();
        assert!(next.release().await.unwrap());
        check(&stale, &begun).await.unwrap_err();
        begun.execute(&write, &[&(n + 1)]).await.unwrap_err();
        begun.rollback().await.unwrap();
        assert_eq!(one.query_one(&read, &[]).await.unwrap().get::<_, i32>(0), 1);
        stale.keep();
    }
}

async fn without_the_unique_index_nothing_is_guarded() {
    let (_, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    let index = format!("idx_{}_lock_id", tables.locks());
    for instead in [
        String::new(),
        format!("CREATE INDEX {index} ON {} (lock_id)", tables.locks()),
        format!(
            "CREATE UNIQUE INDEX {index} ON {} (lock_id) WHERE expires_at_ms > 0",
            tables.locks()
        ),
    ] {
        client
            .batch_execute(&format!("DROP INDEX {index}; {instead}"))
            .await
            .unwrap();
        let error = refusal(&mut client, &guard).await;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{instead}");
        assert!(
            error.message().contains("unique index on lock_id"),
            "{error}"
        );
        let again = format!(
            "DROP INDEX IF EXISTS {index}; CREATE UNIQUE INDEX {index} ON {} (lock_id)",
            tables.locks()
        );
        client.batch_execute(&again).await.unwrap();
    }
    commit_guarded(&mut client, &guard).await;
    guard.keep();
}

async fn a_role_needs_few_rights_for_a_guard() {
    let (_, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    let locks = tables.locks();
    let role = format!("guard_of_{locks}");
    client
        .batch_execute(&format!("CREATE ROLE {role}; SET ROLE {role}"))
        .await
        .unwrap();
    for grant in ["SELECT (key, lock_id, expires_at_ms)", "UPDATE (owner)"] {
        let error = refusal(&mut client, &guard).await;
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{grant}");
        client
            .batch_execute(&format!(
                "RESET ROLE; GRANT {grant} ON {locks} TO {role}; SET ROLE {role}"
            ))
            .await
            .unwrap();
    }
    commit_guarded(&mut client, &guard).await;
    guard.keep();
}

async fn a_guard_counts_after_savepoints_and_in_them() {
    let (_, _, guard) = held(60_000).await;
    let mut client = server().client().await;
    // As clients leave them that never release one.
    let left =
        "SAVEPOINT one; SELECT pg_current_xact_id(); CREATE TEMP TABLE one (); SAVEPOINT two";
    for _ in 0..2 {
        let mut transaction = client.transaction().await.unwrap();
        transaction.batch_execute(left).await.unwrap();
        check(&guard, &transaction).await.unwrap();
        let savepoint = transaction.transaction().await.unwrap();
        check(&guard, &savepoint).await.unwrap();
        savepoint.commit().await.unwrap();
        transaction.batch_execute("DROP TABLE one").await.unwrap();
        transaction.commit().await.unwrap();
    }
    assert!(guard.lost().now_or_never().is_none());
    guard.keep();
}

async fn a_guard_that_fails_in_a_savepoint_stops_the_whole_transaction() {
    let (_, tables, guard) = held(60_000).await;
    let mut client = server().client().await;
    client
        .batch_execute("CREATE TEMP TABLE written (n int)")
        .await
        .unwrap();
    // The session has had a guard that held.
    commit_guarded(&mut client, &guard).await;
    expire(&tables).await;
    // Also where the loss is known.
    for _ in 0..2 {
        let mut transaction = client.transaction().await.unwrap();
        let write = "INSERT INTO written VALUES (1)";
        transaction.execute(write, &[]).await.unwrap();
        let savepoint = transaction.transaction().await.unwrap();
        let error = check(&guard, &savepoint).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockLost);
        savepoint.rollback().await.unwrap_err();
        transaction.execute(write, &[]).await.unwrap_err();
        transaction.commit().await.unwrap();
        let count = client.query_one("SELECT count(*) FROM written", &[]);
        assert_eq!(count.await.unwrap().get::<_, i64>(0), 0);
    }
    assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
}

/// The lock has been extended since the snapshot was taken, in which its time is over.
async fn an_old_snapshot_is_no_loss() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let (backend, tables, guard) = held(60_000).await;
        expire(&tables).await;
        let mut client = server().client().await;
        let start = client.build_transaction().isolation_level(level).start();
        let old = start.await.unwrap();
        old.query_one("SELECT 1", &[]).await.unwrap();
        let sql = format!(
            "UPDATE {} SET expires_at_ms = 9999999999999",
            tables.locks()
        );
        server().client().await.batch_execute(&sql).await.unwrap();
        let error = check(&guard, &old).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(
            error.message().contains("run the transaction again"),
            "{error}"
        );
        old.rollback().await.unwrap();
        let start = client.build_transaction().isolation_level(level).start();
        let again = start.await.unwrap();
        check(&guard, &again).await.unwrap();
        again.commit().await.unwrap();
        // Of one that is lost, the second try says so.
        expire(&tables).await;
        acquire(&*backend, "k").await;
        let start = client.build_transaction().isolation_level(level).start();
        let late = start.await.unwrap();
        let error = check(&guard, &late).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockLost, "{error}");
        late.rollback().await.unwrap();
        guard.keep();
    }
}
