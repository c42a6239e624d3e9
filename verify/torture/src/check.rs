//! Whether there is an order of the operations that explains their results.
//!
//! The history is walked from start to end. A set of configurations is kept: what may be true of the key, and which
//! of the operations under way have had their effect in it. Where an operation ends, it must have had its effect in
//! every configuration that is kept; others take effect before it in all ways that are possible. Of two configurations of which
//! one makes possible whatever the other does, one is kept. No
//! configuration left means that no order explains the history. (Wing and Gong, "Testing and verifying concurrent
//! objects", 1993; the memory of configurations and the walk are those of Lowe, "Testing for linearizability", 2017.)
//!
//! Keys are independent of each other, so each is checked for itself.

use std::collections::BTreeMap;
use std::fmt;

mod walk;

use self::walk::{Search, Walk};
use crate::bounds::Bounds;
use crate::history::{Call, Operation, Outcome};
use crate::lease::State;

/// A history that no order explains, or for which too many orders would have to be tried.
#[derive(Debug)]
pub struct Violation {
    /// The lock.
    pub key: String,
    /// Whether the search was given up.
    pub is_undecided: bool,
    /// The operation that cannot have ended as it did.
    pub operation: Operation,
    /// What may have been true before it.
    pub states: Vec<State>,
    /// What was going on, the latest last.
    pub recent: Vec<Operation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.is_undecided {
            false => "no order explains",
            true => "too many orders may explain",
        };
        writeln!(f, "{}: {found} {:?}", self.key, self.operation)?;
        for state in &self.states {
            writeln!(f, "  may have been true before: {state:?}")?;
        }
        for operation in &self.recent {
            writeln!(f, "  {operation:?}")?;
        }
        Ok(())
    }
}

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
    let violations: Vec<_> = keys
        .into_values()
        .filter_map(|operations| check_key(operations, bounds).err())
        .map(|violation| *violation)
        .collect();
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
    let operations = with_undo(recorded, bounds);
    let events = events(&operations, bounds);
    let walked = |search| walk(&operations, &events, Walk::new(bounds, search));
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

fn walk(operations: &[Operation], events: &[Event], mut walk: Walk) -> Result<(), Box<Violation>> {
    for (index, event) in events.iter().enumerate() {
        let Some(operation) = operations.get(event.number) else {
            continue;
        };
        let states = walk.configurations.iter().map(|one| one.state);
        let states = states.take(4).collect();
        match event.is_end {
            false => walk.start(event.number, operation),
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
