//! Gates: whoever has that of a key keeps readers out.
//!
//! A gate is a lock of its own, and is checked as such. What it does to the readers of its key is told by times: when it may be held, a
//! reader may be refused, and while it certainly is, none is granted.

use std::collections::{BTreeMap, HashMap};

use super::violation::Violation;
use crate::bounds::Bounds;
use crate::history::{Call, Operation, Outcome};
use crate::lease::TOLERANCE_MS;

/// What the key of a gate ends with (docs/format.md, "Slots").
pub(crate) const GATE: &str = "\u{37e}0";

/// From when to when, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// When a gate may be held.
    possible: (u64, u64),
    /// When it certainly is.
    certain: (u64, u64),
}

/// Takes the refusals out of the histories that gates explain, and gives the grants that gates forbid.
pub(super) fn pass(keys: &mut BTreeMap<String, Vec<Operation>>, bounds: Bounds) -> Vec<Violation> {
    let gates: Vec<_> = keys
        .iter()
        .filter_map(|(name, operations)| {
            let key = name.strip_suffix(GATE)?;
            Some((key.to_owned(), times(operations, bounds)))
        })
        .collect();
    let mut violations = Vec::new();
    for (key, times) in gates {
        let Some(operations) = keys.get_mut(&key) else {
            continue;
        };
        let forbidden = operations.iter().find(|one| is_forbidden(one, &times));
        if let Some(operation) = forbidden {
            violations.push(Violation {
                key,
                is_undecided: false,
                operation: operation.clone(),
                states: Vec::new(),
                recent: Vec::new(),
            });
        }
        operations.retain(|one| !is_explained(one, &times));
    }
    violations
}

fn is_forbidden(operation: &Operation, gates: &[Times]) -> bool {
    let is_granted = matches!(operation.outcome, Outcome::Acquired { .. });
    let is_join = matches!(operation.call, Call::Join { .. });
    let (start, end) = (operation.start.order_us, operation.end.order_us);
    let mut certain = gates.iter().map(|times| times.certain);
    is_join && is_granted && certain.any(|(from, to)| from < start && end < to)
}

fn is_explained(operation: &Operation, gates: &[Times]) -> bool {
    let is_join = matches!(operation.call, Call::Join { .. });
    let (start, end) = (operation.start.order_us, operation.end.order_us);
    let mut possible = gates.iter().map(|times| times.possible);
    is_join && is_refused(operation) && possible.any(|(from, to)| from <= end && start <= to)
}

/// Whether somebody was in the way of it.
fn is_refused(operation: &Operation) -> bool {
    matches!(
        operation.outcome,
        Outcome::Locked | Outcome::LockedBySomebody
    )
}

/// When the gate may have been held, and certainly was, by each who asked for it.
fn times(operations: &[Operation], bounds: Bounds) -> Vec<Times> {
    let mut later: HashMap<u64, Vec<&Operation>> = HashMap::new();
    let mut forced = Vec::new();
    for operation in operations {
        match operation.call {
            Call::Release { lock } | Call::Extend { lock, .. } => {
                later.entry(lock).or_default().push(operation);
            }
            Call::ForceRelease | Call::Forget | Call::Sweep => forced.push(operation),
            _ => {}
        }
    }
    let of_one = |operation: &Operation| {
        let Call::Acquire { lock, ttl_ms } = operation.call else {
            return None;
        };
        if is_refused(operation) {
            return None;
        }
        let later = later.get(&lock).map_or(&[][..], Vec::as_slice);
        let ends = later.iter().chain(&forced).copied();
        Some(held(operation, ttl_ms, ends, bounds))
    };
    operations.iter().filter_map(of_one).collect()
}

/// When that acquisition may have held the lock, and certainly did. `later`: what was done with it.
fn held<'a>(
    acquired: &Operation,
    ttl_ms: i64,
    later: impl Iterator<Item = &'a Operation>,
    bounds: Bounds,
) -> Times {
    let us = |ms: i64| u64::try_from(ms * 1000).unwrap_or(0);
    let late = |one: &Operation| one.end.order_us + us(bounds.late_ms(one.outcome));
    // The lock counts as held until the tolerance is over, which `certain` leaves out for the clocks' sake.
    let lasts_us = |ttl_ms| us(ttl_ms + TOLERANCE_MS + bounds.skew_ms);
    let (start, end) = (acquired.start.order_us, acquired.end.order_us);
    let mut possible = (start, late(acquired) + lasts_us(ttl_ms));
    let mut certain = (end, start + us(ttl_ms));
    let mut let_go = (None, u64::MAX);
    let mut later: Vec<_> = later.collect();
    later.sort_by_key(|one| one.start);
    let is_granted = matches!(acquired.outcome, Outcome::Acquired { .. });
    for one in later {
        match (one.call, one.outcome) {
            (Call::Extend { ttl_ms, .. }, outcome) => {
                possible.1 = possible.1.max(late(one) + lasts_us(ttl_ms));
                // It may also end sooner than before.
                let end = one.start.order_us + us(ttl_ms);
                certain.1 = match outcome {
                    Outcome::Extended { .. } => end,
                    _ => certain.1.min(end),
                };
            }
            (_, outcome) => {
                let_go.1 = let_go.1.min(one.start.order_us.max(start));
                // What is not there yet may come later.
                let is_gone =
                    outcome == Outcome::Released || outcome == Outcome::NotFound && is_granted;
                if matches!(one.call, Call::Release { .. }) && is_gone {
                    let_go.0 = let_go.0.max(Some(one.end.order_us));
                }
            }
        }
    }
    // A clock that is set makes it last longer, or shorter.
    if !bounds.is_steady {
        possible.1 = u64::MAX;
        certain.1 = 0;
    }
    possible.1 = possible.1.min(let_go.0.unwrap_or(u64::MAX));
    certain.1 = certain.1.min(let_go.1);
    if !is_granted {
        certain.1 = 0;
    }
    Times { possible, certain }
}
