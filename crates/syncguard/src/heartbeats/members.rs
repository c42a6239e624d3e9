//! The locks of one entry: those that were granted together, without those that were released by their ids meanwhile.

use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

pub(super) struct Members {
    granted: Batch<LockId>,
    /// Of several, those that somebody has released, or is about to.
    released: Vec<LockId>,
}

impl Members {
    pub(super) fn new(granted: Batch<LockId>) -> Self {
        Self {
            granted,
            released: Vec::new(),
        }
    }

    /// All of them, also those that were released.
    pub(super) fn granted(&self) -> &[LockId] {
        &self.granted
    }

    /// Those that are to be extended, in order.
    pub(super) fn left(&self) -> Batch<LockId> {
        if self.released.is_empty() {
            return self.granted.clone();
        }
        let left = self.granted.iter().filter(|lock_id| self.has(lock_id));
        left.cloned().collect()
    }

    /// Whether it is one of those that are to be extended.
    pub(super) fn has(&self, lock_id: &LockId) -> bool {
        self.granted.contains(lock_id) && !self.released.contains(lock_id)
    }

    /// Which of those that were granted it is, if it is to be extended.
    pub(super) fn place(&self, lock_id: &LockId) -> Option<usize> {
        let place = self.granted.iter().position(|granted| granted == lock_id)?;
        self.has(lock_id).then_some(place)
    }

    /// Whether `lock_ids` has each that is to be extended.
    pub(super) fn are_among(&self, lock_ids: &[LockId]) -> bool {
        let mut all = self.granted.iter();
        all.all(|lock_id| lock_ids.contains(lock_id) || !self.has(lock_id))
    }

    /// One is about to be released; `false` if it was none of those that are to be extended.
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
