//! Whether there is an order of the operations that explains their results.
//!
//! The history is walked from start to end. A set of configurations is kept: what may be true of the key, and which
//! of the operations under way have had their effect in it. Where an operation ends, it must have had its effect in
//! every configuration that is kept; others take effect before it in all ways that are possible. No
//! configuration left means that no order explains the history. (Wing and Gong, "Testing and verifying concurrent
//! objects", 1993; the memory of configurations and the walk are those of Lowe, "Testing for linearizability", 2017.)
//!
//! Keys are independent of each other, so each is checked for itself.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;

use crate::history::{Call, Operation, Outcome};
use crate::lease::{State, Window};

/// How exact clocks are, and how late something happens.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How far the store's reading of the clock may be off from what a process reads at the same time.
    pub skew_ms: i64,
    /// How long after its end an operation whose outcome is unknown may still take effect.
    pub late_ms: i64,
    /// How long after the end of its process.
    pub cut_ms: i64,
}

impl Bounds {
    fn late_ms(&self, outcome: Outcome) -> i64 {
        match outcome {
            Outcome::Unknown => self.late_ms,
            Outcome::Interrupted => self.cut_ms,
            _ => 0,
        }
    }
}

/// How many configurations are compared for one key before the search is given up: some tens of seconds.
const MOST: u64 = 10_000_000_000;

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

/// What may be true, and which of the operations under way have had their effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Configuration {
    state: State,
    done: u128,
}

impl Configuration {
    /// Whether all that is possible from `other` is possible from this one: the same lock is held, no fence that may be
    /// granted is refused, and of the operations in `optional` none has had its effect that has not there.
    fn covers(&self, other: &Self, optional: u128) -> bool {
        self.state.holder == other.state.holder
            && self.state.is_any == other.state.is_any
            && self.state.last_fence <= other.state.last_fence
            && self.done & !optional == other.done & !optional
            && self.done & !other.done == 0
    }
}

/// An operation under way.
struct UnderWay {
    call: Call,
    outcome: Outcome,
    window: Window,
    number: usize,
    /// Whether it may have had no effect.
    is_optional: bool,
}

/// Either end of an operation.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_us: u64,
    /// Starts come first: what touches may overlap.
    is_end: bool,
    number: usize,
}

struct Walk {
    /// By the bits of [`Configuration::done`].
    under_way: Vec<Option<UnderWay>>,
    configurations: HashSet<Configuration>,
    /// How many configurations have been compared.
    compared: u64,
}

fn check_key(recorded: Vec<Operation>, bounds: Bounds) -> Result<(), Box<Violation>> {
    let operations = with_undo(recorded);
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
    let mut walk = Walk {
        under_way: Vec::new(),
        configurations: HashSet::from([Configuration {
            state: State::default(),
            done: 0,
        }]),
        compared: 0,
    };
    for (index, event) in events.iter().enumerate() {
        let Some(operation) = operations.get(event.number) else {
            continue;
        };
        let before = walk.configurations.clone();
        match event.is_end {
            false => walk.start(event.number, operation, bounds),
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
                states: before.into_iter().map(|one| one.state).take(4).collect(),
                recent: recent
                    .filter(|event| !event.is_end)
                    .filter_map(|event| operations.get(event.number).cloned())
                    .collect(),
            }));
        }
    }
    Ok(())
}

/// The operations, and for each acquisition that is undone the release that does so: sooner or later, or by the same time.
fn with_undo(mut operations: Vec<Operation>) -> Vec<Operation> {
    let undone: Vec<_> = operations
        .iter()
        .filter(|operation| matches!(operation.outcome, Outcome::Unknown | Outcome::Undone))
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

impl Walk {
    fn start(&mut self, number: usize, operation: &Operation, bounds: Bounds) {
        let may_have_none = matches!(
            operation.outcome,
            Outcome::Unknown | Outcome::Undone | Outcome::Interrupted
        );
        let is_optional = may_have_none || operation.call == Call::Sweep;
        let late_ms = bounds.late_ms(operation.outcome);
        let started = UnderWay {
            call: operation.call,
            outcome: operation.outcome,
            window: Window {
                from_ms: operation.start.wall_ms - bounds.skew_ms,
                to_ms: operation.end.wall_ms + late_ms + bounds.skew_ms,
            },
            number,
            is_optional,
        };
        match self.under_way.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(started),
            None => self.under_way.push(Some(started)),
        }
        if self.is_too_much() {
            return;
        }
        let configurations = std::mem::take(&mut self.configurations);
        self.configurations = configurations
            .into_iter()
            .map(|configuration| self.observed(configuration))
            .collect();
    }

    /// Whether there are more operations under way than there are bits for, or more orders than can be tried.
    fn is_too_much(&self) -> bool {
        self.under_way.len() > 128 || self.compared > MOST
    }

    /// Lets all operations take effect that can, and change nothing: earlier is never worse for them.
    fn observed(&self, mut configuration: Configuration) -> Configuration {
        for (bit, operation) in self.pending(configuration.done) {
            let (call, outcome) = (operation.call, operation.outcome);
            if State::is_unchanged_by(call, outcome)
                && configuration
                    .state
                    .after(call, outcome, operation.window)
                    .is_some()
            {
                configuration.done |= bit;
            }
        }
        configuration
    }

    /// The operations under way that have had no effect yet, with their bits.
    fn pending(&self, done: u128) -> impl Iterator<Item = (u128, &UnderWay)> {
        self.under_way
            .iter()
            .enumerate()
            .map(|(place, operation)| (1_u128 << place, operation))
            .filter_map(|(bit, operation)| Some((bit, operation.as_ref()?)))
            .filter(move |(bit, _)| done & bit == 0)
    }

    /// The bits of the operations that may have had no effect.
    fn optional(&self) -> u128 {
        self.pending(0)
            .filter(|(_, operation)| operation.is_optional)
            .fold(0, |bits, (bit, _)| bits | bit)
    }

    /// The lock that must not be there any more when the operation in that place has ended.
    fn undone(&self, place: usize) -> Option<u64> {
        let operation = self.under_way.get(place)?.as_ref()?;
        match (operation.call, operation.outcome) {
            (Call::Release { lock }, Outcome::Undone) => Some(lock),
            _ => None,
        }
    }

    /// Keeps what is possible if that operation has had its effect by now.
    fn end(&mut self, number: usize) {
        let Some(place) = self.under_way.iter().position(|operation| {
            operation
                .as_ref()
                .is_some_and(|operation| operation.number == number)
        }) else {
            return;
        };
        let ending = 1_u128 << place;
        let optional = self.optional();
        let is_optional = optional & ending != 0;
        let undone = self.undone(place);
        let mut kept = HashSet::new();
        let mut seen: Vec<Configuration> = Vec::new();
        let mut open: VecDeque<_> = self.configurations.drain().collect();
        while let Some(configuration) = open.pop_front() {
            self.compared += seen.len() as u64;
            if self.is_too_much() {
                return;
            }
            if seen.iter().any(|one| one.covers(&configuration, optional)) {
                continue;
            }
            seen.push(configuration);
            let is_left = undone.is_some_and(|lock| configuration.state.held_by(lock).is_some());
            if !is_left && (configuration.done & ending != 0 || is_optional) {
                kept.insert(Configuration {
                    done: configuration.done & !ending,
                    ..configuration
                });
            }
            if configuration.done & ending != 0 {
                continue;
            }
            open.extend(
                self.pending(configuration.done)
                    .filter_map(|(bit, operation)| {
                        let (call, outcome) = (operation.call, operation.outcome);
                        let state = configuration.state.after(call, outcome, operation.window)?;
                        let done = configuration.done | bit;
                        Some(self.observed(Configuration { state, done }))
                    }),
            );
        }
        if let Some(place) = self.under_way.get_mut(place) {
            *place = None;
        }
        self.configurations = kept;
    }
}
