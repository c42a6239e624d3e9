//! The documents and all that happens to them, one thing after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Status;

use crate::path::check_document_name;
use crate::proto::{Document, TransactionOptions, Write, WriteResult};
use crate::query::Query;
use crate::time::{Micros, now};
use crate::transactions::{Snapshot, Transactions};
use crate::writes;

/// Where a read takes its snapshot from.
pub(crate) enum ReadFrom {
    /// The newest state.
    Now,
    /// A transaction in progress.
    Transaction(Vec<u8>),
    /// A transaction that starts with this read.
    New(TransactionOptions),
}

/// What a read came to.
pub(crate) struct Read<T> {
    pub(crate) value: T,
    pub(crate) time: Micros,
    /// The id of the transaction that the read started; empty if it started none.
    pub(crate) transaction: Vec<u8>,
}

/// A commit, for those who listen.
#[derive(Clone)]
pub(crate) struct Committed {
    pub(crate) snapshot: Snapshot,
    pub(crate) names: Arc<[String]>,
}

/// Firestore's documents in memory. Commits are serializable: each is checked, under one lock,
/// against all that its transaction has read.
pub(crate) struct Store {
    state: Mutex<State>,
}

struct State {
    current: Snapshot,
    transactions: Transactions,
    listeners: Vec<UnboundedSender<Committed>>,
    /// How far its clock is ahead of this machine's.
    ahead: Micros,
}

impl Store {
    pub(crate) fn new(idle_limit: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                current: Snapshot::default(),
                transactions: Transactions::new(idle_limit),
                listeners: Vec::new(),
                ahead: 0,
            }),
        }
    }

    /// Starts a transaction and returns its id.
    pub(crate) fn begin(&self, options: Option<&TransactionOptions>) -> Result<Vec<u8>, Status> {
        self.lock().transactions.begin(options)
    }

    /// Ends a transaction without effect.
    pub(crate) fn rollback(&self, id: &[u8]) -> Result<(), Status> {
        self.lock().transactions.end(id).map(|_| ())
    }

    /// The documents of those names, each or none.
    pub(crate) fn get(
        &self,
        names: &[String],
        from: ReadFrom,
    ) -> Result<Read<Vec<Option<Arc<Document>>>>, Status> {
        names
            .iter()
            .try_for_each(|name| check_document_name(name))?;
        let mut state = self.lock();
        let (snapshot, transaction) = state.open(from, |transaction| {
            names.iter().for_each(|name| transaction.has_read(name));
        })?;
        Ok(Read {
            value: names
                .iter()
                .map(|name| snapshot.documents.get(name).cloned())
                .collect(),
            time: snapshot.time,
            transaction,
        })
    }

    /// The documents that a query finds.
    pub(crate) fn query(
        &self,
        query: &Query,
        from: ReadFrom,
    ) -> Result<Read<Vec<Arc<Document>>>, Status> {
        let (snapshot, transaction) = self
            .lock()
            .open(from, |transaction| transaction.has_run(query.clone()))?;
        Ok(Read {
            value: query.run(&snapshot.documents),
            time: snapshot.time,
            transaction,
        })
    }

    /// Applies all writes or none, in the transaction of that id if there is one.
    pub(crate) fn commit(
        &self,
        transaction: &[u8],
        writes: &[Write],
    ) -> Result<(Vec<WriteResult>, Micros), Status> {
        let mut state = self.lock();
        if !transaction.is_empty() {
            let transaction = state.transactions.end(transaction)?;
            if transaction.read_only && !writes.is_empty() {
                return Err(Status::invalid_argument(
                    "writes in a read-only transaction",
                ));
            }
            if !transaction.still_holds(&state.current) {
                return Err(Status::aborted(
                    "Too much contention on these documents. Please try again.",
                ));
            }
        }
        state.apply(writes)
    }

    /// Applies each write alone: some may fail.
    pub(crate) fn write_each(&self, writes: &[Write]) -> Vec<Result<WriteResult, Status>> {
        let mut state = self.lock();
        let each = writes.iter().map(|write| {
            let (results, _) = state.apply(std::slice::from_ref(write))?;
            Ok(results.into_iter().next().unwrap_or_default())
        });
        each.collect()
    }

    /// The newest state, and every commit after it.
    pub(crate) fn listen(&self) -> (Snapshot, UnboundedReceiver<Committed>) {
        let (sender, receiver) = unbounded_channel();
        let mut state = self.lock();
        state.listeners.push(sender);
        (state.newest(), receiver)
    }

    /// Forgets all documents.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        let names: Vec<_> = state.current.documents.keys().cloned().collect();
        let time = state.next_time();
        state.publish(
            Snapshot {
                time,
                ..Snapshot::default()
            },
            names,
        );
    }

    /// Sets how far its clock is ahead of this machine's. Set back, it gives earlier times than before.
    pub(crate) fn set_ahead(&self, ahead: Micros) {
        let mut state = self.lock();
        state.ahead = ahead;
        state.current.time = state.current.time.min(state.now());
    }

    /// How many transactions are in progress.
    pub(crate) fn open_transactions(&self) -> usize {
        self.lock().transactions.len()
    }

    /// Every step under the lock leaves the state whole, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The snapshot to read from, and the id of the transaction that was started for it.
    fn open(
        &mut self,
        from: ReadFrom,
        note: impl FnOnce(&mut crate::transactions::Transaction),
    ) -> Result<(Snapshot, Vec<u8>), Status> {
        let newest = self.newest();
        let (id, started) = match from {
            ReadFrom::Now => return Ok((newest, Vec::new())),
            ReadFrom::Transaction(id) => (id, false),
            ReadFrom::New(options) => (self.transactions.begin(Some(&options))?, true),
        };
        let transaction = self.transactions.get(&id)?;
        note(transaction);
        let snapshot = transaction.snapshot(&newest);
        Ok((snapshot, if started { id } else { Vec::new() }))
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(Vec<WriteResult>, Micros), Status> {
        let time = self.next_time();
        let mut documents = self.current.documents.clone();
        let mut names = Vec::with_capacity(writes.len());
        let mut results = Vec::with_capacity(writes.len());
        for write in writes {
            names.push(writes::target(write)?.to_owned());
            results.push(writes::apply(&mut documents, write, time)?);
        }
        if !writes.is_empty() {
            self.publish(Snapshot { documents, time }, names);
        }
        Ok((results, time))
    }

    fn publish(&mut self, snapshot: Snapshot, names: Vec<String>) {
        self.current = snapshot;
        if self.listeners.is_empty() {
            return;
        }
        let committed = Committed {
            snapshot: self.current.clone(),
            names: names.into(),
        };
        self.listeners
            .retain(|listener| listener.send(committed.clone()).is_ok());
    }

    /// The current state, as of now: no commit after it gets an earlier time.
    fn newest(&mut self) -> Snapshot {
        self.current.time = self.current.time.max(self.now());
        self.current.clone()
    }

    fn next_time(&self) -> Micros {
        self.now().max(self.current.time + 1)
    }

    fn now(&self) -> Micros {
        now().saturating_add(self.ahead)
    }
}
