//! Readers of whom nobody knows whether they are there: they were not told that they had joined, or left.
//!
//! Each of them may be there or not, and of many, all choices are too many. So they are left out, and it is only known until when there
//! may be some: so long, a group may stay that nobody else keeps.

use std::collections::HashMap;

use crate::bounds::Bounds;
use crate::history::{Call, Moment, Operation, Outcome};
use crate::lease::TOLERANCE_MS;

/// From when to when one of them may be there, in microseconds.
pub(super) type Span = (u64, u64);

/// What was done by one reader.
#[derive(Default)]
struct Life {
    /// Since when nobody knows whether it is there.
    lost: Option<Moment>,
    /// It is not there any more after this.
    ends_us: u64,
    /// When somebody was told that it was freed.
    freed_us: Option<u64>,
}

impl Life {
    fn add(&mut self, operation: &Operation, bounds: Bounds) {
        let us = |ms: i64| u64::try_from(ms * 1000).unwrap_or(0);
        let end_us = operation.end.order_us + us(bounds.late_ms(operation.outcome));
        if let Call::Join { ttl_ms, .. } | Call::Extend { ttl_ms, .. } = operation.call {
            let lasts_us = us(ttl_ms + TOLERANCE_MS + 2 * bounds.skew_ms);
            let ends_us = match bounds.is_steady {
                true => end_us + lasts_us,
                false => u64::MAX,
            };
            self.ends_us = self.ends_us.max(ends_us);
        }
        if operation.outcome == Outcome::Released {
            self.freed_us = Some(operation.end.order_us);
        }
        if is_unknown(operation.outcome) {
            let lost = self
                .lost
                .map_or(operation.start, |lost| lost.min(operation.start));
            self.lost = Some(lost);
        }
    }

    fn span(&self) -> Option<Span> {
        let from_us = self.lost?.order_us;
        let until_us = self.freed_us.unwrap_or(u64::MAX).min(self.ends_us);
        Some((from_us, until_us))
    }
}

fn is_unknown(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Unknown | Outcome::Undone | Outcome::Interrupted
    )
}

/// What is certain, and when there may have been others.
pub(super) fn split(recorded: Vec<Operation>, bounds: Bounds) -> (Vec<Operation>, Vec<Span>) {
    let mut lives: HashMap<u64, Life> = HashMap::new();
    for operation in &recorded {
        if let Call::Join { lock, .. } = operation.call {
            lives.insert(lock, Life::default());
        }
    }
    for operation in &recorded {
        let life = operation.call.lock().and_then(|lock| lives.get_mut(&lock));
        if let Some(life) = life {
            life.add(operation, bounds);
        }
    }
    let mut known = Vec::new();
    for mut operation in recorded {
        let lock = operation.call.lock();
        let Some((lock, life)) = lock.and_then(|lock| Some((lock, lives.get(&lock)?))) else {
            known.push(operation);
            continue;
        };
        match life.lost {
            // What was undone must not be there.
            Some(lost) if operation.start >= lost => {
                let is_first = operation.start == lost;
                let is_join = matches!(operation.call, Call::Join { .. });
                if matches!(operation.call, Call::LookUpUndone { .. }) {
                    known.push(operation);
                } else if is_first && !is_join {
                    operation.call = Call::Lose { lock };
                    operation.end = lost;
                    operation.outcome = Outcome::Released;
                    known.push(operation);
                }
            }
            _ => {
                // The reader's lock is dead, and its group may be another's by now: nothing else is changed.
                if operation.outcome == Outcome::Expired {
                    operation.outcome = Outcome::NotFound;
                }
                known.push(operation);
            }
        }
    }
    let spans = lives.values().filter_map(Life::span).collect();
    (known, spans)
}

/// Until when there may be one of them, by the clock that ends locks, if there may be one during that operation.
pub(super) fn until_ms(operation: &Operation, spans: &[Span], bounds: Bounds) -> Option<i64> {
    let late_us = u64::try_from(bounds.late_ms(operation.outcome) * 1000).unwrap_or(0);
    let (start_us, end_us) = (operation.start.order_us, operation.end.order_us + late_us);
    let there = |(from_us, until_us): &&Span| *from_us <= end_us && start_us <= *until_us;
    let last_us = spans.iter().filter(there).map(|span| span.1).max()?;
    let left_ms = i64::try_from((last_us - start_us) / 1000).unwrap_or(i64::MAX / 2);
    Some(
        operation
            .start
            .wall_ms
            .saturating_add(left_ms.min(i64::MAX / 4)),
    )
}

/// For each operation, whether no other with the same lock id was under way at the same time, and none that saw that nobody has the key. One
/// that was given up goes on, and is undone meanwhile. A store may read its clock some time before others see what an operation has done: a
/// group that it joins may be over for them by then.
pub(super) fn alone(operations: &[Operation]) -> Vec<bool> {
    let mut by_lock: HashMap<u64, Vec<&Operation>> = HashMap::new();
    for operation in operations {
        if let Some(lock) = operation.call.lock() {
            by_lock.entry(lock).or_default().push(operation);
        }
    }
    let sees_nobody = |one: &&Operation| {
        let is_free = matches!(one.outcome, Outcome::No | Outcome::NotFound);
        is_free && one.call.lock().is_none()
    };
    let seen: Vec<_> = operations.iter().filter(sees_nobody).collect();
    let is_alone = |operation: &Operation| {
        let overlaps = |other: &&&Operation| {
            other.start.order_us <= operation.end.order_us
                && operation.start.order_us <= other.end.order_us
        };
        let is_reader = operation.call.lock().is_some();
        if is_reader && seen.iter().any(|other| overlaps(&other)) {
            return false;
        }
        let same = operation.call.lock().and_then(|lock| by_lock.get(&lock));
        let same = same.into_iter().flatten();
        let mut meanwhile = same.filter(overlaps);
        // It is one of them itself.
        meanwhile.nth(1).is_none()
    };
    operations.iter().map(is_alone).collect()
}
