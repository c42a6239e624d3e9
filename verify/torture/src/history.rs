//! What processes record.

use serde::{Deserialize, Serialize};

/// One call and its result, as the process saw it that made the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Which process made it.
    pub process: u32,
    /// The lock: each is checked for itself.
    pub key: String,
    /// What was asked.
    pub call: Call,
    /// When it was asked.
    pub start: Moment,
    /// When the result was there, or the caller gave up, or its process had ended.
    pub end: Moment,
    /// The result.
    pub outcome: Outcome,
}

/// A moment, on two clocks of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Of the clock that never goes back, and that all processes share, in microseconds: what was before what.
    pub order_us: u64,
    /// Of the clock that stores read, in milliseconds since the Unix epoch: when a lock ends.
    pub wall_ms: i64,
}

/// What a process asks. `lock` is a number for a lock id; no two acquisitions have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Call {
    Acquire {
        lock: u64,
        ttl_ms: i64,
    },
    /// An acquisition of the key together with all its other readers.
    Join {
        lock: u64,
        ttl_ms: i64,
    },
    /// An acquisition whose lock id nobody has seen, as that of a wait that was given up. It has a number of its own.
    AcquireUnseen {
        number: u64,
        ttl_ms: i64,
    },
    /// What undoes it.
    ReleaseUnseen {
        number: u64,
    },
    Release {
        lock: u64,
    },
    Extend {
        lock: u64,
        ttl_ms: i64,
    },
    ForceRelease,
    IsLocked,
    LookUpKey,
    LookUpLock {
        lock: u64,
    },
    /// The same, of a lock whose acquisition was cancelled so long ago that it must have been undone.
    LookUpUndone {
        lock: u64,
    },
    /// No call: what becomes of a reader of whom nobody knows any more whether it is there.
    Lose {
        lock: u64,
    },
    /// No call: what the store does when it loses what it knows, as in a failover to a replica that is behind. Fences
    /// go on rising nevertheless.
    Forget,
    /// No call either: what the store may do with a dead lock before its clock is set back, after which it would be live
    /// again. It is removed, or not.
    Sweep,
}

impl Call {
    /// The lock id's number, if it has one.
    pub fn lock(self) -> Option<u64> {
        match self {
            Self::Acquire { lock, .. }
            | Self::Join { lock, .. }
            | Self::Release { lock }
            | Self::Extend { lock, .. }
            | Self::Lose { lock }
            | Self::LookUpLock { lock }
            | Self::LookUpUndone { lock } => Some(lock),
            _ => None,
        }
    }

    /// Whether it changes nothing.
    pub fn only_looks(self) -> bool {
        matches!(
            self,
            Self::IsLocked | Self::LookUpKey | Self::LookUpLock { .. } | Self::LookUpUndone { .. }
        )
    }
}

/// What a process is told. Operations that certainly had no effect are not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The lock was granted.
    Acquired {
        /// Its fence.
        fence: u64,
        /// When it ends.
        expires_at_ms: i64,
    },
    /// Somebody else holds the lock.
    Locked,
    /// Readers hold the lock.
    LockedByReaders,
    /// Somebody holds the lock, alone or with others: the store does not say.
    LockedBySomebody,
    /// The lock was freed.
    Released,
    /// The lock ends later now.
    Extended {
        /// When it ends.
        expires_at_ms: i64,
    },
    /// The same of one of several locks in several places, of which the first ends then.
    ExtendedTogether {
        /// It does not end before.
        earliest_ms: i64,
    },
    /// There was such a lock, and it had expired.
    Expired,
    /// There is no such lock.
    NotFound,
    /// Yes: the key is locked, or was freed by force.
    Yes,
    /// No.
    No,
    /// A live lock was found.
    Found {
        /// Its lock id's number; `None` if the one who asked could not tell whose it is.
        lock: Option<u64>,
        /// Its fence.
        fence: u64,
        /// When it ends.
        expires_at_ms: i64,
    },
    /// A live group of readers was found.
    FoundGroup {
        /// Its fence.
        fence: u64,
        /// When it ends.
        expires_at_ms: i64,
    },
    /// Whether it had an effect is unknown, as after a time limit: it may have one later, or never. A granted lock that
    /// its caller has not seen may also be freed at any time.
    Unknown,
    /// It was refused as a whole, of which parts may have been granted meanwhile. By its end they were freed again.
    Undone,
    /// Its process ended before it had a result. It may have had an effect, and nobody undoes it.
    Interrupted,
}
