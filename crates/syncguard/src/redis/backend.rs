//! The backend, and what its operations run on: its settings, and the transport to where its scripts run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::callers::CallersScripts;
use super::config::{RedisConfig, RedisLocks};
use super::declaring::{Declaring, in_our_words};
use super::known::KnownLocks;
use super::names::{ClientPrefix, Names};
use super::operations::{holder, locate};
use super::plan::Plan;
use super::replication::Replication;
use super::reply::{Reply, is_elsewhere, misplaced};
use super::transport::client::ClientScripts;
use super::transport::shared::RedisConnection;
use super::transport::{self, Transport};
use crate::asking::outcome::Outcome;
use crate::asking::request::{AcquireRequest, Operation};
use crate::background::backend::{Backend, Capabilities};
use crate::background::work::Work;
use crate::network::client_connections::ClientConnections;
use crate::network::event_loop::Lane;
use crate::network::shared::Borrowed;
use crate::network::switches::SwitchListener;
use crate::race::Race;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::waiting::wakeups::Watch;

/// How often a lock may change hands during one operation.
pub(super) const TRIES: usize = 16;

/// Locks in a Redis server.
pub struct RedisBackend {
    runner: Runner,
    work: Work,
    /// Asks after what is held when another server has become the primary, or may have.
    _on_switch: Arc<SwitchListener>,
    client: Option<ClientConnections>,
}

impl RedisBackend {
    /// A backend with a connection of its own. It connects at the first operation, and again when the
    /// connection is lost.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting.
    pub fn new(config: RedisConfig) -> Result<Self, Error> {
        let names = config.validate()?;
        Ok(Self::with(
            transport::shared::to(&config, None)?,
            names,
            &config.locks,
        ))
    }

    /// A backend on a connection that other backends may share.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(connection: &RedisConnection, locks: &RedisLocks) -> Result<Self, Error> {
        let transport = connection.transport()?;
        let names = locks.validate(connection.client_prefix(), transport.is_cluster())?;
        Ok(Self::with(transport, names, locks))
    }

    /// A backend over any transport, such as the caller's own client.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
        transport: Arc<dyn Transport>,
        client_prefix: ClientPrefix,
        locks: &RedisLocks,
    ) -> Result<Self, Error> {
        if locks.replicas > 0 && !transport.waits_for_replicas() {
            return Err(Error::invalid(
                "replicas needs a connection of its own: it cannot be asked for through a client, whose other \
                 calls would wait as well",
            ));
        }
        let names = locks.validate(client_prefix, transport.is_cluster())?;
        let client = ClientConnections::default();
        let transport = ClientScripts::new(transport, &client);
        Ok(Self {
            client: Some(client),
            ..Self::with(Arc::new(transport), names, locks)
        })
    }

    /// Where to say what a client shows of its connections, of a backend [`over`](Self::over) one.
    pub fn client_connections(&self) -> Option<&ClientConnections> {
        self.client.as_ref()
    }

    fn with(transport: Arc<dyn Transport>, names: Names, locks: &RedisLocks) -> Self {
        let work = Work::default();
        let on_switch: Arc<SwitchListener> = Arc::new(work.asking_after_all());
        transport.on_switch(Arc::downgrade(&on_switch));
        Self {
            runner: Runner::new(transport, names, locks),
            work,
            _on_switch: on_switch,
            client: None,
        }
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("transport", &self.runner.transport)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "redis",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn operation_timeout(&self) -> Duration {
        self.runner.operation_timeout
    }

    fn trouble(&self) -> Option<Error> {
        self.runner.transport.get().ok()?.trouble()
    }

    fn heartbeats_at_once(&self) -> usize {
        // They share packets, so that many take hardly more round trips than one.
        1024
    }

    fn lane(&self) -> Option<Lane> {
        // What waits for replicas has connections of its own.
        match self.runner.replication.is_some() {
            true => None,
            false => self.runner.transport.get().ok()?.lane(),
        }
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let channel = self.runner.names.channel(claim).ok()?;
        self.runner.transport.get().ok()?.watch(&channel)
    }

    fn prepare(&self, request: &mut AcquireRequest) {
        // A key that has no name is refused later.
        for claim in &mut request.claims {
            if let Ok(Some(shard)) = self.runner.names.claimed_shard(claim) {
                claim.lock_id = claim.lock_id.clone().with_first_byte(shard);
            }
        }
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        let runner = &self.runner;
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(runner.acquire(request).await?),
            Operation::Release(release) => Outcome::Release(match release.finish() {
                None => runner.release(&release.lock_ids).await?,
                Some((lock_id, done)) => Batch::from([runner.finish(lock_id, done).await?]),
            }),
            Operation::Extend(extension) => {
                Outcome::Extend(Box::pin(runner.extend(extension)).await?)
            }
            Operation::IsLocked(key) => Outcome::IsLocked(runner.is_locked(key).await?),
            Operation::Lookup(lookup) => Outcome::Lookup(runner.lookup(lookup).await?),
            Operation::ForceRelease(key) => Outcome::ForceRelease(runner.force_release(key).await?),
            Operation::List(page) => Outcome::List(runner.list(page).await?),
            Operation::Eval(eval) => Outcome::Eval(runner.eval(eval).await?),
            Operation::Mark { key, change } => Outcome::Mark(runner.mark(key, change).await?),
            Operation::Facts => Outcome::Facts(runner.facts().await?),
        })
    }

    async fn shut_down(&self) {
        self.runner.transport.end();
    }
}

/// Runs scripts.
///
/// In a cluster, and on a server that is [strict](Declaring), a script may touch only the keys that it is given. So some operations
/// take two there, unless the lock is known. The first one finds out the other key of the lock. The second one does the work, if
/// both keys still belong together; if not, somebody else has had the lock in between, and all begins again. Elsewhere there
/// is one script, which finds the other key itself.
pub(super) struct Runner {
    pub(super) names: Names,
    pub(super) cleanup_in_is_locked: bool,
    /// What acquisitions and extensions wait for.
    pub(super) replication: Option<Replication>,
    pub(super) fence_ttl: Option<Duration>,
    pub(super) operation_timeout: Duration,
    pub(super) known: KnownLocks,
    pub(super) declaring: Declaring,
    /// See [`Transport::has_fixed_calls`].
    has_fixed_calls: bool,
    pub(super) scripts: CallersScripts,
    pub(super) transport: Borrowed<dyn Transport>,
}

/// What a lock id of a batch owns.
pub(super) struct OwnedLock<'a> {
    pub(super) place: usize,
    pub(super) lock_id: &'a LockId,
    /// The name of the lock, if all of the batch are known, and where a script must be told.
    pub(super) lock_key: Option<Arc<str>>,
}

impl Runner {
    pub(super) fn new(transport: Arc<dyn Transport>, names: Names, locks: &RedisLocks) -> Self {
        Self {
            names,
            cleanup_in_is_locked: locks.cleanup_in_is_locked,
            replication: Replication::of(locks),
            fence_ttl: locks.fence_ttl,
            operation_timeout: locks.operation_timeout,
            known: KnownLocks::default(),
            declaring: Declaring::default(),
            has_fixed_calls: transport.has_fixed_calls(),
            scripts: CallersScripts::default(),
            transport: Borrowed::new(transport),
        }
    }

    pub(super) async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let (tag, is_callers) = (plan.tag().cloned(), plan.is_callers());
        let reply = self.transport.get()?.run(plan).await;
        let reply = reply.map_err(|error| match is_callers {
            true => error,
            false => in_our_words(error),
        })?;
        match tag.is_none_or(|tag| tag.may_be_of(&reply)) {
            true => Ok(reply),
            false => Err(misplaced()),
        }
    }

    /// How long a fence counter stays, if not for ever.
    pub(super) fn fence_ttl_ms(&self) -> Option<i64> {
        let ttl = self.fence_ttl?;
        Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
    }

    /// What a lock id owned is no longer known: it owns nothing any more.
    pub(super) fn forget(&self, lock_id: &LockId) {
        self.known.forget(lock_id);
    }

    /// Whether scripts may touch only the keys that they are given.
    pub(super) fn is_strict(&self) -> bool {
        self.names.is_in_cluster() || self.declaring.is_strict()
    }

    /// Whether calls declare what is known of the lock.
    pub(super) fn declares_known(&self) -> bool {
        !self.has_fixed_calls || self.is_strict()
    }

    /// The name of the lock that `lock_id` owns, if it is known and is to be declared.
    fn known_lock(&self, lock_id: &LockId) -> Option<Arc<str>> {
        self.declares_known().then(|| self.known.get(lock_id))?
    }

    /// Runs the script that `plan` gives for the name of the lock that `lock_id` owns. `None`: it owns none.
    pub(super) async fn by_lock_id(
        &self,
        lock_id: &LockId,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        for _ in 0..TRIES {
            let is_strict = self.is_strict();
            let mut lock_key = self.known_lock(lock_id);
            if lock_key.is_none() && is_strict {
                lock_key = Box::pin(self.located(lock_id)).await?;
                if lock_key.is_none() {
                    return Ok(None);
                }
            }
            match self.run(plan(lock_key.as_deref())?).await {
                Ok(reply) if is_elsewhere(&reply) => self.forget(lock_id),
                Err(error) if self.declaring.learns_from(is_strict, &error) => {}
                reply => return reply.map(Some),
            }
        }
        Err(keeps_moving())
    }

    /// The name of the lock that `lock_id` owns, if it owns one, from the server.
    async fn located(&self, lock_id: &LockId) -> Result<Option<Arc<str>>, Error> {
        let reply = self.run(locate::plan(&self.names, lock_id)?).await?;
        let Some(lock_key) = locate::outcome(&self.names, lock_id, reply)? else {
            return Ok(None);
        };
        self.known.learn(lock_id, &lock_key);
        Ok(Some(lock_key.into()))
    }

    /// What these lock ids own, as far as that must be known before a script can be sent for it: if the server `is_strict`, those
    /// that own nothing are left out. Each comes with its place in the batch.
    pub(super) async fn owned<'a>(
        &self,
        lock_ids: Vec<(usize, &'a LockId)>,
        is_strict: bool,
    ) -> Result<Vec<OwnedLock<'a>>, Error> {
        let mut all = Vec::with_capacity(lock_ids.len());
        let mut race = Race::new();
        for (place, lock_id) in lock_ids {
            let lock_key = self.known_lock(lock_id);
            if is_strict && lock_key.is_none() {
                race.start(async move { (place, lock_id, self.located(lock_id).await) });
                continue;
            }
            all.push(OwnedLock {
                place,
                lock_id,
                lock_key,
            });
        }
        while let Some((place, lock_id, located)) = race.next().await {
            let lock_key = located?;
            if lock_key.is_some() {
                all.push(OwnedLock {
                    place,
                    lock_id,
                    lock_key,
                });
            }
        }
        if all.iter().any(|owned| owned.lock_key.is_none()) {
            // Scripts are told of all or of none.
            all.iter_mut().for_each(|owned| owned.lock_key = None);
        }
        all.sort_by_key(|owned| owned.place);
        Ok(all)
    }

    /// Runs the script that `plan` gives for the lock id of the lock on `key`. `None`: there is no lock.
    pub(super) async fn by_key(
        &self,
        key: &Key,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        let (names, is_strict) = (&self.names, self.is_strict());
        if !is_strict {
            match self.run(plan(None)?).await {
                Err(error) if self.declaring.learns_from(is_strict, &error) => {}
                reply => return reply.map(Some),
            }
        }
        for _ in 0..TRIES {
            let Some(holder) = holder::outcome(self.run(holder::plan(names, key)?).await?)? else {
                return Ok(None);
            };
            let reply = self.run(plan(Some(&holder))?).await?;
            if !is_elsewhere(&reply) {
                return Ok(Some(reply));
            }
        }
        Err(keeps_moving())
    }
}

/// Adds the keys of what lock ids own.
pub(super) fn owned_keys(
    mut plan: Plan,
    names: &Names,
    locks: &[OwnedLock<'_>],
) -> Result<Plan, Error> {
    for lock in locks {
        plan = plan
            .key(names, &names.index_key(lock.lock_id)?)
            .keys_of(names, lock.lock_key.as_deref());
    }
    for lock in locks {
        plan = plan.group_of(names, lock.lock_key.as_deref());
    }
    Ok(plan)
}

/// Adds how many they are, and what scripts are to know of each.
pub(super) fn owned_args(
    plan: Plan,
    names: &Names,
    locks: &[OwnedLock<'_>],
) -> Result<Plan, Error> {
    let mut plan = plan.arg(&locks.len().to_string());
    for lock in locks {
        plan = plan
            .arg(lock.lock_id.as_str())
            .bare(names, &names.index_key(lock.lock_id)?);
    }
    Ok(plan)
}

pub(super) fn keeps_moving() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        format!("the lock changed hands {TRIES} times while it was looked for"),
    )
}
