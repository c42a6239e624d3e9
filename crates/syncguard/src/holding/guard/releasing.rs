//! The ways in which a guard ends: a release that is waited for, a drop, which releases in the background, and `keep`, which
//! releases nothing.

use std::future::pending;

use tokio::time::Instant;

use super::LockGuard;
use crate::asking::outcome::{Grant, ReleaseOutcome};
use crate::asking::request::{Finish, Operation, ReleaseRequest};
use crate::background::undo::{self, Freeing, Lock};
use crate::operation::{self, CallOptions};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::due::Due;

impl LockGuard {
    /// Ends the guard without releasing its locks. They are not extended any more, and end with their TTL, or when somebody
    /// releases them by their [`lock_ids`](Self::lock_ids).
    pub fn keep(mut self) -> Batch<Grant> {
        self.state.freed();
        self.backend.work().heartbeats().stop(&self.lock_ids());
        self.forget_set();
        let mut grants = std::mem::take(&mut self.grants);
        for grant in &mut grants {
            grant.expires_at_ms = self.expires_at_ms();
        }
        grants
    }

    /// Frees the lock. `false` if it, or one of several, was lost before. A lost lock is freed, too, if the store still has it.
    ///
    /// When the store cannot be reached or its answer is lost, the release is repeated while the operation has time. After an
    /// error it goes on in the background, until the lock is free or its TTL is over.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn release(mut self) -> Result<bool, Error> {
        let was_held = self.state.begin_release();
        let hold_until = self.hold_until.filter(|_| was_held);
        let request = self.left().into();
        Ok(self.free(request, hold_until).await? && was_held)
    }

    /// Frees the locks, or makes them end at `hold_until`. `false` if one of them was not there.
    async fn free(
        &mut self,
        request: ReleaseRequest,
        hold_until: Option<Instant>,
    ) -> Result<bool, Error> {
        let call = CallOptions {
            lasts: Some(self.lasts),
            keys: self.keys.clone(),
            hold_until,
            ..CallOptions::default()
        };
        // First, because this release must not count as one by ids.
        self.forget_set();
        let release = Operation::Release(request);
        let outcome = operation::run(&self.backend, release, call, pending()).await;
        let is_gone = outcome.as_ref().is_ok_and(|outcomes: &Batch<_>| {
            let mut all = outcomes.iter();
            all.any(|outcome| *outcome != ReleaseOutcome::Released)
        });
        // After an error, the release goes on in the background, so nothing is left to do here.
        match is_gone {
            true => self.state.gone(),
            false => self.state.freed(),
        }
        outcome.map(|_| !is_gone)
    }

    /// Frees the lock, and stores in the same step that something is done. If the lock is known to be lost, the store is asked
    /// only if a transaction may have stored that already.
    ///
    /// # Errors
    /// `LockLost` if the lock was lost before: then nothing is stored.
    pub(crate) async fn finish(mut self, due: Due, may_be_done: bool) -> Result<(), Error> {
        if self.state.begin_release() || may_be_done {
            let (key, lock_ids) = (self.keys[0].clone(), self.lock_ids());
            let done = Some(Finish { key, due });
            if self.free(ReleaseRequest { lock_ids, done }, None).await? {
                return Ok(());
            }
        }
        Err(self.lost().await)
    }

    /// From now on, nobody tells the guard of releases by ids, and nobody asks the store after its locks.
    fn forget_set(&self) {
        if let (Some(first), true) = (self.grants.first(), self.look.is_some()) {
            self.backend.work().looks().remove(&first.lock_id);
        }
        if self.grants.len() > 1 {
            self.backend.work().sets().remove(&self.lock_ids());
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.forget_set();
        if !self.state.state().is_to_be_released() {
            return;
        }
        let release = Freeing::new(self.left().into(), self.hold_until);
        undo::release_in_background(&self.backend, Box::new(release), self.lasts, Lock::Granted);
    }
}
