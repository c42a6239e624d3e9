//! The requests to a store.

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
    /// Acquire all locks if nobody holds any of them, or none. The fences are counted in the same step, and their limit is checked
    /// before anything is written.
    Acquire(AcquireRequest),
    /// Free the locks with these lock ids, each for itself: if one is not there, the others are freed all the same.
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
    /// List live locks, a page at a time, for people to look at: by then the list is out of date. A lock that comes or goes
    /// meanwhile may be missing, and Redis may list one twice. `InvalidArgument` if the store cannot list.
    List(PageRequest),
    /// Run a script only if these locks are held. `InvalidArgument` if the store runs no scripts.
    Eval(Eval),
    /// Tell for which period of a key something was done last, and change that, whoever holds the lock.
    Mark {
        /// The key.
        key: Key,
        /// How to change the mark.
        change: MarkChange,
    },
    /// Tell how the store is set up, for diagnosis. A cluster tells it for each node that has locks, other stores once. Changes
    /// nothing.
    Facts,
}

/// One attempt to acquire a lock, or several at once.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// The claims, in the order of their keys, which is the same for all who ask for several locks. Claims of the same key stand
    /// side by side.
    pub claims: Batch<Claim>,
    /// How long the locks last, from the moment the store grants them.
    pub ttl: Ttl,
    /// The labels to store with the locks. Default: the owner is [this process](crate::Owner::of_process).
    pub labels: Labels,
    /// Grants the lock only if nothing was done yet for this period or a later one. For one claim, without slots.
    pub due: Option<Due>,
    /// How to extend the locks once they are granted. The functions in [`operation`](crate::operation) see to that, and not
    /// backends.
    pub hold: Option<Box<Hold>>,
    /// When the time of the attempt is over. A backend that knows what it waits for notes that there.
    pub limit: Option<Arc<Limit>>,
    /// The note in which a backend says when it sends the attempt.
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

    /// A request for all claims or none.
    ///
    /// # Errors
    /// `InvalidArgument` for no claim, for more than [`MAX_CLAIMS`](crate::MAX_CLAIMS), for a key that is claimed in two
    /// ways (whole, shared or by slots, or with two numbers of slots), and for more claims of a key than it has slots.
    pub fn of(claims: impl IntoIterator<Item = Claim>, ttl: Ttl) -> Result<Self, Error> {
        Ok(Self::with(in_order(claims.into_iter().collect())?, ttl))
    }

    fn with(claims: Batch<Claim>, ttl: Ttl) -> Self {
        Self {
            claims,
            ttl,
            labels: Labels::of_process(),
            due: None,
            hold: None,
            limit: None,
            sending: Sending::default(),
        }
    }

    /// The claim, if it is the only one and of the key itself, for one holder.
    pub fn single(&self) -> Option<&Claim> {
        let [claim] = self.claims.as_slice() else {
            return None;
        };
        match claim.kind {
            ClaimKind::Exclusive => Some(claim),
            ClaimKind::Shared | ClaimKind::SlotOf(_) => None,
        }
    }

    /// As [`single`](Self::single), with the error of stores that grant one lock at a time.
    pub(crate) fn only(&self) -> Result<&Claim, Error> {
        self.single().ok_or_else(one_at_a_time)
    }

    /// # Errors
    /// `InvalidArgument` for a period with several locks, or with slots.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.due.is_some() && self.only().is_err() {
            true => Err(Error::invalid(
                "due takes one key, without slots or mode \"shared\"",
            )),
            false => Ok(()),
        }
    }

    /// The ids of the locks, in the order of the claims.
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
    /// What to store as done in the same step. For one lock.
    pub done: Option<Finish>,
}

/// What was done under a lock that is released.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The key of the lock.
    pub key: Key,
    /// The period for which it is done. It is stored only if the lock is still held, and never replaces a later one. A release that
    /// is repeated because its answer was lost sees by the lock id whether it has stored this before: then it has released the
    /// lock, too.
    pub due: Due,
}

impl ReleaseRequest {
    /// # Errors
    /// `InvalidArgument` if something is done under several locks.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.done.is_some() && self.lock_ids.len() != 1 {
            true => Err(Error::invalid("done takes one lock id")),
            false => Ok(()),
        }
    }

    /// The lock id, and what was done under the lock. `None` for a release with which nothing is stored.
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
    /// Whether this is a heartbeat. Many of them are due together, so one may wait a moment to go to the store with others.
    pub is_heartbeat: bool,
    /// When the locks end, after which the answer is of no use; `None` if that is not known. A silent connection is given up in time
    /// for another try.
    pub needed_by: Option<Instant>,
    /// When the time of the attempt is over. A backend that knows what it waits for notes that there.
    pub limit: Option<Arc<Limit>>,
    /// Whether the holder gives the locks back, and only makes them end somewhat later. Nothing depends on them any more, so replicas
    /// need not have this extension.
    pub gives_back: bool,
}

/// A caller's script, in the language of the store. It runs only if all these locks are held, in one atomic step with the check. A
/// developer writes the text; what comes from elsewhere goes into the keys and arguments.
#[derive(Clone)]
pub struct Eval {
    /// The locks that must be held: the key of each, which for a slot has its number, and its lock id.
    pub locks: Batch<(Key, LockId)>,
    /// The script's text.
    pub script: String,
    /// The names of the caller's data that the script touches.
    pub keys: Vec<String>,
    /// The arguments of the script.
    pub arguments: Vec<String>,
    /// The note in which a backend says when it sends the script.
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
    /// An extension that the holder asks for.
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
