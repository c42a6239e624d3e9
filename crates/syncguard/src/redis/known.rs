//! Which lock ids own which locks, as far as this process knows: in a cluster, and on some other servers, scripts may touch only
//! keys that they are given.
//!
//! What is remembered stays true for ever, because a lock id is never used for a second key. So it may be forgotten
//! at any time, and costs one more round trip there.

use std::mem;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use crate::mutex::lock;
use crate::values::lock_id::LockId;

/// How many lock ids come before the oldest are forgotten. At most twice as many are remembered.
const GENERATION: usize = 16 * 1024;

/// The names of locks by their lock ids.
#[derive(Default)]
pub(in crate::redis) struct KnownLocks(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    /// Only this process's own lock ids come in, which are random: nobody can choose them so that they collide.
    young: FxHashMap<LockId, Arc<str>>,
    /// What was young before and has not been used since.
    old: FxHashMap<LockId, Arc<str>>,
}

impl KnownLocks {
    pub(in crate::redis) fn learn(&self, lock_id: &LockId, lock_key: &str) {
        lock(&self.0).learn(lock_id, lock_key.into());
    }

    /// The lock's name without the client's prefix.
    pub(in crate::redis) fn get(&self, lock_id: &LockId) -> Option<Arc<str>> {
        let mut known = lock(&self.0);
        if let Some(lock_key) = known.young.get(lock_id) {
            return Some(Arc::clone(lock_key));
        }
        let lock_key = known.old.remove(lock_id)?;
        known.learn(lock_id, Arc::clone(&lock_key));
        Some(lock_key)
    }

    pub(in crate::redis) fn forget(&self, lock_id: &LockId) {
        let mut known = lock(&self.0);
        known.young.remove(lock_id);
        known.old.remove(lock_id);
    }
}

impl Generations {
    fn learn(&mut self, lock_id: &LockId, lock_key: Arc<str>) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(lock_id.clone(), lock_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_known_until_it_is_forgotten() {
        let (known, id) = (KnownLocks::default(), LockId::generate().unwrap());
        assert_eq!(known.get(&id), None);
        known.learn(&id, "a");
        assert_eq!(known.get(&id).as_deref(), Some("a"));
        known.forget(&id);
        assert_eq!(known.get(&id), None);
    }

    #[test]
    fn what_is_not_used_makes_room_and_what_is_used_stays() {
        let known = KnownLocks::default();
        let (used, unused) = (LockId::generate().unwrap(), LockId::generate().unwrap());
        known.learn(&used, "used");
        known.learn(&unused, "unused");
        for _ in 0..5 * GENERATION {
            known.learn(&LockId::generate().unwrap(), "other");
            assert!(known.get(&used).is_some());
        }
        assert_eq!(known.get(&unused), None);
        let state = lock(&known.0);
        assert!(state.young.len() + state.old.len() <= 2 * GENERATION);
    }
}
