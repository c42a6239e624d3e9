//! How operations are recorded, those as well that concern several keys.
//!
//! Each key is checked for itself. A set is a lease on each of its keys, granted, extended and freed in one call; a slot is a
//! key of its own, and an acquisition of any slot is one of each: granted on one of them and without effect on the
//! others, or refused on all.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::Duration;

use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Batch, Claim, ClaimKind, Error, ErrorKind,
    ExtendOutcome, Grant, Key, LockId, ReleaseOutcome, Ttl,
};

use crate::history::{Call, Outcome};
use crate::record::Recorder;

/// An operation on its way.
pub(super) struct Sent {
    calls: Vec<SentCall>,
    is_spread: bool,
}

/// What was recorded of it for one key.
struct SentCall {
    number: u64,
    key: Key,
    /// Of which claim, or of which lock.
    at: usize,
}

/// How each call has ended, by its number; `None`: it certainly had no effect.
pub(super) type Ends = Vec<(u64, Option<Outcome>)>;

impl Sent {
    /// An acquisition, with all keys of which it may be granted one.
    pub(super) fn acquire(
        recorder: &Recorder,
        request: &AcquireRequest,
        is_spread: bool,
    ) -> io::Result<Self> {
        let mut calls = Vec::new();
        for (at, claim) in request.claims.iter().enumerate() {
            let call = asked(claim, request.ttl);
            for key in keys_of(claim) {
                let number = recorder.start(key.as_str(), call)?;
                calls.push(SentCall { number, key, at });
            }
        }
        Ok(Self { calls, is_spread })
    }

    /// An extension of locks, or a release. Of one that is released before its grant is known, there may be several keys.
    pub(super) fn of_locks<'a>(
        recorder: &Recorder,
        locks: impl IntoIterator<Item = (&'a [Key], &'a LockId)>,
        extended: Option<Ttl>,
        is_spread: bool,
    ) -> io::Result<Self> {
        let mut calls = Vec::new();
        for (at, (keys, lock_id)) in locks.into_iter().enumerate() {
            let lock = number(lock_id);
            let call = match extended.map(Ttl::as_millis) {
                Some(ttl_ms) => Call::Extend { lock, ttl_ms },
                None => Call::Release { lock },
            };
            for key in keys {
                let number = recorder.start(key.as_str(), call)?;
                let key = key.clone();
                calls.push(SentCall { number, key, at });
            }
        }
        Ok(Self { calls, is_spread })
    }

    pub(super) fn acquired(
        &self,
        claims: &[Claim],
        answer: Result<&AcquireOutcome, &Error>,
    ) -> Ends {
        let is_granted = matches!(answer, Ok(AcquireOutcome::Acquired(_)));
        // Some of it may have been granted, and was freed before the answer was given.
        let undone = (self.is_spread && !is_granted).then_some(Outcome::Undone);
        self.ends(|call| {
            let outcome = match answer {
                Ok(AcquireOutcome::Acquired(grants)) => {
                    let (claim, grant) = (claims.get(call.at)?, grants.get(call.at)?);
                    (granted_key(claim, grant) == call.key).then(|| acquired(grant))
                }
                // All slots were held if a first one was wanted; with more, one may have been free.
                Ok(AcquireOutcome::Locked {
                    claim,
                    is_shared,
                    free_in,
                    ..
                }) if *claim == call.at && !takes_more(claims, call.at) => {
                    Some(refused(*is_shared, *free_in))
                }
                Ok(_) => None,
                Err(error) => after_error(error),
            };
            outcome.or(undone)
        })
    }

    pub(super) fn extended(&self, answer: Result<&ExtendOutcome, &Error>) -> Ends {
        self.ends(|call| match answer {
            Ok(ExtendOutcome::Extended { expires_at_ms }) => Some(match self.is_spread {
                false => Outcome::Extended {
                    expires_at_ms: *expires_at_ms,
                },
                true => Outcome::ExtendedTogether {
                    earliest_ms: *expires_at_ms,
                },
            }),
            Ok(ExtendOutcome::Absent { lock, absence }) if *lock == call.at => {
                Some(absent(*absence))
            }
            Ok(ExtendOutcome::Absent { .. }) => self.is_spread.then_some(Outcome::Unknown),
            Err(error) => after_error(error),
        })
    }

    pub(super) fn released(&self, answer: Result<&Batch<ReleaseOutcome>, &Error>) -> Ends {
        let is_one = |at| self.calls.iter().filter(|call| call.at == at).count() == 1;
        self.ends(|call| match answer {
            Ok(outcomes) => Some(match outcomes.get(call.at)? {
                ReleaseOutcome::Absent(Absence::NotFound) => Outcome::NotFound,
                // It was the lock of one of several keys, and nobody knows of which.
                _ if !is_one(call.at) => Outcome::Unknown,
                ReleaseOutcome::Released => Outcome::Released,
                ReleaseOutcome::Absent(absence) => absent(*absence),
            }),
            Err(error) => after_error(error),
        })
    }

    /// Nobody has waited for its answer.
    pub(super) fn unknown(&self) -> Ends {
        self.ends(|_| Some(Outcome::Unknown))
    }

    fn ends(&self, end: impl Fn(&SentCall) -> Option<Outcome>) -> Ends {
        let calls = self.calls.iter();
        calls.map(|call| (call.number, end(call))).collect()
    }
}

/// What is asked by a claim.
pub(super) fn asked(claim: &Claim, ttl: Ttl) -> Call {
    let (lock, ttl_ms) = (number(&claim.lock_id), ttl.as_millis());
    match claim.kind {
        ClaimKind::Shared => Call::Join { lock, ttl_ms },
        ClaimKind::Exclusive | ClaimKind::SlotOf(_) => Call::Acquire { lock, ttl_ms },
    }
}

/// Refused by somebody who has the lock, or by readers. Where the store has not seen the lock itself, it gives no time.
pub(super) fn refused(is_shared: bool, free_in: Option<Duration>) -> Outcome {
    match (is_shared, free_in) {
        (true, _) => Outcome::LockedByReaders,
        (false, Some(_)) => Outcome::Locked,
        (false, None) => Outcome::LockedBySomebody,
    }
}

/// The key of a lock that was granted. A slot that there is not stands for one that somebody else may have.
pub(super) fn granted_key(claim: &Claim, grant: &Grant) -> Key {
    match (claim.kind, grant.slot) {
        (ClaimKind::SlotOf(slots), Some(number)) => {
            let in_range = number.wrapping_sub(1) % slots.count() + 1;
            claim.key.slot(in_range)
        }
        _ => claim.key.clone(),
    }
}

/// The keys of which one may be granted.
pub(super) fn keys_of(claim: &Claim) -> Vec<Key> {
    match claim.kind {
        ClaimKind::Exclusive | ClaimKind::Shared => vec![claim.key.clone()],
        ClaimKind::SlotOf(slots) => {
            let numbers = 1..=slots.count();
            numbers.map(|number| claim.key.slot(number)).collect()
        }
    }
}

/// Whether that claim is one of several of its key.
fn takes_more(claims: &[Claim], at: usize) -> bool {
    let key = claims.get(at).map(|claim| &claim.key);
    let same = |claim: &&Claim| Some(&claim.key) == key;
    claims.iter().filter(same).count() > 1
}

/// What is known of an operation's effect; `None` if it certainly had none.
pub(super) fn outcome<T>(
    answer: &Result<T, Error>,
    read: impl FnOnce(&T) -> Outcome,
) -> Option<Outcome> {
    match answer {
        Ok(answer) => Some(read(answer)),
        Err(error) => after_error(error),
    }
}

pub(super) fn after_error(error: &Error) -> Option<Outcome> {
    let may_have_been_sent = error.is_outcome_unknown()
        || matches!(
            error.kind(),
            // The last attempt of a wait is cut short.
            ErrorKind::NetworkTimeout | ErrorKind::AcquisitionTimeout | ErrorKind::Aborted
        )
        || error.message().starts_with("Operation timed out");
    may_have_been_sent.then_some(Outcome::Unknown)
}

pub(super) fn acquired(grant: &Grant) -> Outcome {
    Outcome::Acquired {
        fence: grant.fence.get(),
        expires_at_ms: grant.expires_at_ms,
    }
}

pub(super) fn absent(absence: Absence) -> Outcome {
    match absence {
        Absence::Expired => Outcome::Expired,
        Absence::NotFound => Outcome::NotFound,
    }
}

pub(super) fn yes_or_no(answer: &bool) -> Outcome {
    if *answer { Outcome::Yes } else { Outcome::No }
}

pub(super) fn number(lock_id: &LockId) -> u64 {
    let mut hasher = DefaultHasher::new();
    lock_id.as_str().hash(&mut hasher);
    hasher.finish()
}
