//! How operations get to Firestore: over a connection of our own, or through the caller's client.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::decision::Write;
use super::documents::{CounterDocument, Field, LockDocument, LockState, MarkDocument, malformed};
use super::error::Failure;
use crate::text::error::Error;
use crate::values::due::DoneMark;
use crate::waiting::wakeups::Watch;

/// Reads and writes in one database.
///
/// Transactions behave as Firestore's do: all reads show one moment, and a commit fails with `ABORTED` when something
/// that was read has changed.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Reads outside of a transaction.
    async fn read(&self, what: &ReadSet) -> Result<Documents, Failure>;

    /// Starts a transaction with these reads. `repeats` is the transaction id of the previous attempt, which ended with
    /// a conflict, or empty. If the future is dropped, no transaction may stay open for long.
    async fn begin(&self, what: &ReadSet, repeats: Vec<u8>) -> Result<StartedTransaction, Failure>;

    /// Reads more in the transaction with this id. Only shared locks need it.
    async fn more(&self, transaction: &[u8], what: &ReadSet) -> Result<Documents, Failure> {
        let _ = (transaction, what);
        Err(Failure::unsent(Error::invalid(
            "locks cannot be shared through a client that reads once in a transaction",
        )))
    }

    /// Commits these writes, all or none, in the transaction with this id.
    async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<(), Failure>;

    /// Rolls back the transaction with this id in the background: until it has ended, Firestore may keep others waiting
    /// for the documents that it has read. Does nothing if it has ended already.
    fn abandon(self: Arc<Self>, transaction: Vec<u8>);

    /// Reads at most `limit` documents of the collection of locks, in the order of their ids, beginning after that id.
    async fn page(&self, after: Option<&str>, limit: usize) -> Result<Page, Failure> {
        let _ = (after, limit);
        Err(Failure::unsent(Error::invalid(
            "locks cannot be listed through a client: use a connection of the backend's own",
        )))
    }

    /// Hears when one of these locks may have been freed. `None`: this transport cannot tell of it.
    fn watch(&self, what: &ReadSet) -> Option<Watch> {
        let _ = what;
        None
    }
}

/// How many values Firestore lets a query compare one field with.
pub const MOST_VALUES: usize = 30;

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadSet {
    /// Locks and counters.
    Named {
        /// The ids of the locks' documents.
        locks: Vec<String>,
        /// The ids of the counters' documents.
        counters: Vec<String>,
    },
    /// All locks with these lock ids, without a limit, to notice when there are several of one (docs/format.md,
    /// "Duplicate lock ids").
    Owned {
        /// What [`LOCK_ID_FIELD`](super::LOCK_ID_FIELD) must be: one of these, of which there is at least one. A query
        /// takes at most [`MOST_VALUES`].
        lock_ids: Vec<String>,
    },
    /// The locks whose documents have ids from `from` on, before `before`.
    Between {
        /// The first id.
        from: String,
        /// The id after the last one.
        before: String,
        /// How many to read at most, in the order of their ids; `None` for all.
        limit: Option<usize>,
    },
}

/// The time on Firestore's clock at some moment after a request was sent, and before its answer was there.
#[derive(Debug, Clone, Copy)]
pub struct ServerTime {
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// When the request was sent.
    pub asked: Instant,
    /// What the transport's own clock showed when the answer was there, if it has one; else the backend's clock is used.
    pub own_ms: Option<i64>,
}

/// A transaction that has started.
pub struct StartedTransaction {
    /// Its id, which the transport chooses; never empty.
    pub transaction: Vec<u8>,
    /// The documents that it has read.
    pub found: Documents,
}

/// The documents that a read has found. Those that do not exist are missing.
#[derive(Default)]
pub struct Documents {
    /// From the collection of locks.
    pub locks: Vec<Document>,
    /// From the collection of counters.
    pub counters: Vec<Document>,
    /// The time by which to decide, in milliseconds since the Unix epoch, if the transport has a clock of its own; else
    /// the backend's clock is used. Outside of a transaction it is the time before the read. Inside one it is the time
    /// after the read, because there the commit fails if something has changed in between.
    pub read_at_ms: Option<i64>,
    /// What the answer has shown of Firestore's clock. Without it, nobody sees that the clock which decides is wrong.
    pub server_time: Option<ServerTime>,
    /// What was read after the first answer.
    pub further: Further,
}

/// What an operation has read after the first answer, because of what that has shown.
#[derive(Debug, Default)]
pub struct Further {
    /// The ids of locks.
    locks: Vec<String>,
    /// The ends of ranges, and from where on each was not read yet; `None` if there is no more.
    ranges: Vec<(String, Option<String>)>,
}

/// Some documents of the collection of locks.
#[derive(Default)]
pub struct Page {
    /// The documents, in the order of their ids.
    pub documents: Vec<Document>,
    /// What the answer has shown of Firestore's clock.
    pub server_time: Option<ServerTime>,
}

/// A document, reduced to what locks use of it.
pub struct Document {
    /// Its id.
    pub id: String,
    /// Those of its fields that are texts or numbers.
    pub fields: Vec<(String, Field)>,
}

impl Documents {
    /// The lock that was read by its id, if it exists.
    pub(super) fn lock(&self) -> Result<Option<LockState>, Error> {
        self.locks.first().map(Document::state).transpose()
    }

    /// All locks.
    pub(super) fn locks(&self) -> Result<Vec<LockState>, Error> {
        self.locks.iter().map(Document::state).collect()
    }

    /// The complete lock with this document id.
    pub(super) fn lock_document_of(&self, id: &str) -> Result<LockDocument, Error> {
        let found = self.locks.iter().find(|found| found.id == id);
        found.ok_or_else(malformed)?.lock()
    }

    /// The lock with this document id, if it exists.
    pub(super) fn lock_of(&self, id: &str) -> Result<Option<LockState>, Error> {
        let found = self.locks.iter().find(|found| found.id == id);
        found.map(Document::state).transpose()
    }

    /// The counter with this document id, if it exists.
    pub(super) fn counter_of(&self, id: &str) -> Result<Option<CounterDocument>, Error> {
        let found = self.counters.iter().find(|found| found.id == id);
        found.map(Document::counter).transpose()
    }

    /// Adds what was read later. What is known already stays as it is.
    pub(super) fn add(&mut self, what: ReadSet, more: Self) {
        match what {
            ReadSet::Named { locks, .. } => self.further.locks.extend(locks),
            ReadSet::Between { before, limit, .. } => {
                let is_whole = limit.is_none_or(|limit| more.locks.len() < limit);
                let last = more.locks.last().filter(|_| !is_whole);
                // All ids of a range are as long, so that none stands between that of the last and this.
                let rest = last.map(|last| format!("{}!", last.id));
                self.further.ranges.push((before, rest));
            }
            ReadSet::Owned { .. } => {}
        }
        for (known, more) in [
            (&mut self.locks, more.locks),
            (&mut self.counters, more.counters),
        ] {
            for document in more {
                if !known.iter().any(|known| known.id == document.id) {
                    known.push(document);
                }
            }
        }
    }

    /// Whether the lock with this document id was looked for after the first answer.
    pub(super) fn has_looked_for(&self, id: &str) -> bool {
        self.further.locks.iter().any(|known| known == id)
    }

    /// From where on the range that ends with `before` was not read yet, if it was read at all; an inner `None` if there is no more.
    pub(super) fn rest_of(&self, before: &str) -> Option<Option<&str>> {
        let mut ranges = self.further.ranges.iter().rev();
        let (_, rest) = ranges.find(|(known, _)| known == before)?;
        Some(rest.as_deref())
    }

    /// The complete locks that were read whose documents have ids from `from` on, before `before`, and those ids.
    pub(super) fn between(
        &self,
        [from, before]: &[String; 2],
    ) -> Result<Vec<(&str, LockDocument)>, Error> {
        let found = self.locks.iter();
        found
            .filter(|found| found.id >= *from && found.id < *before)
            .map(|found| Ok((found.id.as_str(), found.lock()?)))
            .collect()
    }

    /// What the document with this id says of the periods of a key.
    pub(super) fn mark_of(&self, id: &str) -> Result<Option<DoneMark>, Error> {
        let found = self.counters.iter().find(|found| found.id == id);
        found.map_or(Ok(None), Document::mark)
    }
}

impl Document {
    fn field(&self, name: &str) -> Option<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    pub(super) fn state(&self) -> Result<LockState, Error> {
        LockState::read(&self.id, |name| self.field(name))
    }

    pub(super) fn lock(&self) -> Result<LockDocument, Error> {
        LockDocument::read(|name| self.field(name))
    }

    pub(super) fn counter(&self) -> Result<CounterDocument, Error> {
        CounterDocument::read(|name| self.field(name))
    }

    fn mark(&self) -> Result<Option<DoneMark>, Error> {
        MarkDocument::read(|name| self.field(name))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::firestore::documents::{EXPIRES_AT_FIELD, LOCK_ID_FIELD};
    use crate::values::lock_id::LockId;

    /// A lock as a query finds it, reduced to who holds it until when.
    pub(in super::super) fn held(id: &str, lock_id: &LockId, expires_at_ms: i64) -> Document {
        let fields = [
            (LOCK_ID_FIELD, Field::Text(lock_id.as_str().to_owned())),
            (EXPIRES_AT_FIELD, Field::Number(expires_at_ms as f64)),
        ];
        Document {
            id: id.to_owned(),
            fields: fields.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    #[test]
    fn a_range_is_read_through_once_a_page_is_not_full() {
        let lock_id = LockId::generate().unwrap();
        let page = |ids: &[&str]| Documents {
            locks: ids.iter().map(|id| held(id, &lock_id, 7)).collect(),
            ..Documents::default()
        };
        let what = |limit| ReadSet::Between {
            from: "k".to_owned(),
            before: "l".to_owned(),
            limit,
        };
        let mut found = page(&["k2"]);
        assert_eq!(found.rest_of("l"), None);
        found.add(what(Some(2)), page(&["k1", "k2"]));
        assert_eq!(found.rest_of("l"), Some(Some("k2!")));
        found.add(what(Some(2)), page(&["k3"]));
        assert_eq!((found.rest_of("l"), found.rest_of("m")), (Some(None), None));
        let ids: Vec<_> = found.locks.iter().map(|lock| lock.id.as_str()).collect();
        assert_eq!(ids, ["k2", "k1", "k3"]);
        found.add(what(None), page(&["k1", "k2"]));
        assert_eq!(found.rest_of("l"), Some(None));
        assert!(!found.has_looked_for("k1"));
        let named = ReadSet::Named {
            locks: vec!["k1".to_owned()],
            counters: Vec::new(),
        };
        found.add(named, Documents::default());
        assert!(found.has_looked_for("k1"));
    }
}
