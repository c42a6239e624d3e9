//! Guards, and what is done once, in transactions of tokio-postgres.

use syncguard::postgres::{STOP_TRANSACTION, check_failure};
use syncguard::{Error, ErrorKind, LockCheck, LockGuard, OnceGuard};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// Checks that the locks of `guard` are held, in a transaction of the application's own in the database of the locks, and keeps
/// them from being taken over until it ends: what it commits was written by the holder.
///
/// It takes one round trip. If one of the locks is gone, the transaction has failed and cannot be committed any more, also if
/// `transaction` is a savepoint in it, and the guard is lost. A transaction of `deadpool-postgres` derefs to what this takes.
///
/// ```no_run
/// # use syncguard::LockGuard;
/// # async fn deposit(guard: &LockGuard, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use syncguard_clients::tokio_postgres::check;
///
/// let transaction = client.transaction().await?;
/// check(guard, &transaction).await?;
/// transaction.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `LockLost`; `ServiceUnavailable` if the snapshot of the transaction is older than the lock's last extension, so that it has to be
/// run again; `InvalidArgument` if the transaction does not see the table of locks, if that has no unique index on `lock_id`,
/// or if the locks are not in PostgreSQL; `AuthFailed` for missing rights, and for row level security;
/// `Internal`, with the error of tokio-postgres as its source, if the statement has failed for another reason.
pub async fn check(guard: &LockGuard, transaction: &Transaction<'_>) -> Result<(), Error> {
    run(guard, &guard.check_sql()?, transaction).await
}

/// As [`check`], and stores in the same transaction that something is done for the period of `once`: what the transaction writes
/// is done exactly once. After the commit, [`OnceGuard::done`] frees the lock.
///
/// ```no_run
/// # use syncguard::OnceGuard;
/// # async fn bill(run: OnceGuard, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = client.transaction().await?;
/// transaction.execute("UPDATE accounts SET balance = balance - 1", &[]).await?;
/// syncguard_clients::tokio_postgres::done(&run, &transaction).await?;
/// transaction.commit().await?;
/// run.done().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`check`]; also `InvalidArgument` if the table of fence counters has no columns for what is done.
pub async fn done(once: &OnceGuard, transaction: &Transaction<'_>) -> Result<(), Error> {
    run(once, &once.done_sql()?, transaction).await
}

async fn run(
    guard: &LockGuard,
    check: &LockCheck,
    transaction: &Transaction<'_>,
) -> Result<(), Error> {
    let values = check
        .values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync));
    let values = values.collect::<Vec<_>>();
    let Err(error) = transaction.query_one(&check.text, &values).await else {
        return Ok(());
    };
    let _ = transaction.batch_execute(STOP_TRANSACTION).await;
    let said = error.as_db_error();
    let failure = said.and_then(|said| check_failure(said.code().code(), said.message()));
    let mut failure = failure
        .unwrap_or_else(|| Error::new(ErrorKind::Internal, "the locks could not be checked"));
    // The transaction does not see the lock, and cannot tell why. The store knows whether it is there.
    let is_unsure = matches!(
        failure.kind(),
        ErrorKind::ServiceUnavailable | ErrorKind::AuthFailed
    ) && said
        .is_some_and(|said| *said.code() == SqlState::INVALID_TEXT_REPRESENTATION);
    if is_unsure && guard.is_stored().await.is_ok_and(|stored| !stored) {
        let text = "the lock was lost: it was gone when it was to be guarded";
        failure = Error::new(ErrorKind::LockLost, text);
    }
    if failure.kind() == ErrorKind::LockLost {
        guard.lose(failure.clone());
    }
    Err(failure.with_source(error))
}
