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
//! Those who share a key take one more to release or extend, in the transaction: they read the lock that they have together, and,
//! in a release, whether anybody else is left.
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
mod progress;
mod transaction;
mod transport;

use std::fmt;
use std::iter;
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
use self::ids::group_of;
pub use self::ids::{DocumentIds, KEYS};
use self::operations::acquire::WantedLock;
pub use self::operations::release::mark_after;
use self::operations::{acquire, extend, force_release, is_locked, list, lookup, mark, release};
use self::progress::Progress;
pub use self::transport::{
    Document, Documents, Further, MOST_VALUES, Page, ReadSet, ServerTime, StartedTransaction,
    Transport,
};
use crate::asking::inspection::{Facts, LockPage, LockRecord, Lookup, PageRequest};
use crate::asking::outcome::{AcquireOutcome, ExtendOutcome, Outcome, ReleaseOutcome};
use crate::asking::request::{AcquireRequest, Extension, Finish, Operation, runs_no_scripts};
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
                ClaimKind::Shared => {
                    for claim in same {
                        wanted.push(WantedLock::shared(key, &claim.lock_id)?);
                    }
                    continue;
                }
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
        let decide = |found: &Documents, now_ms| release::decide(lock_ids, found, now_ms);
        self.collections.change(&owned_by(lock_ids), decide).await
    }

    async fn finish(&self, lock_id: &LockId, done: &Finish) -> Result<ReleaseOutcome, Error> {
        self.collections
            .change(&release::finished_by(done)?, |found, now_ms| {
                release::decide_done(lock_id, done, found, now_ms).map(Progress::Decided)
            })
            .await
    }

    async fn mark(&self, key: &Key, change: &MarkChange) -> Result<Option<DoneMark>, Error> {
        let what = mark::mark_of(key)?;
        let decide = |found: &Documents, now_ms| {
            mark::decide(key, change, found, now_ms).map(Progress::Decided)
        };
        match change {
            MarkChange::Keep => self.collections.look(&what, decide).await,
            _ => self.collections.change(&what, decide).await,
        }
    }

    async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome, Error> {
        let what = owned_by(&extension.lock_ids);
        let decide = |found: &Documents, now_ms| extend::decide(extension, found, now_ms);
        let sending = Sending::default();
        self.collections.grant(&sending, &what, decide).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let (id, what) = lock_on(key)?;
        let decide = |found: &Documents, now_ms| is_locked::step(found, &id, now_ms);
        let state = self.collections.look(&what, decide).await?;
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
                let (id, what) = lock_on(key)?;
                let decide = |found: &Documents, now_ms| lookup::decide_by_key(found, &id, now_ms);
                self.collections.look(&what, decide).await
            }
            Lookup::LockId(lock_id) => {
                let what = owned_by(slice::from_ref(lock_id));
                let decide =
                    |found: &Documents, now_ms| lookup::decide_by_lock_id(lock_id, found, now_ms);
                self.collections.look(&what, decide).await
            }
        }
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let (id, what) = lock_on(key)?;
        let decide = |found: &Documents, now_ms| force_release::decide(found, &id, now_ms);
        self.collections.change(&what, decide).await
    }

    async fn list(&self, page: &PageRequest) -> Result<LockPage, Error> {
        let limit = page.checked_limit()?;
        let after = list::after(page.after.as_deref())?;
        // Taken before the read, as for a look-up.
        let asked_ms = self.collections.clock.now_ms();
        let page = self.collections.page(after, limit).await?;
        let now_ms = self.collections.clock.for_read(page.server_time, asked_ms);
        let (count, locks) = (page.documents.len(), list::groups(&page.documents));
        let mut found = Documents {
            locks: page.documents,
            ..Documents::default()
        };
        if !locks.is_empty() {
            let groups = named(locks);
            let (more, _) = self.collections.read(&groups).await?;
            found.add(groups, more);
        }
        Ok(list::outcome(&found, count, limit, now_ms))
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
            ClaimKind::Exclusive => lock_on(&claim.key).map(|(_, what)| what),
            // Whoever holds the gate keeps readers out, too.
            ClaimKind::Shared => [claim.key.clone(), claim.key.gate()]
                .iter()
                .map(|key| Ok(DocumentIds::of(key)?.lock))
                .collect::<Result<_, Error>>()
                .map(named),
            ClaimKind::SlotOf(_) => acquire::slots_of(&claim.key),
        };
        self.collections.transport().ok()?.watch(&what.ok()?)
    }

    async fn shut_down(&self) {
        // The connection is closed when the last operation that uses it has ended.
        self.collections.close();
    }
}

/// The id of the lock on a key, and what shows it: of one who shares a key, also what all have together.
fn lock_on(key: &Key) -> Result<(String, ReadSet), Error> {
    let id = DocumentIds::of(key)?.lock;
    let locks = iter::once(id.clone()).chain(group_of(&id)).collect();
    Ok((id, named(locks)))
}

/// What shows the locks with these ids.
fn named(locks: Vec<String>) -> ReadSet {
    let counters = Vec::new();
    ReadSet::Named { locks, counters }
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
