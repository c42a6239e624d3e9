//! Which script carries out which operation.

use super::plan::{Names, Plan};
use super::reply::Reply;
use super::{
    acquire, extend, force_release, is_locked, lookup_key, lookup_lock_id, record, release,
};
use crate::backend::{Lookup, Operation, Outcome};
use crate::error::Error;

/// The scripts' part of a backend's settings.
pub(super) struct Scripts {
    pub(super) names: Names,
    pub(super) cleanup_in_is_locked: bool,
}

impl Scripts {
    /// What to send.
    pub(super) fn plan(&self, operation: &Operation) -> Result<Plan, Error> {
        let names = &self.names;
        match operation {
            Operation::Acquire(request) => acquire::plan(names, request),
            Operation::Release(lock_id) => release::plan(names, lock_id),
            Operation::Extend(lock_id, ttl) => extend::plan(names, lock_id, *ttl),
            Operation::IsLocked(key) => is_locked::plan(names, key, self.cleanup_in_is_locked),
            Operation::Lookup(Lookup::Key(key)) => lookup_key::plan(names, key),
            Operation::Lookup(Lookup::LockId(lock_id)) => lookup_lock_id::plan(names, lock_id),
            Operation::ForceRelease(key) => force_release::plan(names, key),
        }
    }

    /// What the reply means.
    pub(super) fn outcome(&self, operation: &Operation, reply: &Reply) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(acquire::outcome(request, reply)?),
            Operation::Release(_) => Outcome::Release(release::outcome(reply)?),
            Operation::Extend(..) => Outcome::Extend(extend::outcome(reply)?),
            Operation::IsLocked(_) => Outcome::IsLocked(is_locked::outcome(reply)?),
            Operation::Lookup(_) => Outcome::Lookup(record::outcome(reply)?),
            Operation::ForceRelease(_) => Outcome::ForceRelease(force_release::outcome(reply)?),
        })
    }
}
