//! What a store is asked.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::asking::hold::Hold;
use crate::asking::inspection::{Lookup, PageRequest};
use crate::asking::limit::Limit;
use crate::asking::sending::Sending;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind, in_order};
use crate::values::due::{Due, MarkChange};
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// What a store can be asked to do, in one atomic step each.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Acquire the locks if nobody holds any of them: all or none. The fences are counted in the same step, and their limit is
    /// checked before anything is written.
    Acquire(AcquireRequest),
    /// Free the locks that these lock ids own, each for itself: what one of them owns is freed also if another owns
    /// nothing.
    Release(ReleaseRequest),
    /// Make locks end later, all or none. An expired one stays expired.
    Extend(Extension),
    /// Tell whether somebody holds the key.
    IsLocked(Key),
    /// Find a live lock, for diagnosis: it may be gone when the answer arrives.
    Lookup(Lookup),
    /// Free the key whoever holds it. The fence counter stays, so that the next holder's fence is larger than that of the
    /// holder before.
    ForceRelease(Key),
    /// List live locks, a page at a time, for people to look at: by the time they do, it is out of date. A lock that comes
    /// or goes meanwhile may be missing, and on Redis one may be listed twice. `InvalidArgument` where the store cannot.
    List(PageRequest),
    /// Run a script only if these locks are held. `InvalidArgument` where the store runs none.
    Eval(Eval),
    /// Tell for which period of the key something was done last, and change that, whoever holds the lock.
    Mark {
        /// Of which key.
        key: Key,
        /// What it is to be afterwards.
        change: MarkChange,
    },
    /// Tell how the store is set up, for diagnosis: of a cluster for each node that has locks, otherwise once. Changes
    /// nothing.
    Facts,
}

/// One attempt to acquire a lock, or several at once.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// What to lock. All who ask for several locks name them in the same order, that of their keys; claims of the same key
    /// stand side by side.
    pub claims: Batch<Claim>,
    /// How long they last, from the moment the store grants them.
    pub ttl: Ttl,
    /// What to store with them.
    pub labels: Labels,
    /// Grants the lock only if nothing was done for this period yet, or for a later one. For one claim, without slots.
    pub due: Option<Due>,
    /// Extends them once they are granted. That is the part of the functions in [`operation`](crate::operation), and
    /// not of backends.
    pub hold: Option<Box<Hold>>,
    /// When the attempt ends. A backend that finds out before what it waits for says so there.
    pub limit: Option<Arc<Limit>>,
    /// Where a backend notes when it sends the attempt.
    pub sending: Sending,
}

impl AcquireRequest {
    /// A request for one lock under a new lock id.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn new(key: Key, ttl: Ttl) -> Result<Self, Error> {
        Ok(Self::with(Batch::from([Claim::new(key)?]), ttl))
    }

    /// A request for all that is claimed, or nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for no claim, for more than [`MAX_CLAIMS`](crate::MAX_CLAIMS), for a key that is claimed in two
    /// ways (whole and by slots, or with two numbers of slots), and for more claims of a key than it has slots.
    pub fn of(claims: impl IntoIterator<Item = Claim>, ttl: Ttl) -> Result<Self, Error> {
        Ok(Self::with(in_order(claims.into_iter().collect())?, ttl))
    }

    fn with(claims: Batch<Claim>, ttl: Ttl) -> Self {
        Self {
            claims,
            ttl,
            labels: Labels::default(),
            due: None,
            hold: None,
            limit: None,
            sending: Sending::default(),
        }
    }

    /// The claim of one key itself, if nothing else is asked for.
    pub fn single(&self) -> Option<&Claim> {
        let [claim] = self.claims.as_slice() else {
            return None;
        };
        match claim.kind {
            ClaimKind::Exclusive => Some(claim),
            ClaimKind::SlotOf(_) => None,
        }
    }

    /// The same for stores that grant one lock at a time.
    pub(crate) fn only(&self) -> Result<&Claim, Error> {
        self.single().ok_or_else(one_at_a_time)
    }

    /// # Errors
    /// `InvalidArgument` for a period of several locks.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.due.is_some() && self.only().is_err() {
            true => Err(Error::invalid("due takes one key, without slots")),
            false => Ok(()),
        }
    }

    /// The ids that will own the locks, in the order of the claims.
    pub fn lock_ids(&self) -> Batch<LockId> {
        self.claims
            .iter()
            .map(|claim| claim.lock_id.clone())
            .collect()
    }
}

/// A request to free locks, each for itself.
#[derive(Debug, Clone)]
pub struct ReleaseRequest {
    /// Proof of ownership.
    pub lock_ids: Batch<LockId>,
    /// Stores in the same step that something is done. For one lock.
    pub done: Option<Finish>,
}

/// What is done once a lock is released.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The key of the lock.
    pub key: Key,
    /// The period for which it is done. It is stored only if the lock is still held, and a later one that is stored stays. A
    /// release that is repeated because its answer was lost knows by the lock id whether it was stored before: then it has
    /// released the lock, too.
    pub due: Due,
}

impl ReleaseRequest {
    /// # Errors
    /// `InvalidArgument` for what is done under several locks.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.done.is_some() && self.lock_ids.len() != 1 {
            true => Err(Error::invalid("done takes one lock id")),
            false => Ok(()),
        }
    }

    /// The lock id, and what is done once it is released; `None` for a release of locks alone.
    pub(crate) fn finish(&self) -> Option<(&LockId, &Finish)> {
        self.lock_ids.first().zip(self.done.as_ref())
    }
}

impl From<Batch<LockId>> for ReleaseRequest {
    fn from(lock_ids: Batch<LockId>) -> Self {
        Self {
            lock_ids,
            done: None,
        }
    }
}

impl<const N: usize> From<[LockId; N]> for ReleaseRequest {
    fn from(lock_ids: [LockId; N]) -> Self {
        lock_ids.into_iter().collect::<Batch<_>>().into()
    }
}

/// A request to make locks end `ttl` from now: all of them, or none if one is gone.
#[derive(Debug, Clone)]
pub struct Extension {
    /// Proof of ownership.
    pub lock_ids: Batch<LockId>,
    /// How long they are to last from the moment the store extends them.
    pub ttl: Ttl,
    /// Whether the locks extend themselves. Many of those are due together, and one may wait a moment to go to the store
    /// with others.
    pub is_heartbeat: bool,
    /// When the answer comes too late, because the locks have ended by then; `None` if that is not known. A connection that is
    /// silent is given up in time for it.
    pub needed_by: Option<Instant>,
    /// The end of its time, for a store that can tell what it waits for.
    pub limit: Option<Arc<Limit>>,
    /// Whether the holder gives the locks back, and they only end somewhat later. Nothing rests on them any more, so that replicas need not
    /// have it.
    pub gives_back: bool,
}

/// A script of the caller's, in the language of the store, to run only if all these locks are held, in one atomic step. The text
/// is a developer's; what comes from elsewhere goes into the keys and arguments.
#[derive(Clone)]
pub struct Eval {
    /// What must be held: the key, of a slot with its number, and proof of ownership.
    pub locks: Batch<(Key, LockId)>,
    /// The script's text.
    pub script: String,
    /// The names of the caller's data that it touches.
    pub keys: Vec<String>,
    /// What else it is given.
    pub arguments: Vec<String>,
    /// Where a backend notes when it sends the script.
    pub sending: Sending,
}

impl fmt::Debug for Eval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eval")
            .field("locks", &self.locks.len())
            .field("script", &self.script.len())
            .field("keys", &self.keys.len())
            .field("arguments", &self.arguments.len())
            .finish()
    }
}

/// The answer of a store that runs no scripts.
pub(crate) fn runs_no_scripts() -> Error {
    Error::invalid("this store runs no scripts: eval() is for locks in Redis")
}

fn one_at_a_time() -> Error {
    Error::invalid("this store takes one key at a time and has no slots")
}

impl Extension {
    /// One that the holder asks for.
    pub fn new(lock_ids: Batch<LockId>, ttl: Ttl) -> Self {
        Self {
            lock_ids,
            ttl,
            is_heartbeat: false,
            needed_by: None,
            limit: None,
            gives_back: false,
        }
    }
}
