//! The backend: calls in, outcomes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::acquire::{Acquisitions, Asked};
use super::config::PostgresConfig;
use super::group::Groups;
use super::names::{Names, lock_name};
use super::pool::Pool;
use super::release::Releases;
use super::runner::Runner;
use super::statement::{Statements, Transport};
use super::tables::Tables;
use super::{acquire, extend, force_release, is_locked, lookup, owner, release, schema};
use crate::backend::{
    AcquireOutcome, AcquireRequest, Backend, Capabilities, DEFAULT_OPERATION_TIMEOUT,
    ExtendOutcome, LockRecord, Lookup, ReleaseOutcome, TimeAuthority, Ttl,
};
use crate::error::Error;
use crate::key::Key;
use crate::lock_id::LockId;
use crate::work::Work;

/// What the locks are like, whoever talks to the server.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Where the locks are.
    pub tables: Tables,
    /// Whether [`Backend::is_locked`] removes a lock that expired more than two seconds ago.
    pub cleanup_in_is_locked: bool,
    /// How long one operation may take.
    pub operation_timeout: Duration,
    /// Whether a release is answered only when it is on the server's disk. Without, it does not wait
    /// for that, and a crash of the server may bring the lock back until its TTL ends it.
    pub durable_releases: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            cleanup_in_is_locked: false,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            durable_releases: false,
        }
    }
}

/// Locks in PostgreSQL.
#[derive(Debug)]
pub struct PostgresBackend {
    runner: Arc<Runner>,
    acquisitions: Arc<Groups<Acquisitions>>,
    releases: Arc<Groups<Releases>>,
    options: PostgresOptions,
    /// Set when the table of locks turned out to have no column for labels.
    unlabelled: AtomicBool,
    work: Work,
}

impl PostgresBackend {
    /// A backend over connections of its own. Nothing is opened before the first operation.
    ///
    /// # Errors
    /// `InvalidArgument` for settings that cannot work.
    pub fn new(config: PostgresConfig, options: PostgresOptions) -> Result<Self, Error> {
        let pool = Pool::new(config, options.operation_timeout)?;
        Ok(Self::with_transport(Arc::new(pool), options))
    }

    /// A backend that runs its statements on `transport`.
    pub fn with_transport(transport: Arc<dyn Transport>, options: PostgresOptions) -> Self {
        let runner = Arc::new(Runner::new(transport, Statements::new(&options.tables)));
        let limit = options.operation_timeout;
        let releases = Releases {
            durable: options.durable_releases,
        };
        Self {
            acquisitions: Arc::new(Groups::new(Arc::clone(&runner), Acquisitions, limit)),
            releases: Arc::new(Groups::new(Arc::clone(&runner), releases, limit)),
            runner,
            options,
            unlabelled: AtomicBool::new(false),
            work: Work::default(),
        }
    }

    /// Makes what is missing of the tables and indexes, and nothing else. May run at any time, in
    /// several processes at once, and on tables that SyncGuard for TypeScript made.
    ///
    /// Needs the right to create tables in the schema where they go, and none when all is there. The
    /// column for labels is added if the tables' owner asks, and left out otherwise.
    ///
    /// # Errors
    /// `AuthFailed` when rights are missing, `InvalidArgument` for a table name whose index names
    /// would be too long.
    pub async fn setup_schema(&self) -> Result<(), Error> {
        let set_up = schema::setup(
            self.runner.transport.as_ref(),
            &self.runner.statements,
            &self.options.tables,
        );
        let labelled = tokio::time::timeout(schema::TIMEOUT, set_up)
            .await
            .map_err(|_| schema::timed_out())??;
        self.unlabelled.store(!labelled, Ordering::Relaxed);
        Ok(())
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "postgres",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn operation_timeout(&self) -> Duration {
        self.options.operation_timeout
    }

    fn is_saturated(&self) -> bool {
        self.runner.is_saturated()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let names = Names::new(&request.key)?;
        if let Some(owner) = &request.owner
            && !self.unlabelled.load(Ordering::Relaxed)
        {
            let label = owner::stored(&request.lock_id, owner);
            let call = acquire::call(&self.runner.statements, request, &names, Some(&label));
            match self.runner.try_run(&call).await {
                // The table is older than labels. The lock matters more than its label.
                Err(failure) if failure.state() == Some("42703") => {
                    self.unlabelled.store(true, Ordering::Relaxed);
                }
                answer => return acquire::outcome(request, answer?.as_ref()),
            }
        }
        let asked = || Asked::new(request, &names);
        if let Some(outcome) = self.acquisitions.join(asked).await? {
            return Ok(outcome);
        }
        let call = acquire::call(&self.runner.statements, request, &names, None);
        acquire::outcome(request, self.runner.run(&call).await?.as_ref())
    }

    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        if let Some(outcome) = self.releases.join(|| lock_id.clone()).await? {
            return Ok(outcome);
        }
        let durable = self.options.durable_releases;
        let call = release::call(&self.runner.statements, lock_id, durable);
        release::outcome(lock_id, self.runner.run(&call).await?.as_ref())
    }

    async fn extend(&self, lock_id: &LockId, ttl: Ttl) -> Result<ExtendOutcome, Error> {
        let call = extend::call(&self.runner.statements, lock_id, ttl);
        extend::outcome(lock_id, self.runner.run(&call).await?.as_ref())
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let name = lock_name(key)?;
        let call = is_locked::call(
            &self.runner.statements,
            &name,
            self.options.cleanup_in_is_locked,
        );
        is_locked::outcome(self.runner.run(&call).await?.as_ref())
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error> {
        match lookup {
            Lookup::Key(key) => {
                let name = lock_name(key)?;
                let call = lookup::by_key(&self.runner.statements, &name);
                lookup::outcome(self.runner.run(&call).await?.as_ref(), None)
            }
            Lookup::LockId(lock_id) => {
                let call = lookup::by_lock_id(&self.runner.statements, lock_id);
                lookup::outcome(self.runner.run(&call).await?.as_ref(), Some(lock_id))
            }
        }
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let name = lock_name(key)?;
        let call = force_release::call(&self.runner.statements, &name);
        force_release::outcome(self.runner.run(&call).await?.as_ref())
    }

    async fn shut_down(&self) {
        self.runner.transport.close().await;
    }
}
