//! The connection pool: sessions are opened when they are needed and reused.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use deadpool::Runtime;
use deadpool::managed::{self, Manager, Metrics, Object, QueueMode, RecycleError, RecycleResult};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::connect::Connector;
use super::session::Session;
use crate::asking::sending::Sending;
use crate::background::permits::{Permit, Permits};
use crate::network::switches::SwitchListener;
use crate::postgres::config::PostgresConfig;
use crate::postgres::error::{Failure, failure, pool_failure};
use crate::postgres::fault::Fault;
use crate::postgres::statement::{Param, Plan, Row, Transport};
use crate::text::error::Error;

/// After this silence, whatever reads a session has a turn before it is used again: the server may have ended it while the
/// runtime was busy with something else.
const QUIET: Duration = Duration::from_millis(1);

/// How long to wait for the server to cancel a statement.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool of sessions.
pub(super) struct Pool {
    sessions: managed::Pool<Sessions>,
    size: usize,
    /// One for each session: whoever has a permit finds a session, or makes one.
    permits: Arc<Permits>,
    /// How long to wait for one: less than the operation's own limit, so that the error says that connections were short.
    patience: Duration,
}

impl Pool {
    pub(super) fn new(config: PostgresConfig, operation_timeout: Duration) -> Result<Self, Error> {
        let size = config.pool_size;
        let connector = Connector::new(config, operation_timeout)?;
        let sessions = managed::Pool::builder(Sessions(Arc::new(connector)))
            .max_size(size)
            // The session used last comes first: it is warm, and sessions that are not needed become idle.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::invalid("poolSize cannot be used").with_source(error))?;
        Ok(Self {
            sessions,
            size,
            permits: Permits::new(size),
            patience: operation_timeout * 9 / 10,
        })
    }

    /// What opens its sessions.
    pub(super) fn connector(&self) -> Arc<Connector> {
        Arc::clone(&self.sessions.manager().0)
    }

    /// Borrows a session. `sending` is that of what it is for.
    async fn borrow(&self, is_urgent: bool, sending: &Sending) -> Result<Checkout, Failure> {
        let connector = Arc::clone(&self.sessions.manager().0);
        if connector.primaries().is_some() {
            // Boxed because few have several hosts: otherwise the future of every operation would be as large.
            sending.before(Box::pin(connector.know_primary())).await;
        }
        let waiting = timeout(self.patience, self.permits.acquire(is_urgent));
        let permit = sending.before(waiting).await.map_err(|_| {
            Failure::new(match connector.is_failing() {
                true => Fault::ConnectTimeout,
                false => Fault::PoolExhausted,
            })
        })?;
        let session = sending.before(self.sessions.get()).await;
        let session = session.map_err(pool_failure)?;
        Ok(Checkout {
            session: Some(session),
            since: Instant::now(),
            connector,
            _permit: permit,
        })
    }

    async fn run_on(
        &self,
        mut borrowed: Checkout,
        plan: &Plan<'_>,
    ) -> Result<Option<Row>, Failure> {
        let connector = &self.sessions.manager().0;
        let session = borrowed.session()?;
        let (arrivals, process) = (Arc::clone(&session.arrivals), session.process);
        arrivals.ask();
        let answer = query(session, plan);
        let answer = connector.unless_silent(&arrivals, process, answer).await;
        let rows = self.conclude(borrowed, answer)?;
        rows.first().map(texts).transpose()
    }

    /// Keeps or discards the session, and notes what an error says about other sessions. The answer is `None` if the
    /// session is gone.
    fn conclude<T>(
        &self,
        mut borrowed: Checkout,
        answer: Option<Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let session = borrowed
            .session
            .take()
            .ok_or_else(|| Failure::new(Fault::Closed))?;
        let connector = &self.sessions.manager().0;
        let failure = match answer {
            // What a former primary says counts no more.
            Some(_) if connector.is_former(&session) => {
                drop(Object::take(session));
                Failure::new(Fault::FormerPrimary).with_unknown_outcome()
            }
            Some(Ok(answer)) => {
                connector.let_be(&session);
                return Ok(answer);
            }
            Some(Err(error)) if Failure::leaves_session_usable(&error) => {
                connector.let_be(&session);
                failure(&error, session.arrivals.end())
            }
            Some(Err(error)) => {
                let (arrivals, asked) = (&session.arrivals, session.arrivals.asked());
                let is_lost = match error.as_db_error() {
                    Some(_) => Failure::ends_session(&error) && !Failure::is_of_idleness(&error),
                    None => asked.is_lost,
                };
                if is_lost {
                    connector.losses().lost(arrivals.last());
                }
                let failure = failure(&error, arrivals.end());
                let failure = match asked.is_written {
                    true => failure,
                    false => failure.before_statement(),
                };
                drop(Object::take(session));
                failure
            }
            None => {
                Object::take(session).cut_off();
                Failure::new(Fault::Silent).with_unknown_outcome()
            }
        };
        match failure.state() {
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
                connector.try_next_host_first();
                self.sessions.retain(|_, _| false);
            }
            Some(&(SqlState::UNDEFINED_PSTATEMENT | SqlState::DUPLICATE_PSTATEMENT)) => {
                connector.share();
                self.sessions.retain(|_, _| false);
            }
            _ => {}
        }
        Err(failure)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("status", &self.sessions.status())
            .finish()
    }
}

#[async_trait]
impl Transport for Pool {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let is_urgent = plan.statement.is_urgent();
        let borrowed = self.borrow(is_urgent, plan.sending()).await?;
        self.run_on(borrowed, plan).await
    }

    async fn run_late<'a>(
        &self,
        is_urgent: bool,
        plan: &(dyn Fn() -> Plan<'a> + Send + Sync),
    ) -> Result<Option<Row>, Failure> {
        let borrowed = self.borrow(is_urgent, &Sending::default()).await?;
        self.run_on(borrowed, &plan()).await
    }

    async fn run_beside(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let session = self.sessions.manager().0.connect().await?;
        let (sql, params) = (plan.statement.sql(), plan.typed_params());
        let rows = session.client.query_typed(sql, &params).await;
        let rows = rows.map_err(|error| failure(&error, session.arrivals.end()))?;
        rows.first().map(texts).transpose()
    }

    fn connections(&self) -> Option<usize> {
        Some(self.size)
    }

    fn on_switch(&self, listener: Weak<SwitchListener>) {
        self.sessions.manager().0.losses().add(listener);
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        let mut borrowed = self.borrow(false, &Sending::default()).await?;
        let connector = &self.sessions.manager().0;
        let session = borrowed.session()?;
        session.arrivals.ask();
        let answer = session.client.batch_execute(sql);
        let answer = connector
            .unless_silent(&session.arrivals, session.process, answer)
            .await;
        self.conclude(borrowed, answer)
    }
}

/// Sends the statement.
async fn query(
    session: &mut Session,
    plan: &Plan<'_>,
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    match session.prepared.get(plan.statement.slot()) {
        Some(Some(statement)) => {
            let params = plan.params.iter().map(|param| match param {
                Param::Text(text) => text as &(dyn ToSql + Sync),
                Param::BigInt(number) => number as _,
            });
            let params: Vec<_> = params.collect();
            session.client.query(statement, &params).await
        }
        // Boxed because it is large and rare: otherwise the future of every operation would be as large.
        _ => Box::pin(first_query(session, plan)).await,
    }
}

/// Sends the statement unnamed and, if statements may be prepared, prepares it for later in the same round trip.
async fn first_query(
    session: &mut Session,
    plan: &Plan<'_>,
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let Session {
        client,
        prepared,
        may_prepare,
        ..
    } = session;
    let params = plan.typed_params();
    let sql = plan.statement.sql();
    let now = client.query_typed(sql, &params);
    if !*may_prepare {
        return now.await;
    }
    let types: Vec<_> = params
        .iter()
        .map(|(_, sql_type)| sql_type.clone())
        .collect();
    let (rows, statement) = tokio::join!(now, client.prepare_typed(sql, &types));
    let slot = plan.statement.slot();
    if prepared.len() <= slot {
        prepared.resize(slot + 1, None);
    }
    if let Some(place) = prepared.get_mut(slot) {
        *place = statement.ok();
    }
    rows
}

/// The columns of a row.
fn texts(row: &tokio_postgres::Row) -> Result<Row, Failure> {
    (0..row.len())
        .map(|column| {
            row.try_get(column)
                .map_err(|_| Failure::new(Fault::Malformed))
        })
        .collect()
}

impl Plan<'_> {
    /// The parameters, each with its type, for tokio-postgres 0.7.
    pub fn typed_params(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let params = self.params.iter().map(|param| match param {
            Param::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
            Param::BigInt(number) => (number as _, Type::INT8),
        });
        params.collect()
    }
}

/// A session in use. If it is dropped before its answer has arrived, as by a cancelled operation, the server is
/// asked to cancel the statement, and the session does not go back to the pool.
struct Checkout {
    session: Option<Object<Sessions>>,
    since: Instant,
    connector: Arc<Connector>,
    /// Given back after the session, so that whoever gets it next finds one.
    _permit: Permit,
}

impl Checkout {
    fn session(&mut self) -> Result<&mut Session, Failure> {
        let session = self.session.as_deref_mut();
        session.ok_or_else(|| Failure::new(Fault::Closed))
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.connector.let_be(&session);
        let session = Object::take(session);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                drop(runtime.spawn(abandon(session, self.since, Arc::clone(&self.connector))));
            }
            Err(_) => session.driver.abort(),
        }
    }
}

/// Asks the server to cancel the session's statement, then ends the session.
///
/// It does not ask a pooler: PgBouncer 1.18, which is in Debian 12, crashes if the client goes away after such a
/// request. Behind a pooler, the statement runs to its end.
async fn abandon(session: Session, since: Instant, connector: Arc<Connector>) {
    let Session {
        client,
        host,
        mut driver,
        may_prepare: is_own,
        ..
    } = session;
    let patience = if is_own {
        // With a time limit, because the server may be unreachable.
        let _ = timeout(CANCEL_TIMEOUT, connector.cancel(&client, &host)).await;
        CANCEL_TIMEOUT
    } else {
        connector.operation_timeout()
    };
    // Once the client is dropped, the driver waits for outstanding answers and then ends.
    drop(client);
    if timeout(patience, &mut driver).await.is_err() {
        driver.abort();
        // Behind a pooler, the statement may only take long.
        if is_own {
            connector.losses().lost(since);
        }
    }
}

impl Connector {
    /// Nobody waits for an answer of the session any more. Notes that it was lost meanwhile, if it was.
    fn let_be(&self, session: &Session) {
        if session.arrivals.answered() {
            self.losses().lost(session.arrivals.last());
        }
    }
}

/// Opens sessions, and checks them before they are reused.
struct Sessions(Arc<Connector>);

impl Sessions {
    /// Checks whether a session that was idle for long still answers.
    async fn check(&self, session: &mut Session) -> RecycleResult<Failure> {
        let now = Instant::now();
        match timeout(self.0.patience(), session.client.check_connection()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(RecycleError::message("closed by the server")),
            Err(_) => {
                self.0.silences().found(now);
                self.0.losses().lost(now);
                session.cut_off();
                Err(RecycleError::message("lost"))
            }
        }
    }
}

impl Manager for Sessions {
    type Type = Session;
    type Error = Failure;

    async fn create(&self) -> Result<Session, Failure> {
        // Boxed for the same reason as `first_query`.
        Box::pin(self.0.connect()).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Failure> {
        let quiet = session.arrivals.last().elapsed();
        if quiet > QUIET {
            // The first time lets the runtime look at its sockets. It may go on with us before it goes on with what reads.
            yield_now().await;
            yield_now().await;
        }
        if session.client.is_closed() {
            return Err(RecycleError::message("closed by the server"));
        }
        if self.0.silences().is_suspect(session) {
            return Err(RecycleError::message("lost, as others were"));
        }
        if self.0.is_former(session) {
            return Err(RecycleError::message("on a former primary"));
        }
        if quiet > self.0.most_idle() {
            // Boxed for the same reason as `first_query`.
            return Box::pin(self.check(session)).await;
        }
        Ok(())
    }
}
