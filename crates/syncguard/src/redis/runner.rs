//! What the operations of a backend run on: its settings, and the transport to where its scripts run.

use std::sync::Arc;
use std::time::Duration;

use super::config::RedisLocks;
use super::known::KnownLocks;
use super::names::Names;
use super::operations::{holder, locate};
use super::plan::Plan;
use super::replication::Replication;
use super::reply::{Reply, is_elsewhere};
use super::transport::Transport;
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::race::Race;
use crate::shared::Lease;

/// How often a lock may change hands during one operation.
pub(super) const TRIES: usize = 16;

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
