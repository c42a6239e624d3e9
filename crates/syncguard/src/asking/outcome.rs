//! What a store answers.

use std::time::Duration;

use crate::asking::inspection::{Facts, LockPage, LockRecord};
use crate::asking::reply::Reply;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::due::DoneMark;
use crate::values::fence::Fence;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

/// What came of an [`Operation`](crate::Operation) that the store has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of an acquisition.
    Acquire(AcquireOutcome),
    /// Of a release, in the order of the lock ids.
    Release(Batch<ReleaseOutcome>),
    /// Of an extension.
    Extend(ExtendOutcome),
    /// Whether somebody holds the key.
    IsLocked(bool),
    /// The live lock that fits.
    Lookup(Option<LockRecord>),
    /// Whether somebody held the key.
    ForceRelease(bool),
    /// Some of the live locks.
    List(LockPage),
    /// Of a script.
    Eval(EvalOutcome),
    /// For which period something was done last, before any change; `None`: for none yet.
    Mark(Option<DoneMark>),
    /// How the store is set up.
    Facts(Vec<Facts>),
}

/// A lock that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Proof of ownership: give it to release and extend.
    pub lock_id: LockId,
    /// Which slot of the key it is, if a slot was asked for.
    pub slot: Option<u16>,
    /// Larger than that of every earlier holder of the key, or of that slot of it.
    pub fence: Fence,
    /// When it ends, on the store's clock, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

/// The result of an attempt to acquire locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The locks were granted to the caller, in the order of the claims.
    Acquired(Batch<Grant>),
    /// Somebody holds one of them, and none was granted.
    Locked {
        /// Which claim stood in the way.
        claim: usize,
        /// How long until what stands in the way ends by itself and somebody else can have it, if the store has said so. Its
        /// holder may release it before, or extend it.
        free_in: Option<Duration>,
        /// What is stored with it, if the store has said so. Of slots, with the one that ends first.
        labels: Labels,
    },
    /// Nothing is to be done any more for the period that was asked for: for this one or a later one it was.
    Done(DoneMark),
}

impl AcquireOutcome {
    /// The outcome for one lock that was granted.
    pub fn one(grant: Grant) -> Self {
        Self::Acquired(Batch::from([grant]))
    }

    /// Whether somebody holds one of them.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. })
    }
}

/// Why there was nothing to release or extend. Only telemetry shows it: callers get the same answer for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The lock existed and had expired.
    Expired,
    /// There is no lock with this lock id.
    NotFound,
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock was the caller's and is free now.
    Released,
    /// There was nothing to release.
    Absent(Absence),
}

/// The result of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The caller holds the locks for longer.
    Extended {
        /// When the first of them ends now, on the store's clock, in milliseconds since the Unix epoch.
        expires_at_ms: i64,
    },
    /// One of them was not there, and none was extended.
    Absent {
        /// Which one: the first that is missing.
        lock: usize,
        /// Why.
        absence: Absence,
    },
}

impl ExtendOutcome {
    /// The outcome for one lock that was not there.
    pub fn absent(absence: Absence) -> Self {
        Self::Absent { lock: 0, absence }
    }
}

/// The result of a script that was to run only if locks were held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalOutcome {
    /// They were held, and it has run.
    Done(Reply),
    /// One of them was not there, and nothing of the script has run.
    Absent {
        /// Which one: the first that is missing.
        lock: usize,
        /// Why.
        absence: Absence,
    },
}

/// What an [`Outcome`] of one kind holds, or an outcome of any kind.
pub trait FromOutcome: Sized {
    /// What `outcome` holds.
    ///
    /// # Errors
    /// `Internal` if it is of another kind.
    fn of(outcome: Outcome) -> Result<Self, Error>;
}

impl FromOutcome for Outcome {
    fn of(outcome: Outcome) -> Result<Self, Error> {
        Ok(outcome)
    }
}

/// Of a release of one lock.
impl FromOutcome for ReleaseOutcome {
    fn of(outcome: Outcome) -> Result<Self, Error> {
        match Batch::<Self>::of(outcome)?.as_slice() {
            [single] => Ok(*single),
            _ => Err(of_another()),
        }
    }
}

fn of_another() -> Error {
    Error::new(ErrorKind::Internal, "the answer is of another operation")
}

macro_rules! answers {
    ($($answer:ty: $($kind:ident)|+;)+) => {
        $(impl FromOutcome for $answer {
            fn of(outcome: Outcome) -> Result<Self, Error> {
                match outcome {
                    $(Outcome::$kind(answer))|+ => Ok(answer),
                    _ => Err(of_another()),
                }
            }
        })+
    };
}

answers! {
    AcquireOutcome: Acquire;
    Batch<ReleaseOutcome>: Release;
    ExtendOutcome: Extend;
    bool: IsLocked | ForceRelease;
    Option<LockRecord>: Lookup;
    LockPage: List;
    EvalOutcome: Eval;
    Option<DoneMark>: Mark;
    Vec<Facts>: Facts;
}
