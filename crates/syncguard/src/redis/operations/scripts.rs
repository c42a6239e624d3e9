//! Which script carries out which operation.

use std::time::Duration;

use super::known::KnownLocks;
use super::{acquire, release};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::outcome::{AcquireOutcome, ReleaseOutcome};
use crate::redis::config::RedisLocks;
use crate::redis::names::Names;
use crate::redis::plan::Plan;
use crate::redis::replication::Replication;
use crate::redis::reply::{Reply, is_elsewhere};
use crate::request::AcquireRequest;

/// The scripts' part of a backend's settings.
pub(in crate::redis) struct Scripts {
    pub(in crate::redis) names: Names,
    pub(super) cleanup_in_is_locked: bool,
    replication: Option<Replication>,
    fence_ttl: Option<Duration>,
    /// Used in a cluster only.
    pub(super) known: KnownLocks,
}

impl Scripts {
    pub(in crate::redis) fn new(names: Names, locks: &RedisLocks) -> Self {
        Self {
            names,
            cleanup_in_is_locked: locks.cleanup_in_is_locked,
            replication: Replication::of(locks),
            fence_ttl: locks.fence_ttl,
            known: KnownLocks::default(),
        }
    }

    /// Whether acquisitions wait for replicas.
    pub(in crate::redis) fn waits_for_replicas(&self) -> bool {
        self.replication.is_some()
    }

    /// The plan of an acquisition. From now on it is known which lock the lock id owns if it owns one.
    pub(in crate::redis) fn acquire(&self, request: &AcquireRequest) -> Result<Plan, Error> {
        let mut plan = acquire::plan(&self.names, request)?.replicated(self.replication);
        if let Some(ttl) = self.fence_ttl {
            plan = plan.number(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        }
        if self.names.is_in_cluster()
            && let Some(lock_key) = acquire::lock_key(&plan)
        {
            self.known.learn(&request.lock_id, lock_key);
        }
        Ok(plan)
    }

    /// Whether the script has done nothing, because the lock is another than the one that it was told.
    pub(super) fn is_elsewhere(&self, reply: &Reply) -> bool {
        self.names.is_in_cluster() && is_elsewhere(reply)
    }

    pub(in crate::redis) fn acquired(
        &self,
        request: &AcquireRequest,
        reply: &Reply,
    ) -> Result<AcquireOutcome, Error> {
        let outcome = acquire::outcome(request, reply)?;
        if outcome.is_locked() {
            self.forget(&request.lock_id);
        }
        Ok(outcome)
    }

    pub(in crate::redis) fn released(
        &self,
        lock_id: &LockId,
        reply: &Reply,
    ) -> Result<ReleaseOutcome, Error> {
        let outcome = release::outcome(reply)?;
        self.forget(lock_id);
        Ok(outcome)
    }

    fn forget(&self, lock_id: &LockId) {
        if self.names.is_in_cluster() {
            self.known.forget(lock_id);
        }
    }
}
