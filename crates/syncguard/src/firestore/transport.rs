//! How an operation reaches Firestore: over a connection of our own, or through somebody else's client.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::decision::Write;
use super::documents::{CounterDocument, Field, LockDocument, LockState, malformed};
use super::error::Failure;
use crate::error::Error;

/// A way to one database.
///
/// Transactions are Firestore's: all reads are of one moment, and a commit fails with `ABORTED` when
/// something that was read has changed.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Reads outside of a transaction.
    async fn read(&self, what: &ReadSet) -> Result<Documents, Failure>;

    /// Starts a transaction with these reads. `repeats` is the id of the attempt before, which ended with
    /// a conflict, or empty. A call that is dropped leaves no transaction open for long.
    async fn begin(&self, what: &ReadSet, repeats: Vec<u8>) -> Result<Begun, Failure>;

    /// Commits these writes, all or none, in the transaction of that id.
    async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<(), Failure>;

    /// Ends the transaction of that id without writes, in the background: until then Firestore may keep
    /// others waiting for what it has read. One that has ended already is left alone.
    fn abandon(self: Arc<Self>, transaction: Vec<u8>);
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadSet {
    /// A key's lock.
    Lock {
        /// The id of its document.
        lock: String,
    },
    /// A key's lock and its counter.
    LockAndCounter {
        /// The id of the lock's document.
        lock: String,
        /// The id of the counter's document.
        counter: String,
    },
    /// All locks that carry a lock id: without a limit, to see when there are several (docs/format.md,
    /// "Duplicate lock ids").
    Owned {
        /// What [`LOCK_ID_FIELD`](super::LOCK_ID_FIELD) must be.
        lock_id: String,
    },
}

/// A transaction that has started.
pub struct Begun {
    /// What the transport calls it; never empty.
    pub transaction: Vec<u8>,
    /// What it has read.
    pub found: Documents,
}

/// The documents that a read found. Those that do not exist are left out.
#[derive(Default)]
pub struct Documents {
    /// Of the collection of locks.
    pub locks: Vec<Document>,
    /// Of the collection of counters.
    pub counter: Option<Document>,
    /// The time that decides about them, in milliseconds since the Unix epoch, if the transport has a
    /// clock of its own; else the backend's decides. Outside of a transaction that is the time before
    /// they were read, and in one the time after: only there does a change in between make the commit
    /// fail.
    pub read_at_ms: Option<i64>,
}

/// A document as far as locks have use for it.
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its fields that are texts or numbers.
    pub fields: Vec<(String, Field)>,
}

impl Documents {
    /// The one lock that was asked for by name.
    pub(super) fn lock(&self) -> Result<Option<LockState>, Error> {
        self.locks.first().map(Document::state).transpose()
    }

    /// The same, whole.
    pub(super) fn lock_document(&self) -> Result<Option<LockDocument>, Error> {
        self.locks.first().map(Document::lock).transpose()
    }

    /// All locks.
    pub(super) fn locks(&self) -> Result<Vec<LockState>, Error> {
        self.locks.iter().map(Document::state).collect()
    }

    /// One of the locks, whole.
    pub(super) fn lock_document_of(&self, id: &str) -> Result<LockDocument, Error> {
        let found = self.locks.iter().find(|found| found.id == id);
        found.ok_or_else(malformed)?.lock()
    }

    pub(super) fn counter(&self) -> Result<Option<CounterDocument>, Error> {
        let counter = self.counter.as_ref();
        counter
            .map(|found| CounterDocument::read(|name| found.field(name)))
            .transpose()
    }
}

impl Document {
    fn field(&self, name: &str) -> Option<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    fn state(&self) -> Result<LockState, Error> {
        LockState::read(&self.id, |name| self.field(name))
    }

    fn lock(&self) -> Result<LockDocument, Error> {
        LockDocument::read(|name| self.field(name))
    }
}
