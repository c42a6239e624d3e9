//! How a guard ends: by a release that is waited for or not, or without one.

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
    /// Ends the guard without releasing what it holds: that ends with its TTL, or when somebody releases it by its
    /// [`lock_ids`](Self::lock_ids). It does not extend itself any more.
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

    /// Frees the lock; `false` if it was lost before, or one of several was. What the store may still hold of a lost lock is freed, too.
    ///
    /// When the store cannot be reached or its answer is lost, the release is repeated while the operation has time,
    /// and after an error in the background, until the lock is free or its TTL is over.
    ///
    /// # Errors
    /// What the store failed with.
    pub async fn release(mut self) -> Result<bool, Error> {
        let was_held = self.state.begin_release();
        let hold_until = self.hold_until.filter(|_| was_held);
        let request = self.left().into();
        Ok(self.free(request, hold_until).await? && was_held)
    }

    /// Frees what is held, or lets it end at `hold_until`; `false` if some of it was not there.
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
        // It is the guard itself that releases them.
        self.forget_set();
        let release = Operation::Release(request);
        let outcome = operation::run(&self.backend, release, call, pending()).await;
        let is_gone = outcome.as_ref().is_ok_and(|outcomes: &Batch<_>| {
            let mut all = outcomes.iter();
            all.any(|outcome| *outcome != ReleaseOutcome::Released)
        });
        // After an error, it goes on in the background.
        match is_gone {
            true => self.state.gone(),
            false => self.state.freed(),
        }
        outcome.map(|_| !is_gone)
    }

    /// Frees the lock, and stores in the same step that something is done. A lock that is known to be lost is asked for only if
    /// that may be stored already.
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

    /// Nobody need tell it any more of locks that are released by their ids, or ask after them.
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
