//! PostgreSQL through a pool of deadpool-postgres.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::{HookError, Object, Pool, PoolError, TimeoutType};
use syncguard::postgres::{Failure, Fault, Plan, PostgresBackend, PostgresOptions, Row, Transport};
use syncguard::{Error, ErrorKind, Permit, Permits};
use tokio::time::timeout;

/// A backend over a pool of `deadpool-postgres` 0.14, with `tokio-postgres` 0.7.
///
/// The pool stays the application's: its size, its timeouts and its TLS are as it was set up, and closing the
/// backend does not close it. Operations wait for its sessions like everybody else; those of one key use at most
/// half of them. Waiters poll, because a session that listens would be missing in the pool.
///
/// # Sessions
///
/// Each operation is one unnamed statement, sent with the types of its parameters in one round trip. So it works
/// behind PgBouncer in transaction mode, and neither uses nor fills a statement cache. What the sessions are set to
/// stays as it is: `search_path` decides where the tables are, and `synchronous_commit = off` does not apply to
/// acquisitions and extensions. A session must come back to the pool without an open transaction: an operation
/// that runs inside one is not committed when it is answered.
///
/// A session whose statement was not finished, because the operation was cancelled or its time was over, is
/// taken out of the pool and closed. The server is not asked to cancel the statement, because only the pool
/// knows how to reach it; an acquisition that is granted after all is released in the background.
///
/// # Repetitions
///
/// The pool sends nothing twice. When a session ends before the answer, the error has
/// [`is_outcome_unknown`](Error::is_outcome_unknown), and an acquisition that ends so is released in the
/// background. The caller may also repeat it with the same lock id: the answer is then the lock as it was
/// granted, with the same fence. A release that ends so may have freed the lock; repeated, it says
/// `Absent(NotFound)`. The core itself repeats what the server has rolled back by chance, such as a deadlock.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use deadpool_postgres::{Manager, Pool};
/// use syncguard::postgres::PostgresOptions;
/// use syncguard::{Backend, Key, LockOptions, lock};
///
/// let config = "host=db.internal user=app dbname=app".parse()?;
/// let pool = Pool::builder(Manager::new(config, tokio_postgres::NoTls)).max_size(10).build()?;
///
/// let backend = syncguard_clients::deadpool_postgres::backend(&pool, PostgresOptions::default());
/// backend.setup_schema().await?;
/// let backend: Arc<dyn Backend> = Arc::new(backend);
/// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn backend(pool: &Pool, options: PostgresOptions) -> PostgresBackend {
    let size = pool.status().max_size;
    let transport = Deadpool {
        permits: Permits::new(size),
        size,
        pool: pool.clone(),
        // Before the operation's own limit, so that the error says that connections were short.
        patience: options.operation_timeout * 9 / 10,
    };
    PostgresBackend::with_transport(Arc::new(transport), options)
}

struct Deadpool {
    pool: Pool,
    size: usize,
    /// One for each session that the pool can have. The application uses some of these, too.
    permits: Arc<Permits>,
    patience: Duration,
}

impl Deadpool {
    async fn lease(&self, is_urgent: bool) -> Result<Lease, Failure> {
        let session = async {
            let permit = self.permits.acquire(is_urgent).await;
            self.pool.get().await.map(|session| (session, permit))
        };
        // Not the pool's own time limit, which not every pool can have.
        match timeout(self.patience, session).await {
            Ok(Ok((session, permit))) => Ok(Lease(Some(session), permit)),
            Ok(Err(error)) => Err(refusal(error)),
            Err(_) => {
                let status = self.pool.status();
                let is_full = status.size >= status.max_size;
                let fault = if is_full {
                    Fault::PoolExhausted
                } else {
                    Fault::ConnectTimeout
                };
                Err(Failure::new(fault))
            }
        }
    }
}

#[async_trait]
impl Transport for Deadpool {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let made = || plan.clone();
        self.run_late(plan.statement.is_urgent(), &made).await
    }

    async fn run_late<'a>(
        &self,
        is_urgent: bool,
        plan: &(dyn Fn() -> Plan<'a> + Send + Sync),
    ) -> Result<Option<Row>, Failure> {
        let lease = self.lease(is_urgent).await?;
        let plan = plan();
        let (sql, params) = (plan.statement.sql(), plan.typed_params());
        let rows = lease.session()?.query_typed(sql, &params).await;
        lease.conclude(rows)?.first().map(texts).transpose()
    }

    fn connections(&self) -> Option<usize> {
        Some(self.size)
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        let lease = self.lease(false).await?;
        let done = lease.session()?.batch_execute(sql).await;
        lease.conclude(done)
    }
}

impl fmt::Debug for Deadpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadpool")
            .field("status", &self.pool.status())
            .finish()
    }
}

/// The columns of a row.
fn texts(row: &tokio_postgres::Row) -> Result<Row, Failure> {
    let columns = (0..row.len()).map(|column| row.try_get(column));
    let texts: Result<Row, _> = columns.collect();
    texts.map_err(|_| Failure::new(Fault::Malformed))
}

/// Why the pool gave no session.
fn refusal(error: PoolError) -> Failure {
    Failure::other(match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            return Failure::to_connect_by_pool(error);
        }
        PoolError::Timeout(TimeoutType::Wait) => return Failure::new(Fault::PoolExhausted),
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            return Failure::new(Fault::ConnectTimeout);
        }
        PoolError::Closed => Error::invalid("the pool is closed"),
        PoolError::NoRuntimeSpecified => {
            Error::invalid("the pool has time limits, and no runtime to keep them")
        }
        PoolError::PostCreateHook(HookError::Message(words)) => {
            Error::new(ErrorKind::Internal, "a hook of the pool refused a session")
                .with_source(words.into_owned())
        }
    })
}

/// A session in use. Unless its statement is known to have ended, it does not go back to the pool.
struct Lease(
    Option<Object>,
    /// Given back after the session.
    #[expect(dead_code, reason = "it is there to be dropped")]
    Permit,
);

impl Lease {
    fn session(&self) -> Result<&Object, Failure> {
        self.0.as_ref().ok_or_else(|| Failure::new(Fault::Closed))
    }

    /// What the statement has come to. Gives the session back if it can serve others.
    fn conclude<T>(mut self, result: Result<T, tokio_postgres::Error>) -> Result<T, Failure> {
        if result
            .as_ref()
            .err()
            .is_none_or(Failure::leaves_session_usable)
        {
            drop(self.0.take());
        }
        result.map_err(|error| Failure::of_statement(&error))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            drop(Object::take(session));
        }
    }
}
