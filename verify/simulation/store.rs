//! The store: leases as docs/format.md describes them, in memory.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::fence::Fence;
use crate::inspection::{LockRecord, Lookup};
use crate::key::Key;
use crate::labels::Labels;
use crate::lock_id::LockId;
use crate::outcome::{Absence, AcquireOutcome, ExtendOutcome, Grant, ReleaseOutcome};
use crate::request::AcquireRequest;
use crate::time::{TIME_TOLERANCE_MS, is_live};
use crate::ttl::Ttl;

/// What the store keeps. Each operation is one step, at a time of the store's clock.
#[derive(Default)]
pub(super) struct Store {
    /// By key.
    pub(super) locks: BTreeMap<String, Stored>,
    /// From lock ids to keys.
    pub(super) index: BTreeMap<String, String>,
    fences: BTreeMap<String, i64>,
    /// Whether it forgets locks once they are not live any more, as Redis does.
    pub(super) forgets: bool,
}

#[derive(Clone)]
pub(super) struct Stored {
    key: Key,
    pub(super) lock_id: LockId,
    fence: Fence,
    acquired_at_ms: i64,
    pub(super) expires_at_ms: i64,
    labels: Labels,
}

/// A lock that the store does not have any more.
pub(super) struct Gone {
    pub(super) lock_id: LockId,
    pub(super) was_live: bool,
}

impl Stored {
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        is_live(self.expires_at_ms, now_ms, TIME_TOLERANCE_MS)
    }

    fn free_in_ms(&self, now_ms: i64) -> u64 {
        (self.expires_at_ms - now_ms + TIME_TOLERANCE_MS).unsigned_abs()
    }
}

impl Store {
    pub(super) fn new(forgets: bool) -> Self {
        Self {
            forgets,
            ..Self::default()
        }
    }

    /// Takes the lock. The second value is an expired lock that this replaces.
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now_ms: i64,
    ) -> (Result<AcquireOutcome, Error>, Option<Gone>) {
        let name = request.claims[0].key.as_str();
        if let Some(stored) = self.locks.get(name).filter(|lock| lock.is_live(now_ms)) {
            let outcome = match stored.lock_id == request.claims[0].lock_id {
                true => AcquireOutcome::one(Grant {
                    lock_id: stored.lock_id.clone(),
                    slot: None,
                    fence: stored.fence,
                    expires_at_ms: stored.expires_at_ms,
                }),
                false => AcquireOutcome::Locked {
                    claim: 0,
                    free_in: Some(std::time::Duration::from_millis(stored.free_in_ms(now_ms))),
                },
            };
            return (Ok(outcome), None);
        }
        let counter = self.fences.entry(name.to_owned()).or_default();
        let fence = match Fence::after(*counter, now_ms) {
            Ok(fence) => fence,
            Err(error) => return (Err(error), None),
        };
        *counter = fence.get().cast_signed();
        let gone = self.remove(name, now_ms);
        let expires_at_ms = now_ms + request.ttl.as_millis();
        let lock_id = request.claims[0].lock_id.clone();
        self.index
            .insert(lock_id.as_str().to_owned(), name.to_owned());
        let stored = Stored {
            key: request.claims[0].key.clone(),
            lock_id: lock_id.clone(),
            fence,
            acquired_at_ms: now_ms,
            expires_at_ms,
            labels: request.labels.clone(),
        };
        self.locks.insert(name.to_owned(), stored);
        let grant = Grant {
            lock_id,
            slot: None,
            fence,
            expires_at_ms,
        };
        (Ok(AcquireOutcome::one(grant)), gone)
    }

    /// The lock that this lock id owns, live or not. The second value is one that the store forgets, now that it is asked for
    /// it: if its clock is set back afterwards, the lock does not come back.
    fn owned(&mut self, lock_id: &LockId, now_ms: i64) -> (Option<Stored>, Option<Gone>) {
        let name = self.index.get(lock_id.as_str()).cloned();
        let Some(name) = name else {
            return (None, None);
        };
        let stored = self
            .locks
            .get(&name)
            .filter(|stored| stored.lock_id == *lock_id);
        match stored.cloned() {
            Some(stored) if self.forgets && !stored.is_live(now_ms) => {
                (None, self.remove(&name, now_ms))
            }
            stored => (stored, None),
        }
    }

    pub(super) fn release(
        &mut self,
        lock_id: &LockId,
        now_ms: i64,
    ) -> (ReleaseOutcome, Option<Gone>) {
        let (stored, forgotten) = self.owned(lock_id, now_ms);
        let Some(stored) = stored else {
            return (ReleaseOutcome::Absent(Absence::NotFound), forgotten);
        };
        let gone = self.remove(stored.key.as_str(), now_ms);
        match stored.is_live(now_ms) {
            true => (ReleaseOutcome::Released, gone),
            false => (ReleaseOutcome::Absent(Absence::Expired), gone),
        }
    }

    pub(super) fn extend(
        &mut self,
        lock_id: &LockId,
        ttl: Ttl,
        now_ms: i64,
    ) -> (ExtendOutcome, Option<Gone>) {
        let (stored, forgotten) = self.owned(lock_id, now_ms);
        let Some(stored) = stored else {
            return (ExtendOutcome::absent(Absence::NotFound), forgotten);
        };
        let name = stored.key.as_str();
        if !stored.is_live(now_ms) {
            let gone = self.remove(name, now_ms);
            return (ExtendOutcome::absent(Absence::Expired), gone);
        }
        let expires_at_ms = now_ms + ttl.as_millis();
        if let Some(stored) = self.locks.get_mut(name) {
            stored.expires_at_ms = expires_at_ms;
        }
        (ExtendOutcome::Extended { expires_at_ms }, None)
    }

    pub(super) fn is_locked(&self, key: &Key, now_ms: i64) -> bool {
        let stored = self.locks.get(key.as_str());
        stored.is_some_and(|stored| stored.is_live(now_ms))
    }

    pub(super) fn lookup(&self, lookup: &Lookup, now_ms: i64) -> Option<LockRecord> {
        let stored = match lookup {
            Lookup::Key(key) => self.locks.get(key.as_str()),
            Lookup::LockId(lock_id) => {
                let name = self.index.get(lock_id.as_str())?;
                let stored = self.locks.get(name);
                stored.filter(|stored| stored.lock_id == *lock_id)
            }
        };
        let stored = stored.filter(|stored| stored.is_live(now_ms))?;
        Some(LockRecord {
            key: stored.key.clone(),
            lock_id: stored.lock_id.clone(),
            expires_at_ms: stored.expires_at_ms,
            acquired_at_ms: stored.acquired_at_ms,
            fence: stored.fence,
            labels: stored.labels.clone(),
            read_at_ms: now_ms,
        })
    }

    pub(super) fn force_release(&mut self, key: &Key, now_ms: i64) -> (bool, Option<Gone>) {
        let gone = self.remove(key.as_str(), now_ms);
        (gone.as_ref().is_some_and(|gone| gone.was_live), gone)
    }

    /// Removes a lock and its index entry in one step.
    fn remove(&mut self, name: &str, now_ms: i64) -> Option<Gone> {
        let stored = self.locks.remove(name)?;
        self.index.remove(stored.lock_id.as_str());
        Some(Gone {
            was_live: stored.is_live(now_ms),
            lock_id: stored.lock_id,
        })
    }
}
