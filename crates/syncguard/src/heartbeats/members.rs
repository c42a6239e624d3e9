//! Knows which locks of one grant are still to be extended, because some may have been released by their ids.

use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

pub(super) struct Members {
    granted: Batch<LockId>,
    /// Those of several that somebody has released by their ids, or is about to.
    released: Vec<LockId>,
}

impl Members {
    pub(super) fn new(granted: Batch<LockId>) -> Self {
        Self {
            granted,
            released: Vec::new(),
        }
    }

    /// All locks of the grant, even those that were released.
    pub(super) fn granted(&self) -> &[LockId] {
        &self.granted
    }

    /// The locks that are still to be extended, in order.
    pub(super) fn left(&self) -> Batch<LockId> {
        if self.released.is_empty() {
            return self.granted.clone();
        }
        let left = self.granted.iter().filter(|lock_id| self.has(lock_id));
        left.cloned().collect()
    }

    /// Whether a lock is still to be extended.
    pub(super) fn has(&self, lock_id: &LockId) -> bool {
        self.granted.contains(lock_id) && !self.released.contains(lock_id)
    }

    /// The place of a lock in the grant, if it is still to be extended.
    pub(super) fn place(&self, lock_id: &LockId) -> Option<usize> {
        let place = self.granted.iter().position(|granted| granted == lock_id)?;
        self.has(lock_id).then_some(place)
    }

    /// Whether `lock_ids` has all locks that are still to be extended.
    pub(super) fn are_among(&self, lock_ids: &[LockId]) -> bool {
        let mut all = self.granted.iter();
        all.all(|lock_id| lock_ids.contains(lock_id) || !self.has(lock_id))
    }

    /// Notes that a lock is about to be released. `false` if it was not to be extended any more, or is not of this grant.
    pub(super) fn release(&mut self, lock_id: &LockId) -> bool {
        let is_here = self.has(lock_id);
        if is_here {
            self.released.push(lock_id.clone());
        }
        is_here
    }

    pub(super) fn is_empty(&self) -> bool {
        self.released.len() == self.granted.len()
    }
}
