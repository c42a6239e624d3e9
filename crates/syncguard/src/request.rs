//! What a store is asked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::holding::Hold;
use crate::inspection::{Lookup, PageRequest};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::owner::Owner;
use crate::ttl::Ttl;

/// What a store can be asked to do, in one atomic step each.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Take the lock if nobody holds it. The fence is counted in the same step, and its limit is checked before anything
    /// is written.
    Acquire(AcquireRequest),
    /// Free the lock that this lock id owns, if it owns one.
    Release(LockId),
    /// Make a lock end later. An expired one stays expired.
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
    /// Tell how the store is set up, for diagnosis: of a cluster for each node that has locks, otherwise once. Changes
    /// nothing.
    Facts,
}

/// One attempt to take a lock.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// What to lock.
    pub key: Key,
    /// How long it lasts, from the moment the store grants it.
    pub ttl: Ttl,
    /// The id that will own the lock. The caller generates it, so that it can undo an attempt whose answer is
    /// lost. [`Backend::prepare`](crate::Backend::prepare) may change it, before anything is sent.
    pub lock_id: LockId,
    /// A label to store with it.
    pub owner: Option<Owner>,
    /// Extends it once it is granted. That is the part of the functions in [`operation`](crate::operation), and
    /// not of backends.
    pub hold: Option<Box<Hold>>,
    /// When the attempt ends. A backend that finds out before what it waits for says so there.
    pub limit: Option<Arc<Limit>>,
}

/// The end of an attempt's time.
#[derive(Debug)]
pub struct Limit {
    /// When that is.
    pub at: Instant,
    /// What the attempt waits for, in words that may follow those of the error: no key and no credentials.
    pub waits_for: OnceLock<String>,
}

impl Limit {
    /// The end of a time that begins now.
    pub fn after(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            at: now.checked_add(time).unwrap_or(now),
            waits_for: OnceLock::new(),
        }
    }
}

impl AcquireRequest {
    /// A request under a new lock id.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn new(key: Key, ttl: Ttl) -> Result<Self, Error> {
        Ok(Self {
            key,
            ttl,
            lock_id: LockId::generate()?,
            owner: None,
            hold: None,
            limit: None,
        })
    }
}

/// A request to make the lock that `lock_id` owns end `ttl` from now.
#[derive(Debug, Clone)]
pub struct Extension {
    /// Proof of ownership.
    pub lock_id: LockId,
    /// How long it is to last from the moment the store extends it.
    pub ttl: Ttl,
    /// Whether the lock extends itself. Many of those are due together, and one may wait a moment to go to the store
    /// with others.
    pub is_heartbeat: bool,
}

impl Extension {
    /// One that the holder asks for.
    pub fn new(lock_id: LockId, ttl: Ttl) -> Self {
        Self {
            lock_id,
            ttl,
            is_heartbeat: false,
        }
    }
}
