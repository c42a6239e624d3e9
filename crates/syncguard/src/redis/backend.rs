//! The backend, and what its operations run on: its settings, and the transport to where its scripts run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::callers::CallersScripts;
use super::config::{RedisConfig, RedisLocks};
use super::known::KnownLocks;
use super::names::{ClientPrefix, Names};
use super::operations::{holder, locate};
use super::plan::Plan;
use super::replication::Replication;
use super::reply::{Reply, is_elsewhere};
use super::transport::shared::RedisConnection;
use super::transport::{self, Transport};
use crate::backend::{Backend, Capabilities};
use crate::batch::Batch;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::event_loop::Lane;
use crate::key::Key;
use crate::lock_id::LockId;
use crate::outcome::Outcome;
use crate::race::Race;
use crate::request::{AcquireRequest, Operation};
use crate::shared::Lease;
use crate::time::TimeAuthority;
use crate::waiting::wakeups::Watch;
use crate::work::Work;

/// How often a lock may change hands during one operation.
pub(super) const TRIES: usize = 16;

/// Locks in a Redis server.
pub struct RedisBackend {
    runner: Runner,
    work: Work,
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
        Ok(Self::with(transport, names, locks))
    }

    fn with(transport: Arc<dyn Transport>, names: Names, locks: &RedisLocks) -> Self {
        Self {
            runner: Runner::new(transport, names, locks),
            work: Work::default(),
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
        // Acquisitions that wait for replicas have a connection of their own.
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
/// A script may touch only the keys that it is given, so in a cluster some operations take two. The first one finds out
/// the other key of the lock. The second one does the work, if both keys still belong together; if not, somebody else has
/// had the lock in between, and all begins again. On a standalone server there is one script, which finds the other key
/// itself.
pub(super) struct Runner {
    pub(super) names: Names,
    pub(super) cleanup_in_is_locked: bool,
    /// What acquisitions wait for.
    pub(super) replication: Option<Replication>,
    pub(super) fence_ttl: Option<Duration>,
    pub(super) operation_timeout: Duration,
    /// Used in a cluster only.
    pub(super) known: KnownLocks,
    pub(super) scripts: CallersScripts,
    pub(super) transport: Lease<dyn Transport>,
}

/// What a lock id of a batch owns.
pub(super) struct OwnedLock<'a> {
    pub(super) place: usize,
    pub(super) lock_id: &'a LockId,
    /// The name of the lock, where a script must be told: in a cluster.
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
            scripts: CallersScripts::default(),
            transport: Lease::new(transport),
        }
    }

    pub(super) async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        self.transport.get()?.run(plan).await
    }

    /// How long a fence counter stays, if not for ever.
    pub(super) fn fence_ttl_ms(&self) -> Option<i64> {
        let ttl = self.fence_ttl?;
        Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
    }

    /// What a lock id owned is no longer known: it owns nothing any more.
    pub(super) fn forget(&self, lock_id: &LockId) {
        if self.names.is_in_cluster() {
            self.known.forget(lock_id);
        }
    }

    /// Runs the script that `plan` gives for the name of the lock that `lock_id` owns. `None`: it owns none.
    pub(super) async fn by_lock_id(
        &self,
        lock_id: &LockId,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        if !self.names.is_in_cluster() {
            return self.run(plan(None)?).await.map(Some);
        }
        for _ in 0..TRIES {
            let Some(lock_key) = Box::pin(self.located(lock_id)).await? else {
                return Ok(None);
            };
            let reply = self.run(plan(Some(&lock_key))?).await?;
            if !is_elsewhere(&reply) {
                return Ok(Some(reply));
            }
            self.forget(lock_id);
        }
        Err(keeps_moving())
    }

    /// In a cluster, the name of the lock that `lock_id` owns, if it owns one.
    async fn located(&self, lock_id: &LockId) -> Result<Option<Arc<str>>, Error> {
        if let Some(lock_key) = self.known.get(lock_id) {
            return Ok(Some(lock_key));
        }
        let reply = self.run(locate::plan(&self.names, lock_id)?).await?;
        let Some(lock_key) = locate::outcome(&self.names, lock_id, reply)? else {
            return Ok(None);
        };
        self.known.learn(lock_id, &lock_key);
        Ok(Some(lock_key.into()))
    }

    /// What these lock ids own, as far as that must be known before a script can be sent for it: in a cluster, those that own
    /// nothing are left out. Each comes with its place in the batch.
    pub(super) async fn owned<'a>(
        &self,
        lock_ids: Vec<(usize, &'a LockId)>,
    ) -> Result<Vec<OwnedLock<'a>>, Error> {
        let mut all = Vec::with_capacity(lock_ids.len());
        let mut race = Race::new();
        for (place, lock_id) in lock_ids {
            let lock_key = self.known.get(lock_id);
            if self.names.is_in_cluster() && lock_key.is_none() {
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
        all.sort_by_key(|owned| owned.place);
        Ok(all)
    }

    /// Runs the script that `plan` gives for the lock id of the lock on `key`. `None`: there is no lock.
    pub(super) async fn by_key(
        &self,
        key: &Key,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        let names = &self.names;
        if !names.is_in_cluster() {
            return self.run(plan(None)?).await.map(Some);
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
