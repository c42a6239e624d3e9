//! Runs statements until they are committed or have failed for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;

use super::connection::quota::Subject;
use super::connection::shared::TransportInUse;
use super::error::Failure;
use super::row_security::RowSecurity;
use super::schema;
use super::statement::{Plan, Row};
use super::tables::Tables;
use crate::random;
use crate::text::error::{Error, ErrorKind};

/// How often a transaction that lost against another one is tried again, which takes about 3 s.
const MAX_RETRIES: u32 = 100;

/// Runs statements. One that lost against another transaction has left nothing behind and is run again.
#[derive(Debug)]
pub(super) struct StatementRunner {
    pub(super) connections: Arc<TransportInUse>,
    /// Creates missing tables, if this backend does.
    provision: Option<Provision>,
    pub(super) row_security: RowSecurity,
    /// Set once the server has refused to wake those who wait.
    is_silent: AtomicBool,
}

impl StatementRunner {
    /// If it `creates` tables, that is when a statement needs them and they do not exist.
    pub(super) fn new(connections: Arc<TransportInUse>, tables: &Tables, creates: bool) -> Self {
        Self {
            connections,
            provision: creates.then(|| Provision::new(tables.clone())),
            row_security: RowSecurity::new(tables),
            is_silent: AtomicBool::new(false),
        }
    }

    /// What to run instead of `plan` where the server refuses to wake those who wait.
    pub(super) fn silenced<'a>(&self, plan: &Plan<'a>) -> Option<Plan<'a>> {
        let is_silent = self.is_silent.load(Ordering::Relaxed);
        is_silent.then(|| plan.silent()).flatten()
    }

    /// Runs a statement; `subjects` are what it may have to wait for in the server.
    pub(super) async fn run(
        &self,
        subjects: &[Subject<'_>],
        plan: &Plan<'_>,
    ) -> Result<Option<Row>, Error> {
        self.try_run(subjects, plan).await.map_err(Error::from)
    }

    pub(super) async fn try_run(
        &self,
        subjects: &[Subject<'_>],
        plan: &Plan<'_>,
    ) -> Result<Option<Row>, Failure> {
        let _permits = match &self.connections.quotas {
            Some(quotas) => Some(plan.sending().before(quotas.acquire(subjects)).await),
            None => None,
        };
        // A statement that waits for its key's permit does not count as one that uses a connection.
        let _under_way = self.connections.begin();
        let mut tries = 0;
        let seen = self.provision.as_ref().map(Provision::count);
        let mut may_provide = true;
        let mut silent = self.silenced(plan);
        let mut is_refused = false;
        loop {
            let plan = silent.as_ref().unwrap_or(plan);
            match self.connections.transport.run(plan).await {
                Err(failure)
                    if let (
                        Some(provision),
                        Some(seen),
                        true,
                        Some(&SqlState::UNDEFINED_TABLE),
                    ) = (&self.provision, seen, may_provide, failure.state()) =>
                {
                    may_provide = false;
                    provision.make(self, seen).await.map_err(Failure::other)?;
                }
                Err(failure)
                    if failure.may_be_about_telling()
                        && let Some(without) = plan.silent() =>
                {
                    // A full queue of notifications passes, and a missing right does not.
                    is_refused = failure.state() != Some(&SqlState::PROGRAM_LIMIT_EXCEEDED);
                    silent = Some(without);
                }
                Err(failure) if failure.is_rolled_back_by_chance() && tries < MAX_RETRIES => {
                    let scatter = random::unit().map_err(Failure::other)?;
                    let longest_ms = f64::from(1u32 << tries.min(6));
                    sleep(Duration::from_secs_f64(longest_ms * scatter / 1000.0)).await;
                    tries += 1;
                }
                Err(failure) if failure.state() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                    let transport = self.connections.transport.as_ref();
                    return Err(Box::pin(self.row_security.explain(transport, failure)).await);
                }
                answer => {
                    // If rights on the tables were missing, that has failed as well.
                    if is_refused && answer.is_ok() {
                        self.is_silent.store(true, Ordering::Relaxed);
                    }
                    return answer;
                }
            }
        }
    }
}

/// Creates tables at their first use.
#[derive(Debug)]
struct Provision {
    tables: Tables,
    /// Held while the tables are created: one task at a time in this process.
    making: Mutex<()>,
    /// How often they have been created.
    made: AtomicUsize,
}

impl Provision {
    fn new(tables: Tables) -> Self {
        Self {
            tables,
            making: Mutex::new(()),
            made: AtomicUsize::new(0),
        }
    }

    fn count(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Creates the tables, unless another task has done so since the count was `seen`.
    async fn make(&self, runner: &StatementRunner, seen: usize) -> Result<(), Error> {
        let _making = self.making.lock().await;
        if self.count() > seen {
            return Ok(());
        }
        let set_up = schema::setup(runner.connections.transport.as_ref(), &self.tables);
        set_up.await.map_err(|error| match error.kind() {
            ErrorKind::AuthFailed => Error::new(
                ErrorKind::AuthFailed,
                "the lock tables are missing and this role may not create them: their DDL is in \
                 docs/postgres.md of the package syncguard, under \"Tables and rights\"",
            )
            .with_source(error),
            _ => error,
        })?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::release::Release;
    use super::*;
    use crate::postgres::fault::Fault;
    use crate::postgres::statement::Transport;
    use crate::values::lock_id::LockId;
    use async_trait::async_trait;

    /// Refuses to wake those who wait, with this SQLSTATE, and notes for each statement whether it would have.
    #[derive(Debug)]
    struct Server {
        state: &'static str,
        wakes: std::sync::Mutex<Vec<bool>>,
        serves: bool,
    }

    #[async_trait]
    impl Transport for Arc<Server> {
        async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
            if plan.statement.sql().contains("row_security_active") {
                return Ok(Some(vec![None, None]));
            }
            let tells = plan.statement.sql().contains("pg_notify");
            self.wakes.lock().unwrap().push(tells);
            match tells || !self.serves {
                true => Err(Failure::new(Fault::State(self.state))),
                false => Ok(None),
            }
        }

        async fn batch(&self, _: &str) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// Which of three releases would have told, and whether they succeeded.
    async fn release_three_times(state: &'static str, serves: bool) -> (Vec<bool>, bool) {
        let wakes = std::sync::Mutex::default();
        let server = Arc::new(Server {
            state,
            wakes,
            serves,
        });
        let connections = TransportInUse::new(Arc::new(Arc::clone(&server)));
        let tables = Tables::default();
        let runner = StatementRunner::new(Arc::new(connections), &tables, false);
        let (release, lock_id) = (Release::new(&tables), LockId::generate().unwrap());
        let mut succeeds = true;
        for _ in 0..3 {
            let plan = release.plan(&lock_id, false);
            succeeds &= runner.run(&[], &plan).await.is_ok();
        }
        let wakes = server.wakes.lock().unwrap().clone();
        (wakes, succeeds)
    }

    #[tokio::test]
    async fn a_lock_is_freed_also_where_nobody_can_be_told() {
        for (state, serves, wakes, succeeds) in [
            // No right to the function, or no such function.
            ("42501", true, &[true, false, false, false][..], true),
            ("42883", true, &[true, false, false, false], true),
            // The queue is full, which passes.
            (
                "54000",
                true,
                &[true, false, true, false, true, false],
                true,
            ),
            // No right to the table, which may be given.
            (
                "42501",
                false,
                &[true, false, true, false, true, false],
                false,
            ),
            ("57014", true, &[true, true, true], false),
        ] {
            let found = release_three_times(state, serves).await;
            assert_eq!(found, (wakes.to_vec(), succeeds), "{state}");
        }
    }
}
