//! Runs statements until they are committed or have failed for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;

use super::connection::Connections;
use super::error::Failure;
use super::quota::Subject;
use super::schema;
use super::statement::{Plan, Row};
use super::tables::Tables;
use crate::error::{Error, ErrorKind};
use crate::random;

/// How often a transaction that lost against another one is tried again, which takes about 3 s.
const MAX_RETRIES: u32 = 100;

/// Runs statements. One that lost against another transaction has left nothing behind and is run again.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) connections: Arc<Connections>,
    /// Creates missing tables, if this backend does.
    provision: Option<Provision>,
}

impl Runner {
    /// With `missing`, these tables are created when a statement needs them and they do not exist.
    pub(super) fn new(connections: Arc<Connections>, missing: Option<Tables>) -> Self {
        Self {
            connections,
            provision: missing.map(Provision::new),
        }
    }

    /// Runs a statement; `subject` is what it may have to wait for in the server.
    pub(super) async fn run(
        &self,
        subject: Option<Subject<'_>>,
        plan: &Plan<'_>,
    ) -> Result<Option<Row>, Error> {
        self.try_run(subject, plan).await.map_err(Error::from)
    }

    pub(super) async fn try_run(
        &self,
        subject: Option<Subject<'_>>,
        plan: &Plan<'_>,
    ) -> Result<Option<Row>, Failure> {
        let _permit = match (&self.connections.quotas, subject) {
            (Some(quotas), Some(subject)) => Some(quotas.acquire(subject).await),
            _ => None,
        };
        // A statement that waits for its key's permit does not count as one that uses a connection.
        let _under_way = self.connections.begin();
        let mut tries = 0;
        let seen = self.provision.as_ref().map(Provision::count);
        let mut may_provide = true;
        loop {
            match self.connections.transport.run(plan).await {
                Err(failure)
                    if let (Some(provision), Some(seen), true, Some("42P01")) =
                        (&self.provision, seen, may_provide, failure.state()) =>
                {
                    may_provide = false;
                    provision.make(self, seen).await.map_err(Failure::other)?;
                }
                Err(failure) if failure.is_rolled_back_by_chance() && tries < MAX_RETRIES => {
                    let scatter = random::unit().map_err(Failure::other)?;
                    let longest_ms = f64::from(1u32 << tries.min(6));
                    sleep(Duration::from_secs_f64(longest_ms * scatter / 1000.0)).await;
                    tries += 1;
                }
                answer => return answer,
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
    async fn make(&self, runner: &Runner, seen: usize) -> Result<(), Error> {
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
