//! Finds the holder of several locks when somebody releases or extends one of them by its id, and need not know of the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

use tokio::time::Instant;

use crate::mutex::lock;
use crate::values::lock_id::LockId;

/// Holds several locks that were granted together. The methods must not block.
pub(crate) trait SetHolder: Send + Sync {
    /// Hears that one of the locks is about to be released by its id.
    fn leaves(&self, lock_id: &LockId);

    /// Hears that one of the locks may end at this time, because somebody extends it by its id.
    fn may_end(&self, end: Instant);
}

/// The sets of locks that are held through one backend.
#[derive(Default)]
pub(crate) struct Sets {
    /// How many locks there are. Most backends have none, so that their operations need not look into the map.
    count: AtomicUsize,
    by_lock_id: Mutex<HashMap<LockId, Weak<dyn SetHolder>>>,
}

impl Sets {
    pub(crate) fn add(&self, lock_ids: &[LockId], holder: &Arc<impl SetHolder + 'static>) {
        let holder: Weak<dyn SetHolder> = Arc::downgrade(holder) as _;
        let mut sets = lock(&self.by_lock_id);
        for lock_id in lock_ids {
            sets.insert(lock_id.clone(), Weak::clone(&holder));
        }
        self.count.store(sets.len(), SeqCst);
    }

    pub(crate) fn remove(&self, lock_ids: &[LockId]) {
        let mut sets = lock(&self.by_lock_id);
        for lock_id in lock_ids {
            sets.remove(lock_id);
        }
        self.count.store(sets.len(), SeqCst);
    }

    /// Tells holders that locks are about to be released by their ids.
    pub(crate) fn leave(&self, lock_ids: &[LockId]) {
        self.tell(lock_ids, |holder, lock_id| holder.leaves(lock_id));
    }

    /// Tells holders that locks are about to be extended until `end` by their ids.
    pub(crate) fn may_end(&self, lock_ids: &[LockId], end: Instant) {
        self.tell(lock_ids, |holder, _| holder.may_end(end));
    }

    fn tell(&self, lock_ids: &[LockId], tell: impl Fn(&dyn SetHolder, &LockId)) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        for lock_id in lock_ids {
            let holder = lock(&self.by_lock_id).get(lock_id).and_then(Weak::upgrade);
            if let Some(holder) = holder {
                tell(holder.as_ref(), lock_id);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.by_lock_id).is_empty()
    }
}
