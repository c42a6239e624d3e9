//! Operations that take more than one script in a cluster, because a script may touch only the keys that it is given.
//!
//! The first script finds out the other key of the lock. The second one does the work, if both keys still belong
//! together; if not, somebody else has had the lock in between, and all begins again. On a standalone server there is
//! one script, which finds the other key itself.

use super::{
    extend, force_release, holder, is_locked, locate, lookup_key, lookup_lock_id, record, release,
};
use crate::error::{Error, ErrorKind};
use crate::inspection::{LockRecord, Lookup};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::outcome::{Absence, AcquireOutcome, ExtendOutcome, ReleaseOutcome};
use crate::redis::plan::Plan;
use crate::redis::reply::Reply;
use crate::redis::runner::Runner;
use crate::request::{AcquireRequest, Extension};

/// How often a lock may change hands during one operation.
const TRIES: usize = 16;

impl Runner {
    pub(in crate::redis) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let plan = self.scripts.acquire(request)?;
        self.scripts.acquired(request, &self.run(plan).await?)
    }

    pub(in crate::redis) async fn release(
        &self,
        lock_id: &LockId,
    ) -> Result<ReleaseOutcome, Error> {
        let plan = |lock: Option<&str>| release::plan(&self.scripts.names, lock_id, lock);
        match self.by_lock_id(lock_id, plan).await? {
            Some(reply) => self.scripts.released(lock_id, &reply),
            None => Ok(ReleaseOutcome::Absent(Absence::NotFound)),
        }
    }

    pub(in crate::redis) async fn extend(
        &self,
        extension: &Extension,
    ) -> Result<ExtendOutcome, Error> {
        let (lock_id, ttl) = (&extension.lock_id, extension.ttl);
        let plan = |lock: Option<&str>| extend::plan(&self.scripts.names, lock_id, lock, ttl);
        match self.by_lock_id(lock_id, plan).await? {
            Some(reply) => extend::outcome(&reply),
            None => Ok(ExtendOutcome::Absent(Absence::NotFound)),
        }
    }

    pub(in crate::redis) async fn lookup(
        &self,
        lookup: &Lookup,
    ) -> Result<Option<LockRecord>, Error> {
        let names = &self.scripts.names;
        let reply = match lookup {
            Lookup::Key(key) => Some(self.run(lookup_key::plan(names, key)?).await?),
            Lookup::LockId(lock_id) => {
                let plan = |lock: Option<&str>| lookup_lock_id::plan(names, lock_id, lock);
                self.by_lock_id(lock_id, plan).await?
            }
        };
        reply.map_or(Ok(None), |reply| record::outcome(&reply))
    }

    pub(in crate::redis) async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let names = &self.scripts.names;
        let plan = |holder: Option<&str>| force_release::plan(names, key, holder);
        match self.by_key(key, plan).await? {
            Some(reply) => force_release::outcome(&reply),
            None => Ok(false),
        }
    }

    pub(in crate::redis) async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let names = &self.scripts.names;
        let cleanup = self.scripts.cleanup_in_is_locked;
        if cleanup && names.is_in_cluster() {
            let reply = self.run(is_locked::plan(names, key, false, None)?).await?;
            if is_locked::outcome(&reply)? {
                return Ok(true);
            }
        } else {
            let reply = self
                .run(is_locked::plan(names, key, cleanup, None)?)
                .await?;
            return is_locked::outcome(&reply);
        }
        let plan = |holder: Option<&str>| is_locked::plan(names, key, true, holder);
        match self.by_key(key, plan).await? {
            Some(reply) => is_locked::outcome(&reply),
            None => Ok(false),
        }
    }

    /// Runs the script that `plan` gives for the name of the lock that `lock_id` owns. `None`: it owns none.
    async fn by_lock_id(
        &self,
        lock_id: &LockId,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        let (names, known) = (&self.scripts.names, &self.scripts.known);
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
            if !self.scripts.is_elsewhere(&reply) {
                return Ok(Some(reply));
            }
            known.forget(lock_id);
        }
        Err(keeps_moving())
    }

    /// Runs the script that `plan` gives for the lock id of the lock on `key`. `None`: there is no lock.
    async fn by_key(
        &self,
        key: &Key,
        plan: impl Fn(Option<&str>) -> Result<Plan, Error> + Send + Sync,
    ) -> Result<Option<Reply>, Error> {
        let names = &self.scripts.names;
        if !names.is_in_cluster() {
            return self.run(plan(None)?).await.map(Some);
        }
        for _ in 0..TRIES {
            let Some(holder) = holder::outcome(self.run(holder::plan(names, key)?).await?)? else {
                return Ok(None);
            };
            let reply = self.run(plan(Some(&holder))?).await?;
            if !self.scripts.is_elsewhere(&reply) {
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
