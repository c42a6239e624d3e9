//! What may be true, from one event of a history to the next.

use std::collections::{HashMap, VecDeque};

use crate::bounds::Bounds;
use crate::history::{Call, Operation, Outcome};
use crate::lease::{State, Window};

/// How many configurations are compared for one key before the search is given up: some tens of seconds.
const MOST: u64 = 10_000_000_000;
/// One that is kept takes memory as well, and counts as so many.
const KEPT: u64 = 1_000;

/// What is tried of operations that may have had no effect. Where many of them are under way, it matters little which of them had
/// one, and all choices are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// Each may also have its effect several times. What this refuses is wrong.
    Generous,
    /// Of choices that lead to the same state, one that takes the fewest of them. What this explains is right.
    Narrow,
    /// All choices.
    Whole,
}

/// What may be true, and which of the operations under way have had their effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Configuration {
    pub(super) state: State,
    done: u128,
}

impl Configuration {
    /// Without that of which one configuration may have less than another, and make as much possible: fences that were
    /// granted, time that is over, and operations that may also have had no effect.
    fn essence(&self, optional: u128) -> Self {
        Self {
            state: State {
                last_fence: 0,
                clock_ms: 0,
                ..self.state.clone()
            },
            done: self.done & !optional,
        }
    }

    /// Whether all that is possible from `other`, which has the same essence, is possible from this one: no fence that may be
    /// granted is refused, it is not later, and of the operations that may have no effect none has had it that has not there.
    fn covers(&self, other: &Self, search: Search) -> bool {
        let leaves_as_much = match search {
            Search::Narrow => self.done.count_ones() <= other.done.count_ones(),
            _ => self.done & !other.done == 0,
        };
        self.state.last_fence <= other.state.last_fence
            && self.state.clock_ms <= other.state.clock_ms
            && leaves_as_much
    }
}

/// Configurations, without those that others cover, by their essence.
struct Frontier {
    search: Search,
    optional: u128,
    found: HashMap<Configuration, Vec<Configuration>>,
}

impl Frontier {
    fn new(search: Search, optional: u128) -> Self {
        Self {
            search,
            optional,
            found: HashMap::new(),
        }
    }

    /// Whether it is not covered yet. Adds to `compared` what that took.
    fn add(&mut self, new: Configuration, compared: &mut u64) -> bool {
        let like = self.found.entry(new.essence(self.optional)).or_default();
        *compared += like.len() as u64;
        if like.iter().any(|one| one.covers(&new, self.search)) {
            return false;
        }
        *compared += KEPT;
        like.retain(|one| !new.covers(one, self.search));
        like.push(new);
        true
    }
}

/// What is known of an operation from others of its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    /// Until when there may be readers of whom nobody knows.
    pub(super) readers_ms: Option<i64>,
    /// Whether no other operation with the same lock id is under way at the same time, and none that sees that nobody has the key.
    pub(super) is_alone: bool,
}

/// An operation under way.
struct UnderWay {
    call: Call,
    outcome: Outcome,
    window: Window,
    number: usize,
    is_alone: bool,
    /// Whether it may have had no effect.
    is_optional: bool,
}

/// The way through the history of a key.
pub(super) struct Walk {
    bounds: Bounds,
    search: Search,
    /// By the bits of [`Configuration::done`].
    under_way: Vec<Option<UnderWay>>,
    /// What is possible. Nothing: no order explains the history so far.
    pub(super) configurations: Vec<Configuration>,
    /// How many configurations have been compared.
    compared: u64,
}

impl Walk {
    pub(super) fn new(bounds: Bounds, search: Search) -> Self {
        Self {
            bounds,
            search,
            under_way: Vec::new(),
            configurations: vec![Configuration {
                state: State::default(),
                done: 0,
            }],
            compared: 0,
        }
    }

    pub(super) fn start(&mut self, number: usize, operation: &Operation, beside: Beside) {
        let may_have_none = matches!(
            operation.outcome,
            Outcome::Unknown | Outcome::Undone | Outcome::Interrupted
        );
        let late_ms = self.bounds.late_ms(operation.outcome);
        let started = UnderWay {
            call: operation.call,
            outcome: operation.outcome,
            window: Window {
                from_ms: operation.start.wall_ms - self.bounds.skew_ms,
                to_ms: operation.end.wall_ms + late_ms + self.bounds.skew_ms,
                readers_ms: beside.readers_ms,
                group_ms: self.bounds.group_ms,
                is_left_in_steps: self.bounds.is_left_in_steps,
            },
            number,
            is_alone: beside.is_alone,
            is_optional: may_have_none || operation.call == Call::Sweep,
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
    pub(super) fn is_too_much(&self) -> bool {
        self.under_way.len() > 128 || self.compared > MOST
    }

    /// Lets all operations take effect that can, and change nothing, or nothing for others: earlier is never worse for them.
    fn observed(&self, mut configuration: Configuration) -> Configuration {
        loop {
            configuration = self.unchanged(configuration);
            let early = self
                .pending(configuration.done)
                .find_map(|(bit, operation)| {
                    let state = self.early(&configuration, operation)?;
                    let done = configuration.done | bit;
                    Some(Configuration { state, done })
                });
            match early {
                Some(early) => configuration = early,
                None => return configuration,
            }
        }
    }

    /// What is true after an operation of a reader that may as well have its effect now.
    fn early(&self, configuration: &Configuration, operation: &UnderWay) -> Option<State> {
        let state = &configuration.state;
        state.group.as_ref()?;
        if !operation.is_alone {
            return None;
        }
        state.after_reader(operation.call, operation.outcome, operation.window)
    }

    fn unchanged(&self, mut configuration: Configuration) -> Configuration {
        for (bit, operation) in self.pending(configuration.done) {
            let state = &configuration.state;
            if State::is_unchanged_by(operation.call, operation.outcome)
                && self.after(state, operation).as_ref() == Some(state)
            {
                configuration.done |= bit;
            }
        }
        configuration
    }

    /// What is true after the operation, if it can have its outcome now.
    fn after(&self, state: &State, operation: &UnderWay) -> Option<State> {
        let (call, outcome) = (operation.call, operation.outcome);
        let after = state.clone().after(call, outcome, operation.window)?;
        Some(match self.bounds.is_steady {
            true => after,
            false => State {
                clock_ms: 0,
                ..after
            },
        })
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

    /// Whether an operation under way must still have its effect and cannot any more: its time is over, or others were granted a
    /// larger fence.
    fn leads_nowhere(&self, configuration: &Configuration) -> bool {
        let state = &configuration.state;
        let mut pending = self.pending(configuration.done);
        pending.any(|(_, operation)| {
            let is_refused = match (operation.call, operation.outcome) {
                // A reader has the fence of the others.
                (Call::Join { .. }, _) => false,
                (_, Outcome::Acquired { fence, .. }) => fence <= state.last_fence,
                _ => false,
            };
            !operation.is_optional && (is_refused || state.is_later_than(operation.window))
        })
    }

    /// What is true after the release of a reader that ends, if it may as well have its effect now.
    fn left_by_one(&self, configuration: &Configuration, place: usize) -> Option<State> {
        let operation = self.under_way.get(place)?.as_ref()?;
        let (call, outcome, window) = (operation.call, operation.outcome, operation.window);
        let state = &configuration.state;
        let may = operation.is_alone && state.is_left_by_one(call, outcome, window);
        may.then(|| self.after(state, operation))?
    }

    /// Keeps what is possible if that operation has had its effect by now.
    pub(super) fn end(&mut self, number: usize) {
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
        let mut kept = Frontier::new(self.search, optional);
        let mut seen = Frontier::new(self.search, optional);
        let mut open: VecDeque<_> = self.configurations.drain(..).collect();
        while let Some(configuration) = open.pop_front() {
            if self.is_too_much() {
                return;
            }
            let leads_on = !self.leads_nowhere(&configuration);
            if !leads_on || !seen.add(configuration.clone(), &mut self.compared) {
                continue;
            }
            let has_ended = configuration.done & ending != 0;
            let is_left = undone.is_some_and(|lock| configuration.state.held_by(lock).is_some());
            if !is_left && (has_ended || is_optional) {
                let ended = Configuration {
                    done: configuration.done & !ending,
                    ..configuration.clone()
                };
                kept.add(ended, &mut self.compared);
            }
            if has_ended {
                continue;
            }
            if let Some(left) = self.left_by_one(&configuration, place) {
                let done = configuration.done | ending;
                open.push_back(self.observed(Configuration { state: left, done }));
                continue;
            }
            open.extend(
                self.pending(configuration.done)
                    .filter_map(|(bit, operation)| {
                        let state = self.after(&configuration.state, operation)?;
                        let is_spent = !(self.search == Search::Generous && operation.is_optional);
                        let done = configuration.done | if is_spent { bit } else { 0 };
                        Some(self.observed(Configuration { state, done }))
                    }),
            );
        }
        if let Some(place) = self.under_way.get_mut(place) {
            *place = None;
        }
        self.configurations = kept.found.into_values().flatten().collect();
    }
}
