//! Transactions in progress: what they have read, and whether that still holds.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tonic::Status;

use crate::proto::TransactionOptions;
use crate::proto::transaction_options::Mode;
use crate::proto::transaction_options::read_only::ConsistencySelector;
use crate::query::Query;
use crate::time::Micros;
use crate::writes::Documents;

/// Firestore ends a transaction that is idle for a minute.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// How often to look for transactions that were abandoned.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// All documents at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) documents: Documents,
    pub(crate) time: Micros,
}

/// One transaction. All its reads see the documents as they were at its first read.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) read_only: bool,
    snapshot: Option<Snapshot>,
    documents: HashSet<String>,
    queries: Vec<Query>,
    last_used: Instant,
}

impl Transaction {
    /// What the transaction reads from; `current` if this is its first read.
    pub(crate) fn snapshot(&mut self, current: &Snapshot) -> Snapshot {
        self.snapshot.get_or_insert_with(|| current.clone()).clone()
    }

    /// Remembers that a document was read, or found missing.
    pub(crate) fn has_read(&mut self, name: &str) {
        if !self.read_only {
            self.documents.insert(name.to_owned());
        }
    }

    /// Remembers that a query was run.
    pub(crate) fn has_run(&mut self, query: Query) {
        if !self.read_only {
            self.queries.push(query);
        }
    }

    /// Whether everything that was read is still as it was: documents, their absence, and the
    /// results of queries.
    pub(crate) fn still_holds(&self, current: &Snapshot) -> bool {
        let Some(snapshot) = &self.snapshot else {
            return true;
        };
        if snapshot.documents.ptr_eq(&current.documents) {
            return true;
        }
        let same = |name: &String| {
            let version =
                |documents: &Documents| documents.get(name).map(|found| found.update_time);
            version(&snapshot.documents) == version(&current.documents)
        };
        let unchanged = |query: &Query| {
            let versions = |documents: &Documents| -> Vec<_> {
                let found = query.run(documents).into_iter();
                found
                    .map(|found| (found.name.clone(), found.update_time))
                    .collect()
            };
            versions(&snapshot.documents) == versions(&current.documents)
        };
        self.documents.iter().all(same) && self.queries.iter().all(unchanged)
    }
}

/// All transactions in progress, by id.
#[derive(Debug)]
pub(crate) struct Transactions {
    active: HashMap<Vec<u8>, Transaction>,
    count: u64,
    idle_limit: Duration,
    swept: Instant,
}

impl Transactions {
    pub(crate) fn new(idle_limit: Duration) -> Self {
        Self {
            active: HashMap::new(),
            count: 0,
            idle_limit,
            swept: Instant::now(),
        }
    }

    /// Starts one and returns its id.
    pub(crate) fn begin(
        &mut self,
        options: Option<&TransactionOptions>,
    ) -> Result<Vec<u8>, Status> {
        let read_only = match options.and_then(|options| options.mode.as_ref()) {
            Some(Mode::ReadOnly(mode)) => {
                if let Some(ConsistencySelector::ReadTime(_)) = mode.consistency_selector {
                    return Err(no_read_time());
                }
                true
            }
            Some(Mode::ReadWrite(mode)) => {
                // The attempt that is retried is over, whatever became of it.
                self.active.remove(&mode.retry_transaction);
                false
            }
            None => false,
        };
        self.sweep();
        self.count += 1;
        let id = [self.count.to_be_bytes(), fastrand::u64(..).to_be_bytes()].concat();
        let transaction = Transaction {
            read_only,
            snapshot: None,
            documents: HashSet::new(),
            queries: Vec::new(),
            last_used: Instant::now(),
        };
        self.active.insert(id.clone(), transaction);
        Ok(id)
    }

    /// The one of that id, for a read.
    pub(crate) fn get(&mut self, id: &[u8]) -> Result<&mut Transaction, Status> {
        let limit = self.idle_limit;
        let transaction = self.active.get_mut(id).ok_or_else(expired)?;
        if transaction.last_used.elapsed() > limit {
            return Err(expired());
        }
        transaction.last_used = Instant::now();
        Ok(transaction)
    }

    /// Takes the one of that id out: it ends, well or not.
    pub(crate) fn end(&mut self, id: &[u8]) -> Result<Transaction, Status> {
        self.get(id)?;
        self.active.remove(id).ok_or_else(expired)
    }

    /// How many are in progress.
    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    fn sweep(&mut self) {
        if self.swept.elapsed() < SWEEP_INTERVAL.min(self.idle_limit) {
            return;
        }
        self.swept = Instant::now();
        let limit = self.idle_limit;
        self.active
            .retain(|_, transaction| transaction.last_used.elapsed() <= limit);
    }
}

/// Clients know an expired transaction by this code and these words.
fn expired() -> Status {
    Status::invalid_argument("The referenced transaction has expired or is no longer valid.")
}

pub(crate) fn no_read_time() -> Status {
    Status::unimplemented("this emulator does not read at a given time")
}
