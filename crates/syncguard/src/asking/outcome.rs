//! The answers of a store.

use std::time::Duration;

use crate::asking::inspection::{Facts, LockPage, LockRecord};
use crate::asking::reply::Reply;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::due::DoneMark;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

/// The store's answer to an [`Operation`](crate::Operation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What an acquisition has come to.
    Acquire(AcquireOutcome),
    /// What a release has come to, for each lock in the order of the lock ids.
    Release(Batch<ReleaseOutcome>),
    /// What an extension has come to.
    Extend(ExtendOutcome),
    /// Whether somebody holds the key.
    IsLocked(bool),
    /// The live lock that was looked for.
    Lookup(Option<LockRecord>),
    /// Whether somebody held the key.
    ForceRelease(bool),
    /// Some of the live locks.
    List(LockPage),
    /// What a script has come to.
    Eval(EvalOutcome),
    /// The mark as it was before any change; `None` if nothing was done for any period yet.
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
    /// The fence. It is larger than that of every earlier holder of the key, or of this slot of it.
    pub fence: Fence,
    /// When the lock ends, by the store's clock, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

impl Grant {
    /// The key of the lock that was granted. A slot's has its number, and a reader's its lock id.
    pub fn key_of(&self, claim: &Claim) -> Key {
        match (claim.kind, self.slot) {
            (ClaimKind::Shared, _) => claim.key.reader(&self.lock_id),
            (_, Some(number)) => claim.key.slot(number),
            (_, None) => claim.key.clone(),
        }
    }
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
        /// How long until the lock that stands in the way ends by itself and somebody else can have it, if the store has said so. Its
        /// holder may release it before, or extend it.
        free_in: Option<Duration>,
        /// The labels of that lock, if the store has said them. If all slots are held, those of the one that ends first.
        labels: Labels,
        /// Whether the lock in the way is shared. Readers that join it pass whoever waits for the key alone.
        is_shared: bool,
    },
    /// Something was done already for the period that was asked for, or for a later one.
    Done(DoneMark),
}

impl AcquireOutcome {
    /// The outcome for one lock that was granted.
    pub fn one(grant: Grant) -> Self {
        Self::Acquired(Batch::from([grant]))
    }

    /// Whether somebody holds one of the locks.
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
    /// The locks were held, and the script has run.
    Done(Reply),
    /// One of them was not there, and nothing of the script has run.
    Absent {
        /// Which one: the first that is missing.
        lock: usize,
        /// Why.
        absence: Absence,
    },
}

/// The types that can be taken out of an [`Outcome`]: what each kind holds, and the outcome itself.
pub trait FromOutcome: Sized {
    /// Takes the answer out of `outcome`.
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

/// The answer to a release of one lock.
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
