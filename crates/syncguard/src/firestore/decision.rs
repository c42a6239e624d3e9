//! What the pure half of an operation decides: the answer, and what to write.

use super::documents::LockDocument;
use crate::values::due::DoneMark;
use crate::values::fence::Fence;
use crate::values::key::Key;

/// A write in a transaction. No kind of write deletes a counter.
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Replaces the whole document with this lock.
    SetLock {
        /// The id of the document.
        document_id: String,
        /// Its new content.
        lock: LockDocument,
    },
    /// Sets the counter of `key` to `fence`.
    SetCounter {
        /// The id of the document.
        document_id: String,
        /// The fence that is granted.
        fence: Fence,
        /// The key of the lock.
        key: Key,
    },
    /// Replaces what is stored of the periods of `key`.
    SetMark {
        /// The id of the document, in the collection of counters.
        document_id: String,
        /// For which period something was done last; `None` for none any more.
        mark: Option<DoneMark>,
        /// The key of the lock.
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

/// What an operation has decided from what was read, as data for the transport.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Decision<T> {
    /// The answer to the caller, once the writes are committed.
    pub(super) answer: T,
    /// What to write in the transaction of the reads. If it is empty, there is nothing to commit.
    pub(super) writes: Vec<Write>,
    /// Warnings for the application.
    pub(super) warnings: Vec<Warning>,
}

impl<T> Decision<T> {
    /// An answer without any writes.
    pub(super) fn answer(answer: T) -> Self {
        Self {
            answer,
            writes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Something found in the store that no correct client writes.
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
    /// An acquisition or an extension was refused, because the clock that decides differs from Firestore's by more than
    /// half of the tolerance.
    ClockSkew {
        /// By how many milliseconds it is ahead at least; negative if it is behind.
        ahead_ms: i64,
    },
}
