//! The backend: runs each operation's plan and gives its outcome.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::blocked::Blocked;
use super::changes;
use super::config::PostgresConfig;
use super::connection::client::ClientStatements;
use super::connection::quota::{self, Subject};
use super::connection::shared::{PostgresConnection, TransportInUse};
use super::group::Groups;
use super::names::{PrimaryKeys, lock_name, told_name};
use super::operations::acquire::{Acquire, Acquisitions};
use super::operations::acquire_all::AcquireAll;
use super::operations::extend::{Extend, Extensions, LockSets};
use super::operations::force_release::ForceRelease;
use super::operations::guard::Checks;
use super::operations::is_locked::IsLocked;
use super::operations::join::Joins;
use super::operations::mark::Mark;
use super::operations::release::{Release, Releases};
use super::operations::tidy::{Tidies, Tidy};
use super::operations::{extend, facts, force_release, is_locked, list, lookup, mark};
use super::readers::{beginning, mark_readers, may_be_shared};
use super::runner::StatementRunner;
use super::schema;
use super::statement::Transport;
use super::tables::Tables;
use super::wakeups::notify::watched_name;
use crate::asking::check::LockCheck;
use crate::asking::inspection::{Facts, LockPage, LockRecord, Lookup, PageRequest};
use crate::asking::limit::Limit;
use crate::asking::outcome::{ExtendOutcome, Outcome};
use crate::asking::request::{AcquireRequest, Extension, Finish, Operation, runs_no_scripts};
use crate::background::backend::{Backend, Capabilities, DEFAULT_OPERATION_TIMEOUT};
use crate::background::work::Work;
use crate::network::client_connections::ClientConnections;
use crate::network::shared::Borrowed;
use crate::network::switches::SwitchListener;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::due::{DoneMark, MarkChange};
use crate::values::key::{Key, split_reader};
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::waiting::wakeups::Watch;

/// How locks are kept, on whichever connections.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Where the locks are.
    pub tables: Tables,
    /// Whether looking for a lock ([`Operation::IsLocked`]) removes a lock that expired more than two seconds ago.
    pub cleanup_in_is_locked: bool,
    /// How long one operation may take.
    pub operation_timeout: Duration,
    /// Whether a release is answered only when it is on the server's disk. If `false`, it does not wait for
    /// the disk, and a crash of the server may bring the lock back until its TTL ends it.
    pub durable_releases: bool,
    /// Whether missing tables are created when an operation needs them.
    pub creates_tables: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            cleanup_in_is_locked: false,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            durable_releases: false,
            creates_tables: false,
        }
    }
}

/// The statements of one backend.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) acquire: Acquire,
    pub(super) acquire_all: AcquireAll,
    pub(super) release: Release,
    pub(super) tidy: Tidy,
    extend: Extend,
    is_locked: IsLocked,
    lookup: lookup::Lookup,
    force_release: ForceRelease,
    mark: Mark,
    pub(super) blocked: Blocked,
    checks: Result<Checks, Error>,
}

impl Operations {
    fn new(options: &PostgresOptions) -> Self {
        let tables = &options.tables;
        Self {
            acquire: Acquire::new(tables),
            acquire_all: AcquireAll::new(tables),
            release: Release::new(tables),
            tidy: Tidy::new(tables),
            extend: Extend::new(tables),
            is_locked: IsLocked::new(tables, options.cleanup_in_is_locked),
            lookup: lookup::Lookup::new(tables),
            force_release: ForceRelease::new(tables),
            mark: Mark::new(tables),
            blocked: Blocked::new(tables),
            checks: Checks::new(tables),
        }
    }
}

/// What operations run on. An operation that is running when the backend is closed keeps it until its end.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) runner: Arc<StatementRunner>,
    pub(super) acquisitions: Arc<Groups<Acquisitions>>,
    pub(super) joins: Arc<Groups<Joins>>,
    pub(super) releases: Arc<Groups<Releases>>,
    pub(super) tidies: Arc<Groups<Tidies>>,
    extensions: Arc<Groups<Extensions<false>>>,
    readers_extensions: Arc<Groups<Extensions<true>>>,
    lookups: Arc<Groups<lookup::Lookups>>,
}

impl Executor {
    /// Extends locks together with others; `None` if these have to be extended alone.
    async fn extend_in_group(&self, extension: &Extension) -> Result<Option<ExtendOutcome>, Error> {
        let asked = || (extension.lock_ids.clone(), extension.ttl);
        let readers = match extension.lock_ids.as_slice() {
            // One that is given back may end sooner, and then its group has to be tidied.
            [lock_id] if !extension.gives_back => beginning(lock_id).map(Subject::Readers),
            _ => None,
        };
        let crowd = &self.readers_extensions;
        let is_in_crowd = readers.is_some_and(|readers| crowd.is_used_up(readers));
        if extension.is_heartbeat && !is_in_crowd {
            // It skips locked rows, so it leaves out readers while others join or leave.
            if let Some(outcome) = self.extensions.join(asked).await? {
                return Ok(Some(outcome));
            }
        }
        match readers {
            Some(readers) => crowd.join_crowd(readers, asked).await,
            None => Ok(None),
        }
    }

    /// Fails if row level security may hide what was not found.
    async fn see_all(&self) -> Result<(), Error> {
        let transport = self.runner.connections.transport.as_ref();
        self.runner.row_security.check(transport).await
    }
}

/// Locks in PostgreSQL.
pub struct PostgresBackend {
    pub(super) executor: Borrowed<Executor>,
    pub(super) operations: Operations,
    pub(super) options: PostgresOptions,
    /// Set once the table of locks has turned out to have no column for labels.
    pub(super) unlabelled: AtomicBool,
    work: Work,
    /// Asks after what is held when another server may keep it.
    _on_switch: Arc<SwitchListener>,
    client: Option<ClientConnections>,
}

impl PostgresBackend {
    /// A backend over connections of its own. Nothing is opened before the first operation.
    ///
    /// # Errors
    /// `InvalidArgument` for settings that cannot work.
    pub fn new(config: PostgresConfig, options: PostgresOptions) -> Result<Self, Error> {
        Self::on(
            &PostgresConnection::new(config, options.operation_timeout)?,
            options,
        )
    }

    /// A backend on connections that other backends may share, also backends on other tables.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(connection: &PostgresConnection, options: PostgresOptions) -> Result<Self, Error> {
        Ok(Self::with(connection.shared()?, options))
    }

    /// A backend that runs its statements on `transport`.
    pub fn with_transport(transport: Arc<dyn Transport>, options: PostgresOptions) -> Self {
        let client = ClientConnections::default();
        let transport = Arc::new(ClientStatements::new(transport, &client));
        Self {
            client: Some(client),
            ..Self::with(Arc::new(TransportInUse::new(transport)), options)
        }
    }

    /// Where to say what a client shows of its connections, of a backend [over](Self::with_transport) one.
    pub fn client_connections(&self) -> Option<&ClientConnections> {
        self.client.as_ref()
    }

    fn with(connections: Arc<TransportInUse>, options: PostgresOptions) -> Self {
        let (tables, limit) = (&options.tables, options.operation_timeout);
        let runner = StatementRunner::new(connections, tables, options.creates_tables);
        let runner = Arc::new(runner);
        let work = Work::default();
        let on_switch: Arc<SwitchListener> = Arc::new(work.asking_after_all());
        let transport = &runner.connections.transport;
        transport.on_switch(Arc::downgrade(&on_switch));
        let groups = || (work.clone(), Arc::clone(&runner), limit);
        let acquisitions = Groups::new(groups(), Acquisitions::new(tables));
        let joins = Groups::new(groups(), Joins::new(tables));
        let releases = Groups::new(groups(), Releases::new(tables, options.durable_releases));
        let tidies = Groups::new(groups(), Tidies::new(tables, options.durable_releases));
        let extensions = Groups::new(groups(), Extensions::new(tables));
        let readers_extensions = Groups::new(groups(), Extensions::new(tables));
        let lookups = Groups::new(groups(), lookup::Lookups::new(tables));
        Self {
            executor: Borrowed::new(Arc::new(Executor {
                runner,
                acquisitions: Arc::new(acquisitions),
                joins: Arc::new(joins),
                releases: Arc::new(releases),
                tidies: Arc::new(tidies),
                extensions: Arc::new(extensions),
                readers_extensions: Arc::new(readers_extensions),
                lookups: Arc::new(lookups),
            })),
            operations: Operations::new(&options),
            options,
            unlabelled: AtomicBool::new(false),
            work,
            _on_switch: on_switch,
            client: None,
        }
    }

    /// Creates the tables and indexes that are missing, and nothing else. May run at any time, in several
    /// processes at once, and on tables that SyncGuard for TypeScript made.
    ///
    /// Needs the right to create tables in their schema, and no rights if nothing is missing. To older tables
    /// it adds the columns for labels and for what is done once if the role owns them; otherwise it goes without.
    /// Nobody who works with the tables is kept waiting: a change waits until no long transaction has them open.
    ///
    /// # Errors
    /// `AuthFailed` when rights are missing, `InvalidArgument` for a table name whose index names
    /// would be too long, `NetworkTimeout` that names the session if one has the tables open for a minute.
    pub async fn setup_schema(&self) -> Result<(), Error> {
        let _running = self.work.start()?;
        let executor = self.executor.get()?;
        let transport = executor.runner.connections.transport.as_ref();
        let set_up = schema::setup(transport, &self.options.tables);
        let labelled = tokio::time::timeout(schema::TIMEOUT, set_up)
            .await
            .map_err(|_| changes::timed_out())??;
        self.unlabelled.store(!labelled, Ordering::Relaxed);
        Ok(())
    }

    async fn mark(&self, key: &Key, change: &MarkChange) -> Result<Option<DoneMark>, Error> {
        let executor = self.executor.get()?;
        let names = PrimaryKeys::new(key)?;
        if *change == MarkChange::Keep {
            return self.read_mark(&executor, &names).await;
        }
        let lock_id = LockId::generate()?;
        let plan = self
            .operations
            .mark
            .plan_change(key, &names, change, &lock_id);
        let row = executor.runner.try_run(&[], &plan).await;
        mark::outcome(row.map_err(mark::to_error)?.as_ref())
    }

    pub(super) async fn read_mark(
        &self,
        executor: &Executor,
        names: &PrimaryKeys,
    ) -> Result<Option<DoneMark>, Error> {
        let plan = self.operations.mark.plan(names);
        let row = executor.runner.try_run(&[], &plan).await;
        mark::outcome(row.map_err(mark::to_error)?.as_ref())
    }

    async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome, Error> {
        let executor = self.executor.get()?;
        let (lock_ids, ttl) = (&extension.lock_ids, extension.ttl);
        let own = || Arc::new(Limit::after(self.options.operation_timeout));
        let limit = extension.limit.clone().unwrap_or_else(own);
        let rows = quota::rows(lock_ids);
        let extending = async {
            if let Some(outcome) = executor.extend_in_group(extension).await? {
                return Ok((outcome, Vec::new()));
            }
            let sets = LockSets::new([(lock_ids.as_slice(), ttl)]);
            let plan = self.operations.extend.plan(&sets);
            let subjects = quota::extended(lock_ids);
            let row = executor.runner.run(&subjects, &plan).await?;
            let outcome = extend::outcome(lock_ids, row.as_ref())?;
            Ok((outcome, extend::shortened_groups(lock_ids, row.as_ref())?))
        };
        let blocked = &self.operations.blocked;
        let (outcome, shortened) = blocked
            .watch_rows(&executor.runner, &rows, &limit, extending)
            .await?;
        self.tidy(&executor, None, &shortened).await;
        Ok(outcome)
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let executor = self.executor.get()?;
        let name = lock_name(key)?;
        let plan = self.operations.is_locked.plan(&name);
        // Without a subject: a statement that only reads waits for no row lock.
        match is_locked::outcome(executor.runner.run(&[], &plan).await?.as_ref())? {
            Some(is_locked) => Ok(is_locked),
            None => executor.see_all().await.map(|()| false),
        }
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error> {
        let executor = self.executor.get()?;
        let reader = match lookup {
            // Its key says no more than its lock id.
            Lookup::Key(key) => key.reader_id().map(Lookup::LockId),
            Lookup::LockId(_) => None,
        };
        let (row, lock_id) = match reader.as_ref().unwrap_or(lookup) {
            Lookup::Key(key) => {
                let name = lock_name(key)?;
                let plan = self.operations.lookup.plan_by_key(&name);
                (executor.runner.run(&[], &plan).await?, None)
            }
            Lookup::LockId(lock_id) => {
                if !may_be_shared(lock_id)
                    && let Some(found) = executor.lookups.join(|| lock_id.clone()).await?
                {
                    return Ok(found);
                }
                let plan = self.operations.lookup.plan_by_lock_id(lock_id);
                (executor.runner.run(&[], &plan).await?, Some(lock_id))
            }
        };
        match row {
            // The row says nothing but that there is row level security.
            Some(row) if row.first() == Some(&None) => executor.see_all().await.map(|()| None),
            row => lookup::outcome(row.as_ref(), lock_id),
        }
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let executor = self.executor.get()?;
        let name = lock_name(key)?;
        let plan = self.operations.force_release.plan(&name);
        let rows = [Subject::Row(&name)];
        let running = executor.runner.run(&rows, &plan);
        let row = self.on_rows(&executor, &rows, running).await?;
        if let Some((of_all, _)) = split_reader(&name) {
            self.tidy(&executor, None, &[of_all.to_owned()]).await;
        }
        force_release::outcome(row.as_ref())
    }

    async fn list(&self, page: &PageRequest) -> Result<LockPage, Error> {
        let executor = self.executor.get()?;
        let statement = list::statement(&self.options.tables);
        let plan = list::plan(&statement, page)?;
        let row = executor.runner.run(&[], &plan).await?;
        let found = list::outcome(row.as_ref(), page.limit)?;
        if found.locks.is_empty() {
            executor.see_all().await?;
        }
        Ok(found)
    }

    async fn facts(&self) -> Result<Vec<Facts>, Error> {
        let executor = self.executor.get()?;
        let transport = executor.runner.connections.transport.as_ref();
        Ok(vec![facts::facts(transport, &self.options.tables).await?])
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("executor", &self.executor)
            .field("options", &self.options)
            .finish_non_exhaustive()
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

    fn prepare(&self, request: &mut AcquireRequest) {
        mark_readers(&mut request.claims);
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(request).await?),
            Operation::Release(release) => Outcome::Release(match release.finish() {
                None => self.release(&release.lock_ids).await?,
                Some((lock_id, done)) => Batch::from([self.finish(lock_id, done).await?]),
            }),
            Operation::Extend(extension) => Outcome::Extend(self.extend(extension).await?),
            Operation::IsLocked(key) => Outcome::IsLocked(self.is_locked(key).await?),
            Operation::Lookup(lookup) => Outcome::Lookup(self.lookup(lookup).await?),
            Operation::ForceRelease(key) => Outcome::ForceRelease(self.force_release(key).await?),
            Operation::List(page) => Outcome::List(self.list(page).await?),
            Operation::Eval(_) => return Err(runs_no_scripts()),
            Operation::Mark { key, change } => Outcome::Mark(self.mark(key, change).await?),
            Operation::Facts => Outcome::Facts(self.facts().await?),
        })
    }

    fn check(&self, lock_ids: &[LockId], done: Option<&Finish>) -> Result<LockCheck, Error> {
        let checks = self.operations.checks.as_ref();
        checks.map_err(Error::clone)?.of(lock_ids, done)
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let executor = self.executor.get().ok()?;
        let wakeups = executor.runner.connections.wakeups.as_ref()?;
        let name = watched_name(&self.options.tables, &told_name(&claim.key).ok()?);
        Some(wakeups.watch(&name))
    }

    async fn shut_down(&self) {
        self.executor.end();
    }
}
