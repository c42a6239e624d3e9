//! What an operation decides: the answer, and what to write for it.

use super::documents::LockDocument;
use crate::fence::Fence;
use crate::key::Key;

/// A write of a transaction. There is none that deletes a counter.
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts the lock in place of whatever the document holds.
    SetLock {
        /// The id of the document.
        document_id: String,
        /// What it is to hold.
        lock: LockDocument,
    },
    /// Puts the counter of `key` at `fence`.
    SetCounter {
        /// The id of the document.
        document_id: String,
        /// The fence that was given.
        fence: Fence,
        /// What the lock is on.
        key: Key,
    },
    /// Changes when the lock ends, and nothing else; the document must exist.
    ExtendLock {
        /// The id of the document.
        document_id: String,
        /// The new end.
        expires_at_ms: i64,
    },
    /// Deletes the lock.
    DeleteLock {
        /// The id of the document.
        document_id: String,
    },
}

/// What an operation decides from what it has read: pure data, for whatever carries it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Decision<T> {
    /// The answer to the caller, once the writes are committed.
    pub answer: T,
    /// What to write in the transaction of the reads; nothing to commit if it is empty.
    pub writes: Vec<Write>,
    /// What the application should hear of.
    pub warning: Option<Warning>,
}

impl<T> Decision<T> {
    /// An answer without any writes.
    pub fn answer(answer: T) -> Self {
        Self {
            answer,
            writes: Vec::new(),
            warning: None,
        }
    }
}

/// Something that no correct client does, and that the store shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Several documents carry one lock id (docs/format.md, "Duplicate lock ids"). Expired ones are
    /// deleted; while more than one is live, none is changed, and the lock id counts as unknown.
    DuplicateLockId {
        /// [`hash_key`](crate::hash_key) of the lock id.
        lock_id_hash: String,
        /// How many of the documents are live.
        live: usize,
        /// How many are not.
        expired: usize,
    },
}
