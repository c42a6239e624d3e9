//! Which script carries out which operation.

use std::time::Duration;

use super::config::RedisLocks;
use super::known::KnownLocks;
use super::names::Names;
use super::plan::Plan;
use super::replication::Replication;
use super::reply::{Reply, is_elsewhere};
use super::{
    acquire, extend, force_release, is_locked, lookup_key, lookup_lock_id, record, release,
};
use crate::backend::{AcquireOutcome, AcquireRequest, Lookup, Operation, Outcome, ReleaseOutcome};
use crate::error::Error;
use crate::lock_id::LockId;

/// The scripts' part of a backend's settings.
pub(super) struct Scripts {
    pub(super) names: Names,
    pub(super) cleanup_in_is_locked: bool,
    replication: Option<Replication>,
    fence_ttl: Option<Duration>,
    /// Used in a cluster only.
    pub(super) known: KnownLocks,
}

impl Scripts {
    pub(super) fn new(names: Names, locks: &RedisLocks) -> Self {
        Self {
            names,
            cleanup_in_is_locked: locks.cleanup_in_is_locked,
            replication: Replication::of(locks),
            fence_ttl: locks.fence_ttl,
            known: KnownLocks::default(),
        }
    }

    /// What to send; `None` when that takes more than one script.
    pub(super) fn plan(&self, operation: &Operation) -> Result<Option<Plan>, Error> {
        let names = &self.names;
        let plan = match operation {
            Operation::Acquire(request) => self.acquire(request),
            Operation::IsLocked(_) if self.cleanup_in_is_locked && names.is_in_cluster() => {
                return Ok(None);
            }
            Operation::IsLocked(key) => {
                is_locked::plan(names, key, self.cleanup_in_is_locked, None)
            }
            Operation::Lookup(Lookup::Key(key)) => lookup_key::plan(names, key),
            Operation::ForceRelease(_) if names.is_in_cluster() => return Ok(None),
            Operation::ForceRelease(key) => force_release::plan(names, key, None),
            Operation::Release(lock_id)
            | Operation::Extend(lock_id, _)
            | Operation::Lookup(Lookup::LockId(lock_id)) => {
                let lock_key = match names.is_in_cluster() {
                    true => match self.known.get(lock_id) {
                        None => return Ok(None),
                        known => known,
                    },
                    false => None,
                };
                let lock_key = lock_key.as_deref();
                match operation {
                    Operation::Release(_) => release::plan(names, lock_id, lock_key),
                    Operation::Extend(_, ttl) => extend::plan(names, lock_id, lock_key, *ttl),
                    _ => lookup_lock_id::plan(names, lock_id, lock_key),
                }
            }
        };
        plan.map(Some)
    }

    /// The plan of an acquisition. From now on it is known which lock the lock id owns if it owns one.
    pub(super) fn acquire(&self, request: &AcquireRequest) -> Result<Plan, Error> {
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

    /// What the reply means.
    pub(super) fn outcome(&self, operation: &Operation, reply: &Reply) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquired(request, reply)?),
            Operation::Release(lock_id) => Outcome::Release(self.released(lock_id, reply)?),
            Operation::Extend(..) => Outcome::Extend(extend::outcome(reply)?),
            Operation::IsLocked(_) => Outcome::IsLocked(is_locked::outcome(reply)?),
            Operation::Lookup(_) => Outcome::Lookup(record::outcome(reply)?),
            Operation::ForceRelease(_) => Outcome::ForceRelease(force_release::outcome(reply)?),
        })
    }

    pub(super) fn acquired(
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

    pub(super) fn released(
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
