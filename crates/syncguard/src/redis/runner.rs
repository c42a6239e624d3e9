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
use crate::shared::Lease;

/// How often a lock may change hands during one operation.
const TRIES: usize = 16;

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
        let (names, known) = (&self.names, &self.known);
        if !names.is_in_cluster() {
            return self.run(plan(None)?).await.map(Some);
        }
        for _ in 0..TRIES {
            let lock_key = match known.get(lock_id) {
                Some(lock_key) => lock_key,
                None => {
                    let reply = self.run(locate::plan(names, lock_id)?).await?;
                    let Some(lock_key) = locate::outcome(names, lock_id, reply)? else {
                        return Ok(None);
                    };
                    known.learn(lock_id, &lock_key);
                    lock_key.into()
                }
            };
            let reply = self.run(plan(Some(&lock_key))?).await?;
            if !is_elsewhere(&reply) {
                return Ok(Some(reply));
            }
            known.forget(lock_id);
        }
        Err(keeps_moving())
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

fn keeps_moving() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        format!("the lock changed hands {TRIES} times while it was looked for"),
    )
}
