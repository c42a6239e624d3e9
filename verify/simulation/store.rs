//! The store: leases as docs/format.md describes them, in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::asking::inspection::{LockRecord, Lookup};
use crate::asking::outcome::{Absence, AcquireOutcome, ExtendOutcome, Grant, ReleaseOutcome};
use crate::asking::request::AcquireRequest;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::{TIME_TOLERANCE_MS, is_held};
use crate::values::ttl::Ttl;

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
    pub(super) key: Key,
    pub(super) lock_id: LockId,
    pub(super) was_live: bool,
}

impl Stored {
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        is_held(self.expires_at_ms, now_ms)
    }

    fn grant(&self) -> Grant {
        Grant {
            lock_id: self.lock_id.clone(),
            slot: self.key.slot_number(),
            fence: self.fence,
            expires_at_ms: self.expires_at_ms,
        }
    }

    fn free_in_ms(&self, now_ms: i64) -> u64 {
        (self.expires_at_ms - now_ms + TIME_TOLERANCE_MS).unsigned_abs()
    }
}

fn locked(claim: usize, free_in_ms: u64) -> AcquireOutcome {
    AcquireOutcome::Locked {
        claim,
        free_in: Some(Duration::from_millis(free_in_ms)),
        labels: crate::values::labels::Labels::default(),
        is_shared: false,
    }
}

impl Store {
    pub(super) fn new(forgets: bool) -> Self {
        Self {
            forgets,
            ..Self::default()
        }
    }

    /// Takes all that is claimed, or nothing. The second value are expired locks that these replace.
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now_ms: i64,
    ) -> (Result<AcquireOutcome, Error>, Vec<Gone>) {
        let keys = match self.wanted(&request.claims, now_ms) {
            Ok(keys) => keys,
            Err((claim, free_in_ms)) => return (Ok(locked(claim, free_in_ms)), Vec::new()),
        };
        let live = |key: &Key| {
            let stored = self.locks.get(key.as_str());
            stored.filter(|stored| stored.is_live(now_ms))
        };
        let each = || request.claims.iter().zip(&keys);
        let own = each().map(|(claim, key)| {
            let stored = live(key).filter(|stored| stored.lock_id == claim.lock_id)?;
            Some(stored.grant())
        });
        if let Some(grants) = own.collect() {
            return (Ok(AcquireOutcome::Acquired(grants)), Vec::new());
        }
        if let Some((claim, stored)) = (0..)
            .zip(&keys)
            .find_map(|(claim, key)| Some((claim, live(key)?)))
        {
            return (Ok(locked(claim, stored.free_in_ms(now_ms))), Vec::new());
        }
        let counter = |key: &Key| self.fences.get(key.as_str()).copied().unwrap_or_default();
        let fences = keys.iter().map(|key| Fence::after(counter(key), now_ms));
        let fences = match fences.collect::<Result<Vec<_>, _>>() {
            Ok(fences) => fences,
            Err(error) => return (Err(error), Vec::new()),
        };
        let (mut grants, mut gone) = (Batch::new(), Vec::new());
        for ((claim, key), fence) in request.claims.iter().zip(keys).zip(fences) {
            let (name, lock_id) = (key.as_str().to_owned(), claim.lock_id.clone());
            self.fences.insert(name.clone(), fence.get().cast_signed());
            gone.extend(self.remove(&name, now_ms));
            self.index.insert(lock_id.as_str().to_owned(), name.clone());
            let stored = Stored {
                key,
                lock_id,
                fence,
                acquired_at_ms: now_ms,
                expires_at_ms: now_ms + request.ttl.as_millis(),
                labels: request.labels.clone(),
            };
            grants.push(stored.grant());
            self.locks.insert(name, stored);
        }
        (Ok(AcquireOutcome::Acquired(grants)), gone)
    }

    /// The locks that the claims are to get: of slots, those that they have already, or free ones. Else the claim that gets
    /// none, and how long until a slot is free.
    fn wanted(&self, claims: &[Claim], now_ms: i64) -> Result<Vec<Key>, (usize, u64)> {
        let mut keys: Vec<Key> = Vec::new();
        for (number, claim) in claims.iter().enumerate() {
            let slots = match claim.kind {
                ClaimKind::Exclusive => {
                    keys.push(claim.key.clone());
                    continue;
                }
                // The simulation claims none.
                ClaimKind::Shared => return Err((number, 1)),
                ClaimKind::SlotOf(slots) => slots,
            };
            let slots = || (1..=slots.count()).map(|number| claim.key.slot(number));
            let held_by = |key: &Key| {
                let stored = self.locks.get(key.as_str());
                stored.filter(|stored| stored.is_live(now_ms))
            };
            let is_own = |key: &Key| held_by(key).is_some_and(|it| it.lock_id == claim.lock_id);
            let is_free = |key: &Key| held_by(key).is_none() && !keys.contains(key);
            let found = slots().find(is_own).or_else(|| slots().find(is_free));
            let ends = || slots().filter_map(|key| Some(held_by(&key)?.free_in_ms(now_ms)));
            // Without one that is held, it asks for more than there are.
            let found = found.ok_or_else(|| (number, ends().min().unwrap_or(1)));
            keys.push(found?);
        }
        Ok(keys)
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

    /// Makes all of them end later, or none. Those that it has found ended are gone.
    pub(super) fn extend(
        &mut self,
        lock_ids: &[LockId],
        ttl: Ttl,
        now_ms: i64,
    ) -> (ExtendOutcome, Option<Gone>) {
        let mut names = Vec::new();
        for (lock, lock_id) in lock_ids.iter().enumerate() {
            let (stored, forgotten) = self.owned(lock_id, now_ms);
            let absent = |absence| ExtendOutcome::Absent { lock, absence };
            let Some(stored) = stored else {
                return (absent(Absence::NotFound), forgotten);
            };
            let name = stored.key.as_str();
            if !stored.is_live(now_ms) {
                let gone = self.remove(name, now_ms);
                return (absent(Absence::Expired), gone);
            }
            names.push(name.to_owned());
        }
        let expires_at_ms = now_ms + ttl.as_millis();
        for name in &names {
            if let Some(stored) = self.locks.get_mut(name) {
                stored.expires_at_ms = expires_at_ms;
            }
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
            is_shared: false,
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
            key: stored.key,
            lock_id: stored.lock_id,
        })
    }
}
