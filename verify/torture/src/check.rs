//! Whether there is an order of the operations that explains their results.
//!
//! The history is walked from start to end. A set of configurations is kept: what may be true of the key, and which
//! of the operations under way have had their effect in it. Where an operation ends, it must have had its effect in
//! every configuration that is kept; others take effect before it in all ways that are possible. Of two configurations of which
//! one makes possible whatever the other does, one is kept. No
//! configuration left means that no order explains the history. (Wing and Gong, "Testing and verifying concurrent
//! objects", 1993; the memory of configurations and the walk are those of Lowe, "Testing for linearizability", 2017.)
//!
//! Keys are independent of each other, so each is checked for itself. Only gates are not (the module `gates`).

use std::collections::BTreeMap;

mod gates;
mod readers;
mod violation;
mod walk;

pub(crate) use self::gates::GATE;
pub use self::violation::Violation;
use self::walk::{Beside, Search, Walk};
use crate::bounds::Bounds;
use crate::history::{Call, Operation, Outcome};

/// How many operations were checked.
///
/// # Errors
/// The first violation of each key that has one.
pub fn check(history: Vec<Operation>, bounds: Bounds) -> Result<usize, Vec<Violation>> {
    let count = history.len();
    let mut keys: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key.clone())
            .or_default()
            .push(operation);
    }
    let mut violations = gates::pass(&mut keys, bounds);
    let of_keys = keys
        .into_values()
        .filter_map(|operations| check_key(operations, bounds).err())
        .map(|violation| *violation);
    violations.extend(of_keys);
    if violations.is_empty() {
        Ok(count)
    } else {
        Err(violations)
    }
}

/// Either end of an operation.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_us: u64,
    /// Starts come first: what touches may overlap.
    is_end: bool,
    number: usize,
}

/// The quick searches decide nearly all histories.
fn check_key(recorded: Vec<Operation>, bounds: Bounds) -> Result<(), Box<Violation>> {
    let (known, uncertain) = readers::split(recorded, bounds);
    let operations = with_undo(known, bounds);
    let events = events(&operations, bounds);
    let alone = readers::alone(&operations);
    let beside = operations.iter().zip(alone);
    let beside = beside.map(|(operation, is_alone)| Beside {
        readers_ms: readers::until_ms(operation, &uncertain, bounds),
        is_alone,
    });
    let beside: Vec<_> = beside.collect();
    let walked = |search| walk(&operations, &events, &beside, Walk::new(bounds, search));
    match walked(Search::Generous) {
        Err(violation) if !violation.is_undecided => Err(violation),
        _ => walked(Search::Narrow).or_else(|_| walked(Search::Whole)),
    }
}

/// What starts and ends, in its order.
fn events(operations: &[Operation], bounds: Bounds) -> Vec<Event> {
    let mut events: Vec<_> = operations
        .iter()
        .enumerate()
        .flat_map(|(number, operation)| {
            let late_us = u64::try_from(bounds.late_ms(operation.outcome) * 1000).unwrap_or(0);
            let event = |at_us, is_end| Event {
                at_us,
                is_end,
                number,
            };
            let (start, end) = (operation.start.order_us, operation.end.order_us);
            [event(start, false), event(end + late_us, true)]
        })
        .collect();
    events.sort_unstable();
    events
}

/// `beside` has an entry for each operation.
fn walk(
    operations: &[Operation],
    events: &[Event],
    beside: &[Beside],
    mut walk: Walk,
) -> Result<(), Box<Violation>> {
    for (index, event) in events.iter().enumerate() {
        let Some((operation, beside)) = operations.get(event.number).zip(beside.get(event.number))
        else {
            continue;
        };
        let states = walk.configurations.iter().map(|one| one.state.clone());
        let states = states.take(4).collect();
        match event.is_end {
            false => walk.start(event.number, operation, *beside),
            true => walk.end(event.number),
        }
        let is_undecided = walk.is_too_much();
        if is_undecided || walk.configurations.is_empty() {
            let from = index.saturating_sub(24);
            let recent = events.get(from..index).unwrap_or_default().iter();
            return Err(Box::new(Violation {
                key: operation.key.clone(),
                is_undecided,
                operation: operation.clone(),
                states,
                recent: recent
                    .filter(|event| !event.is_end)
                    .filter_map(|event| operations.get(event.number).cloned())
                    .collect(),
            }));
        }
    }
    Ok(())
}

/// The operations, and for each acquisition that is undone, or may be, the release that does so: sooner or later, or by the same time.
fn with_undo(mut operations: Vec<Operation>, bounds: Bounds) -> Vec<Operation> {
    let is_undone = |outcome| match outcome {
        Outcome::Unknown | Outcome::Undone => true,
        Outcome::Interrupted => bounds.is_spread,
        _ => false,
    };
    let undone: Vec<_> = operations
        .iter()
        .filter(|operation| is_undone(operation.outcome))
        .filter_map(|operation| match operation.call {
            Call::Acquire { lock, .. } => Some(Operation {
                call: Call::Release { lock },
                ..operation.clone()
            }),
            Call::AcquireUnseen { number, .. } => Some(Operation {
                call: Call::ReleaseUnseen { number },
                ..operation.clone()
            }),
            _ => None,
        })
        .collect();
    operations.extend(undone);
    operations
}
