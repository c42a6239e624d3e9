//! Whether a lock that was released went to one who waited for it.
//!
//! Those who wait are told of a release, and then try again. The sequential specification does not ask that of them:
//! a waiter who sleeps on beside a free lock breaks no promise of a lock, only that of the wait. So it is measured, on
//! keys whose locks are only ever waited for, for so long that nobody would come by without being told.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::history::{Call, Operation, Outcome};

/// The beginning of the keys whose locks are only waited for.
pub const PREFIX: &str = "wait:";

/// A lock that stayed free for too long while somebody waited for it.
#[derive(Debug)]
pub struct Slow {
    /// The lock.
    pub key: String,
    /// The fence with which it was taken over.
    pub fence: u64,
    /// For how long it had been free, and waited for.
    pub free_ms: i64,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            fence,
            free_ms,
        } = self;
        writeln!(
            f,
            "{key}: fence {fence} was granted {free_ms} ms after the release of the lock before"
        )
    }
}

/// The locks on keys with [`PREFIX`] that were waited for, and taken over more than `bound_ms` after they had been
/// released. A lock is compared with the one of the next smaller fence, unless an acquisition of unknown outcome may have
/// had the key in between, or have it still, because its effect may come `late_ms` after its end.
pub fn slow(history: &[Operation], bound_ms: i64, late_ms: i64) -> Vec<Slow> {
    let mut released_ms = HashMap::new();
    let mut granted: HashMap<&str, BTreeMap<u64, u64>> = HashMap::new();
    let mut unknown: HashMap<&str, Vec<(i64, i64)>> = HashMap::new();
    for operation in history {
        let key = operation.key.as_str();
        match (operation.call, operation.outcome) {
            (Call::Release { lock }, Outcome::Released) => {
                released_ms.insert(lock, operation.end.wall_ms);
            }
            (Call::Acquire { lock, .. }, Outcome::Acquired { fence, .. }) => {
                granted.entry(key).or_default().insert(fence, lock);
            }
            (
                Call::Acquire { .. } | Call::AcquireUnseen { .. },
                Outcome::Unknown | Outcome::Interrupted,
            ) => {
                let times = (operation.start.wall_ms, operation.end.wall_ms + late_ms);
                unknown.entry(key).or_default().push(times);
            }
            _ => {}
        }
    }
    let may_be_had = |key: &str, from_ms, to_ms| {
        let mut unknown = unknown.get(key).into_iter().flatten();
        unknown.any(|(start_ms, end_ms)| *start_ms <= to_ms && *end_ms >= from_ms)
    };
    let mut slow = Vec::new();
    for operation in history {
        if let Call::Acquire { ttl_ms, .. } = operation.call
            && let Outcome::Acquired {
                fence,
                expires_at_ms,
            } = operation.outcome
            && operation.key.starts_with(PREFIX)
            && let Some(fences) = granted.get(operation.key.as_str())
            && let Some((_, before)) = fences.range(..fence).next_back()
            && let Some(released_ms) = released_ms.get(before)
        {
            let since_ms = operation.start.wall_ms.max(*released_ms);
            let granted_ms = expires_at_ms - ttl_ms;
            let free_ms = granted_ms - since_ms;
            if free_ms > bound_ms && !may_be_had(&operation.key, *released_ms, granted_ms) {
                let key = operation.key.clone();
                slow.push(Slow {
                    key,
                    fence,
                    free_ms,
                });
            }
        }
    }
    slow
}
