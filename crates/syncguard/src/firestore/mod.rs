//! Locks in Google Cloud Firestore.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), syncguard::Error> {
//! use std::sync::Arc;
//! use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
//! use syncguard::{Backend, Key, LockOptions, lock};
//!
//! let backend: Arc<dyn Backend> = Arc::new(FirestoreBackend::new(FirestoreConfig::project("my-project"))?);
//! let guard = lock(&backend, &Key::new("account:4711")?, &LockOptions::default()).await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! At most one live lock per key among all clients whose clocks agree, and fences that grow with each acquisition of
//! a key: the lock and its counter are written in one serializable transaction.
//!
//! # What it does not
//!
//! - Firestore has no clock by which a transaction could decide, so each client uses its own. Keep the clocks synchronised:
//!   a lock counts as held for one second past its end, and if clocks differ by more than that, two clients can hold it at
//!   once. So a client whose clock differs from the time in Firestore's answers by more than [`MOST_SKEW_MS`] is refused
//!   locks, unless [`FirestoreConfig::ignore_clock_skew`] is set. What remains is what the fence is for.
//! - The field `lockId` of the collection of locks needs an index. Firestore has one by default.
//!
//! # How it works
//!
//! Acquire, release and extend are two round trips: a read that opens the transaction, and the commit. That is so for
//! any number of keys, but locks are found by their lock ids with one query for each thirty. Slots take one round trip
//! more, before: it looks which are held. If none is free, it is the only one.
//! After a conflict with another transaction they start again, within the operation's time limit.
//! `is_locked` and `lookup` are one round trip. The pure half of an operation is the function `decide` in the
//! module of its name: from the documents that were read and the time, it makes the answer and the writes.
//! Every transport shares it.
//!
//! While somebody waits for a lock, Firestore tells of changes to its document, on one stream (`Listen`) for all locks
//! of a connection. The slots of a key are one query on that stream, whatever their number. docs/firestore.md, "Waiting", says what that costs.
//!
//! [`FirestoreBackend::over_channel`] goes over a channel of the application's own; the crate `syncguard-clients` does that
//! with a client of the crate `firestore`.

// Files depend in one direction: documents, decisions, settings and errors, then operations/ and transport, then connection/,
// then this.
mod channel;
mod clock;
mod collections;
mod config;
mod connection;
mod decision;
mod documents;
mod error;
mod ids;
mod operations;
mod transaction;
mod transport;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::clock::MOST_SKEW_MS;
use self::collections::{Collections, TransportState};
pub use self::config::{Credentials, Endpoint, FirestoreConfig, WarningHook};
pub use self::connection::client::Channel;
pub use self::connection::shared::FirestoreConnection;
pub use self::decision::{Warning, Write};
pub use self::documents::{
    CounterDocument, EXPIRES_AT_FIELD, Field, LOCK_ID_FIELD, LockDocument, LockState, MarkDocument,
};
pub use self::error::{Failure, classify, code_from_name, without_token};
pub use self::ids::{DocumentIds, KEYS};
use self::operations::acquire::WantedLock;
pub use self::operations::release::mark_after;
use self::operations::{acquire, extend, force_release, is_locked, list, lookup, mark, release};
pub use self::transport::{
    Document, Documents, MOST_VALUES, Page, ReadSet, ServerTime, StartedTransaction, Transport,
};
use crate::asking::inspection::{Facts, LockPage, LockRecord, Lookup, PageRequest};
use crate::asking::outcome::{AcquireOutcome, ExtendOutcome, Outcome, ReleaseOutcome};
use crate::asking::request::{
    AcquireRequest, Extension, Finish, Operation, runs_no_scripts, shares_nothing,
};
use crate::asking::sending::Sending;
use crate::background::backend::{Backend, Capabilities};
use crate::background::work::Work;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::due::{DoneMark, MarkChange};
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::{Clock, SystemClock, TimeAuthority};
use crate::waiting::wakeups::Watch;

/// A [`Backend`] on Firestore.
pub struct FirestoreBackend {
    collections: Collections,
}

/// How often an acquisition chooses slots, if others acquire them before it does.
const TRIES: usize = 8;

impl FirestoreBackend {
    /// A backend on this machine's clock. Reads no file and does no I/O yet: the first operation does that.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field of the configuration.
    pub fn new(config: FirestoreConfig) -> Result<Self, Error> {
        Self::with_clock(config, SystemClock)
    }

    /// A backend that takes its time from `clock`. The clocks of all clients of a database must agree.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_clock(config: FirestoreConfig, clock: impl Clock) -> Result<Self, Error> {
        let connection = Arc::new(FirestoreConnection::new(config.clone())?);
        Self::starting(TransportState::NotStarted(connection), config, clock)
    }

    /// A backend on a connection that other backends may share. It ignores the environment and what `config` says
    /// about the database and how to connect to it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(
        connection: Arc<FirestoreConnection>,
        config: FirestoreConfig,
    ) -> Result<Self, Error> {
        Self::starting(TransportState::NotStarted(connection), config, SystemClock)
    }

    /// A backend over `transport`, which determines the database. It ignores the environment and what `config` says
    /// about the database and how to connect to it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(transport: Arc<dyn Transport>, config: FirestoreConfig) -> Result<Self, Error> {
        Self::starting(TransportState::Started(transport), config, SystemClock)
    }

    fn starting(
        state: TransportState,
        config: FirestoreConfig,
        clock: impl Clock,
    ) -> Result<Self, Error> {
        let config = config.validated(|_| None)?;
        Ok(Self {
            collections: Collections::new(state, config, clock, Work::default()),
        })
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let mut tries = 0;
        loop {
            let wanted = match self.choose(&request.claims).await? {
                Ok(wanted) => wanted,
                Err(locked) => return Ok(locked),
            };
            let what = acquire::state_of(&wanted, request.due.as_ref());
            let decide =
                |found: &Documents, now_ms| acquire::decide(request, &wanted, found, now_ms);
            let outcome = self
                .collections
                .grant(&request.sending, &what, decide)
                .await?;
            tries += 1;
            // Somebody else may have acquired a slot since it was chosen, and another one be free.
            match outcome {
                AcquireOutcome::Locked { claim, .. }
                    if tries < TRIES && request.claims[claim].kind.slots().is_some() => {}
                outcome => return Ok(outcome),
            }
        }
    }

    /// The locks that these claims are to get. For slots, it looks which are free, outside of any transaction: a
    /// transaction that had read them all would conflict with each that takes or frees one.
    async fn choose(
        &self,
        claims: &[Claim],
    ) -> Result<Result<Batch<WantedLock>, AcquireOutcome>, Error> {
        let mut wanted = Batch::new();
        for same in claims.chunk_by(|a, b| a.key == b.key) {
            let Some(Claim { key, kind, .. }) = same.first() else {
                continue;
            };
            let slots = match kind {
                ClaimKind::Exclusive => {
                    wanted.push(WantedLock::of(key.clone())?);
                    continue;
                }
                ClaimKind::Shared => return Err(shares_nothing("Firestore")),
                ClaimKind::SlotOf(slots) => slots,
            };
            let (found, now_ms) = self.collections.read(&acquire::slots_of(key)?).await?;
            match acquire::choose(same, *slots, &found, now_ms)? {
                Ok(chosen) => wanted.extend(chosen),
                Err(none) => return Ok(Err(none.answer(wanted.len()))),
            }
        }
        Ok(Ok(wanted))
    }

    async fn release(&self, lock_ids: &[LockId]) -> Result<Batch<ReleaseOutcome>, Error> {
        self.collections
            .change(&owned_by(lock_ids), |found, now_ms| {
                Ok(release::decide(lock_ids, &found.locks()?, now_ms))
            })
            .await
    }

    async fn finish(&self, lock_id: &LockId, done: &Finish) -> Result<ReleaseOutcome, Error> {
        self.collections
            .change(&release::finished_by(done)?, |found, now_ms| {
                release::decide_done(lock_id, done, found, now_ms)
            })
            .await
    }

    async fn mark(&self, key: &Key, change: &MarkChange) -> Result<Option<DoneMark>, Error> {
        let what = mark::mark_of(key)?;
        if *change == MarkChange::Keep {
            let (found, now_ms) = self.collections.read(&what).await?;
            return Ok(mark::decide(key, change, &found, now_ms)?.answer);
        }
        self.collections
            .change(&what, |found, now_ms| {
                mark::decide(key, change, found, now_ms)
            })
            .await
    }

    async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome, Error> {
        self.collections
            .grant(
                &Sending::default(),
                &owned_by(&extension.lock_ids),
                |found, now_ms| Ok(extend::decide(extension, &found.locks()?, now_ms)),
            )
            .await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let what = lock_on(key)?;
        let (found, now_ms) = self.collections.read(&what).await?;
        let state = is_locked::decide(found.lock()?.as_ref(), now_ms);
        if state == is_locked::DocumentState::LeftOver
            && self.collections.config.cleanup_in_is_locked
        {
            self.collections.clean_up(what);
        }
        Ok(state == is_locked::DocumentState::Locked)
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error> {
        match lookup {
            Lookup::Key(key) => {
                let (found, now_ms) = self.collections.read(&lock_on(key)?).await?;
                Ok(lookup::decide_by_key(found.lock_document()?, now_ms))
            }
            Lookup::LockId(lock_id) => {
                let (found, now_ms) = self
                    .collections
                    .read(&owned_by(slice::from_ref(lock_id)))
                    .await?;
                let document = |id: &str| found.lock_document_of(id);
                let decision =
                    lookup::decide_by_lock_id(lock_id, &found.locks()?, document, now_ms)?;
                decision
                    .warnings
                    .iter()
                    .for_each(|it| self.collections.warn(it));
                Ok(decision.answer)
            }
        }
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let what = lock_on(key)?;
        self.collections
            .change(&what, |found, now_ms| {
                Ok(force_release::decide(found.lock()?.as_ref(), now_ms))
            })
            .await
    }

    async fn list(&self, page: &PageRequest) -> Result<LockPage, Error> {
        let limit = page.checked_limit()?;
        let after = list::after(page.after.as_deref())?;
        // Taken before the read, as for a look-up.
        let asked_ms = self.collections.clock.now_ms();
        let found = self.collections.page(after, limit).await?;
        let now_ms = self.collections.clock.for_read(found.server_time, asked_ms);
        Ok(list::outcome(&found, limit, now_ms))
    }

    async fn facts(&self) -> Result<Vec<Facts>, Error> {
        let mut facts = Facts::default();
        let found = self.collections.page(None, 1).await?;
        if let Some(time) = found.server_time {
            facts.add("serverTimeMs", time.at_ms);
        }
        Ok(vec![facts])
    }
}

#[async_trait]
impl Backend for FirestoreBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "firestore",
            supports_fencing: true,
            time_authority: TimeAuthority::Client,
        }
    }

    fn work(&self) -> &Work {
        &self.collections.work
    }

    fn operation_timeout(&self) -> Duration {
        self.collections.config.operation_timeout
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(request).await?),
            Operation::Release(release) => Outcome::Release(match release.finish() {
                None => self.release(&release.lock_ids).await?,
                Some((lock_id, done)) => Batch::from([self.finish(lock_id, done).await?]),
            }),
            Operation::Extend(extension) => Outcome::Extend(self.extend(extension).await?),
            Operation::IsLocked(key) => Outcome::IsLocked(self.is_locked(key).await?),
            Operation::Lookup(lookup) => Outcome::Lookup(self.lookup(lookup).await?),
            Operation::ForceRelease(key) => Outcome::ForceRelease(self.force_release(key).await?),
            Operation::List(page) => Outcome::List(self.list(page).await?),
            Operation::Eval(_) => return Err(runs_no_scripts()),
            Operation::Mark { key, change } => Outcome::Mark(self.mark(key, change).await?),
            Operation::Facts => Outcome::Facts(self.facts().await?),
        })
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let what = match claim.kind {
            ClaimKind::Exclusive | ClaimKind::Shared => lock_on(&claim.key),
            ClaimKind::SlotOf(_) => acquire::slots_of(&claim.key),
        };
        self.collections.transport().ok()?.watch(&what.ok()?)
    }

    async fn shut_down(&self) {
        // The connection is closed when the last operation that uses it has ended.
        self.collections.close();
    }
}

fn lock_on(key: &Key) -> Result<ReadSet, Error> {
    Ok(ReadSet::Named {
        locks: vec![DocumentIds::of(key)?.lock],
        counters: Vec::new(),
    })
}

fn owned_by(lock_ids: &[LockId]) -> ReadSet {
    let texts = lock_ids.iter().map(|lock_id| lock_id.as_str().to_owned());
    ReadSet::Owned {
        lock_ids: texts.collect(),
    }
}

impl fmt::Debug for FirestoreBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirestoreBackend")
            .field("config", &self.collections.config)
            .finish_non_exhaustive()
    }
}
