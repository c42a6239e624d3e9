//! Operations that take more than one script in a cluster, because a script may touch only the keys that it is given.
//!
//! The first script finds out the other key of the lock. The second one does the work, if both keys still belong
//! together; if not, somebody else has had the lock in between, and all begins again. On a standalone server there is
//! one script, which finds the other key itself.

use super::{force_release, holder, is_locked, locate};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::redis::plan::Plan;
use crate::redis::reply::Reply;
use crate::redis::runner::Runner;

/// How often a lock may change hands during one operation.
const TRIES: usize = 16;

impl Runner {
    /// Runs the script that `plan` gives for the name of the lock that `lock_id` owns. `None`: it owns none.
    pub(in crate::redis) async fn by_lock_id(
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
        Err(restless())
    }

    pub(in crate::redis) async fn force_release_in_steps(&self, key: &Key) -> Result<bool, Error> {
        let names = &self.scripts.names;
        let plan = |holder: Option<&str>| force_release::plan(names, key, holder);
        match self.by_key(key, plan).await? {
            Some(reply) => force_release::outcome(&reply),
            None => Ok(false),
        }
    }

    pub(in crate::redis) async fn is_locked_in_steps(&self, key: &Key) -> Result<bool, Error> {
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
        Err(restless())
    }
}

fn restless() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        format!("the lock changed hands {TRIES} times while it was looked for"),
    )
}
