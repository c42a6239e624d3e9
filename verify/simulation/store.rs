//! The store: leases as docs/format.md describes them, in memory.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
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
    /// What the last operation has removed.
    pub(super) gone: Vec<Gone>,
    /// The keys of which it has freed something, or lets the readers end sooner.
    pub(super) freed: BTreeSet<String>,
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

/// The name of the counter of fences: readers have that of their key.
pub(super) fn counter_of(key: &Key) -> &str {
    match key.reader_id() {
        Some(_) => key.base(),
        None => key.as_str(),
    }
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

fn locked(claim: usize, free_in_ms: u64, is_shared: bool) -> AcquireOutcome {
    AcquireOutcome::Locked {
        claim,
        free_in: Some(Duration::from_millis(free_in_ms)),
        labels: Labels::default(),
        is_shared,
    }
}

impl Store {
    pub(super) fn new(forgets: bool) -> Self {
        Self {
            forgets,
            ..Self::default()
        }
    }

    /// Takes all that is claimed, or nothing.
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now_ms: i64,
    ) -> Result<AcquireOutcome, Error> {
        let keys = match self.wanted(&request.claims, now_ms) {
            Ok(keys) => keys,
            Err((claim, free_in_ms)) => return Ok(locked(claim, free_in_ms, false)),
        };
        let own = request.claims.iter().zip(&keys).map(|(claim, key)| {
            let stored = self.live(key.as_str(), now_ms);
            let stored = stored.filter(|stored| stored.lock_id == claim.lock_id)?;
            Some(stored.grant())
        });
        if let Some(grants) = own.collect() {
            return Ok(AcquireOutcome::Acquired(grants));
        }
        let mut wanted = keys.iter().enumerate();
        let obstacle = wanted.find_map(|(claim, key)| Some((claim, self.obstacle(key, now_ms)?)));
        if let Some((claim, (stored, is_shared))) = obstacle {
            return Ok(locked(claim, stored.free_in_ms(now_ms), is_shared));
        }
        let fences = keys.iter().map(|key| self.next_fence(key, now_ms));
        let fences = fences.collect::<Result<Vec<_>, _>>()?;
        let mut grants = Batch::new();
        for ((claim, key), fence) in request.claims.iter().zip(keys).zip(fences) {
            let stored = Stored {
                key,
                lock_id: claim.lock_id.clone(),
                fence,
                acquired_at_ms: now_ms,
                expires_at_ms: now_ms + request.ttl.as_millis(),
                labels: request.labels.clone(),
            };
            grants.push(stored.grant());
            if claim.kind == ClaimKind::Shared {
                self.join(&stored, now_ms);
            }
            self.write(stored, now_ms);
        }
        Ok(AcquireOutcome::Acquired(grants))
    }

    fn write(&mut self, stored: Stored, now_ms: i64) {
        let name = stored.key.as_str().to_owned();
        self.remove(&name, now_ms);
        let counter = counter_of(&stored.key).to_owned();
        let (fence, lock_id) = (stored.fence.get(), stored.lock_id.as_str());
        self.fences.insert(counter, fence.cast_signed());
        self.index.insert(lock_id.to_owned(), name.clone());
        self.locks.insert(name, stored);
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
                ClaimKind::Shared => {
                    keys.push(claim.key.reader(&claim.lock_id));
                    continue;
                }
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

    /// The lock that this lock id owns, live or not. If the store forgets it, or the group of this reader is over, it is removed, now that it
    /// is asked for it: if its clock is set back afterwards, the lock does not come back. Nobody owns a group.
    fn owned(&mut self, lock_id: &LockId, now_ms: i64) -> Option<Stored> {
        let name = self.index.get(lock_id.as_str()).cloned()?;
        let stored = self.locks.get(&name).cloned();
        let stored = stored.filter(|stored| stored.lock_id == *lock_id && !stored.is_group())?;
        let is_over = self.live(&name, now_ms).is_none();
        if is_over && (self.forgets || stored.is_live(now_ms)) {
            self.free(&name, now_ms);
            return None;
        }
        Some(stored)
    }

    pub(super) fn release(&mut self, lock_id: &LockId, now_ms: i64) -> ReleaseOutcome {
        let Some(stored) = self.owned(lock_id, now_ms) else {
            return ReleaseOutcome::Absent(Absence::NotFound);
        };
        self.free(stored.key.as_str(), now_ms);
        self.follow(&stored.key, now_ms);
        match stored.is_live(now_ms) {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::Absent(Absence::Expired),
        }
    }

    /// Makes all of them end later, or none. Those that it has found ended are gone.
    pub(super) fn extend(&mut self, lock_ids: &[LockId], ttl: Ttl, now_ms: i64) -> ExtendOutcome {
        let mut keys = Vec::new();
        for (lock, lock_id) in lock_ids.iter().enumerate() {
            let absent = |absence| ExtendOutcome::Absent { lock, absence };
            let Some(stored) = self.owned(lock_id, now_ms) else {
                return absent(Absence::NotFound);
            };
            if !stored.is_live(now_ms) {
                self.free(stored.key.as_str(), now_ms);
                return absent(Absence::Expired);
            }
            keys.push(stored.key);
        }
        let expires_at_ms = now_ms + ttl.as_millis();
        for key in &keys {
            if let Some(stored) = self.locks.get_mut(key.as_str()) {
                stored.expires_at_ms = expires_at_ms;
            }
            self.follow(key, now_ms);
        }
        ExtendOutcome::Extended { expires_at_ms }
    }

    pub(super) fn is_locked(&self, key: &Key, now_ms: i64) -> bool {
        self.live(key.as_str(), now_ms).is_some()
    }

    pub(super) fn lookup(&self, lookup: &Lookup, now_ms: i64) -> Option<LockRecord> {
        let stored = match lookup {
            Lookup::Key(key) => self.live(key.as_str(), now_ms)?,
            Lookup::LockId(lock_id) => {
                let stored = self.live(self.index.get(lock_id.as_str())?, now_ms);
                stored.filter(|stored| stored.lock_id == *lock_id)?
            }
        };
        Some(LockRecord {
            key: stored.key.clone(),
            lock_id: stored.lock_id.clone(),
            expires_at_ms: stored.expires_at_ms,
            acquired_at_ms: stored.acquired_at_ms,
            fence: stored.fence,
            labels: stored.labels.clone(),
            is_shared: stored.is_reader() || stored.is_group(),
            read_at_ms: now_ms,
        })
    }

    /// Frees the key, whoever holds or shares it.
    pub(super) fn force_release(&mut self, key: &Key, now_ms: i64) -> bool {
        let was_held = self.is_locked(key, now_ms);
        self.clear(key, now_ms);
        self.free(key.as_str(), now_ms);
        was_held
    }

    /// Removes a lock and its index entry in one step.
    fn remove(&mut self, name: &str, now_ms: i64) {
        let was_live = self.live(name, now_ms).is_some();
        let Some(stored) = self.locks.remove(name) else {
            return;
        };
        self.index.remove(stored.lock_id.as_str());
        self.gone.push(Gone {
            was_live,
            lock_id: stored.lock_id,
        });
    }

    /// Removes a lock, and tells those who wait: of one that has ended only if the store does not forget it. The lock of a reader keeps nobody
    /// out by itself.
    fn free(&mut self, name: &str, now_ms: i64) {
        let Some(stored) = self.locks.get(name) else {
            return;
        };
        let is_told = stored.is_live(now_ms) || !self.forgets;
        if is_told && !stored.is_reader() {
            self.freed.insert(stored.key.base().to_owned());
        }
        self.remove(name, now_ms);
    }
}
