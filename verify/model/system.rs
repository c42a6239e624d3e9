//! What can happen: the transitions of the model, each as in the library or the store, and the faults that may be put in.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::properties;
use super::state::{Budget, Client, Id, Lock, Message, Phase, Seen, State, TOLERANCE, TTL, Undo};

/// One key, its store and its clients.
#[derive(Clone, Copy)]
pub(crate) struct System {
    pub(crate) clients: u8,
    pub(crate) ticks: u8,
    pub(crate) budget: Budget,
    pub(crate) fault: Option<Fault>,
}

/// More than are granted in a tick: a fence is the time, unless the counter is ahead of it.
const FENCES_PER_TICK: u8 = 16;

/// What is done wrong, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A release of an acquisition that was given up frees the key, whoever holds it.
    UndoByKey,
    /// The counter of fences is raised in a step of its own, after the grant.
    FenceAfterGrant,
    /// A fence is counted, and not taken from the clock.
    FenceWithoutTime,
    /// A release finds the lock by its index entry, and does not look whose it is.
    ReleaseUnchecked,
    /// An extension does not look whether the lock has ended.
    ExtendExpired,
    /// An acquisition does not look whether the lock has ended: it is never free by itself.
    ExpiryIgnored,
    /// A lock that has ended is given to others without the tolerance.
    NoTolerance,
    /// Whoever is told that the lock was freed does not try.
    WakeWithoutTry,
    /// An acquisition that was given up is released once.
    UndoOnce,
    /// The release leaves the index entry, and the acquisition makes none.
    NoIndexEntry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Ask(u8),
    Arrive(Message),
    Lose(Message),
    Tick,
    GiveUp(u8),
    Release(u8),
    Extend(u8),
    Force,
    Pause(u8),
    Resume(u8),
    Crash(u8),
    Undo(u8, Id),
    RaiseFence,
    ForgetFence,
}

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            phase: Phase::Idle,
            has_wanted: false,
            asked: 0,
            is_hinted: false,
            is_paused: false,
            undoing: BTreeSet::new(),
        };
        vec![State {
            now: 0,
            lock: None,
            index: BTreeSet::new(),
            fence_counter: 0,
            fence_is_behind: false,
            clients: vec![client; usize::from(self.clients)],
            messages: BTreeSet::new(),
            left: self.budget,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&state.clients) {
            self.actions_of(state, number, client, actions);
        }
        for message in &state.messages {
            if state.can_arrive(message) {
                actions.push(Action::Arrive(*message));
            }
            if state.left.losses > 0 {
                actions.push(Action::Lose(*message));
            }
        }
        if state.now < self.ticks && (state.is_settled() || state.left.delays > 0) {
            actions.push(Action::Tick);
            if state.left.forgets > 0 {
                actions.push(Action::ForgetFence);
            }
        }
        if state.left.forces > 0 && state.is_live() {
            actions.push(Action::Force);
        }
        if state.fence_is_behind {
            actions.push(Action::RaiseFence);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Ask(client) => next.ask(client),
            Action::Arrive(message) => self.arrive(&mut next, message),
            Action::Lose(message) => {
                next.messages.remove(&message);
                next.left.losses -= 1;
                next.seen.was_disturbed = true;
                next.answer_is_lost(message);
            }
            Action::Tick => self.tick(&mut next),
            Action::GiveUp(client) => {
                next.left.give_ups -= 1;
                next.give_up(client);
            }
            Action::Release(client) => {
                if let Phase::Holding { id, .. } = next.clients[usize::from(client)].phase {
                    next.messages
                        .insert(Message::Release { id, is_undo: false });
                    next.clients[usize::from(client)].phase = Phase::Idle;
                }
            }
            Action::Extend(client) => {
                if let Phase::Holding { id, .. } = next.clients[usize::from(client)].phase {
                    next.left.extends -= 1;
                    let sent = next.now;
                    next.messages.insert(Message::Extend { id, sent });
                }
            }
            Action::Force => {
                next.left.forces -= 1;
                next.seen.was_forced = true;
                next.free();
            }
            Action::Pause(client) => {
                next.left.pauses -= 1;
                next.seen.was_paused = true;
                next.seen.was_disturbed = true;
                next.clients[usize::from(client)].is_paused = true;
            }
            Action::Resume(client) => {
                next.clients[usize::from(client)].is_paused = false;
                next.look_at_the_clock();
            }
            Action::Crash(client) => {
                next.left.crashes -= 1;
                let client = &mut next.clients[usize::from(client)];
                client.phase = Phase::Crashed;
                client.undoing.clear();
            }
            Action::Undo(client, id) => next.undo(client, id),
            Action::RaiseFence => {
                next.fence_counter = next.seen.largest_fence;
                next.fence_is_behind = false;
            }
            Action::ForgetFence => {
                next.left.forgets -= 1;
                next.fence_counter = 0;
                self.tick(&mut next);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl System {
    fn actions_of(&self, state: &State, number: u8, client: &Client, actions: &mut Vec<Action>) {
        if client.phase == Phase::Crashed {
            return;
        }
        if client.is_paused {
            actions.push(Action::Resume(number));
            return;
        }
        if state.left.pauses > 0 {
            actions.push(Action::Pause(number));
        }
        if state.left.crashes > 0 {
            actions.push(Action::Crash(number));
        }
        for undo in client.undoing.iter().filter(|undo| undo.is_due(state.now)) {
            actions.push(Action::Undo(number, undo.id));
        }
        match client.phase {
            Phase::Idle | Phase::Lost if !client.has_wanted => actions.push(Action::Ask(number)),
            Phase::Waiting { poll_at } if poll_at <= state.now => actions.push(Action::Ask(number)),
            Phase::Acquiring { .. } if state.left.give_ups > 0 => {
                actions.push(Action::GiveUp(number));
            }
            Phase::Holding { .. } => {
                actions.push(Action::Release(number));
                if state.left.extends > 0 {
                    actions.push(Action::Extend(number));
                }
            }
            _ => {}
        }
    }

    fn tick(&self, next: &mut State) {
        if !next.is_settled() {
            next.left.delays -= 1;
            next.seen.was_disturbed = true;
        }
        let somebody_waits = next
            .clients
            .iter()
            .any(|client| matches!(client.phase, Phase::Waiting { .. }) && !client.is_paused);
        next.seen.waits_in_vain = match somebody_waits && !next.is_live() {
            true => next.seen.waits_in_vain + 1,
            false => 0,
        };
        next.now += 1;
        next.look_at_the_clock();
    }

    fn arrive(&self, next: &mut State, message: Message) {
        next.messages.remove(&message);
        match message {
            Message::Acquire { id } => self.acquire(next, id),
            Message::Release { id, is_undo } => self.release(next, id, is_undo),
            Message::Extend { id, sent } => self.extend(next, id, sent),
            Message::Granted { id, fence } => next.granted(id, fence),
            Message::Held { id, free_at } => next.held(id, free_at),
            Message::Released { id, was_there } => self.released(next, id, was_there),
            Message::Extended {
                id,
                sent,
                was_there,
            } => next.extended(id, sent, was_there),
            Message::Freed { client } => {
                if self.fault != Some(Fault::WakeWithoutTry) {
                    next.wake(client);
                }
            }
        }
    }

    fn acquire(&self, next: &mut State, id: Id) {
        let tolerance = match self.fault {
            Some(Fault::NoTolerance) => 0,
            Some(Fault::ExpiryIgnored) => u8::MAX / 2,
            _ => TOLERANCE,
        };
        let held = next.lock.filter(|lock| lock.ends + tolerance > next.now);
        if let Some(lock) = held {
            let free_at = lock.ends + TOLERANCE;
            next.messages.insert(match lock.id == id {
                true => Message::Granted {
                    id,
                    fence: lock.fence,
                },
                false => Message::Held { id, free_at },
            });
            return;
        }
        let time = match self.fault {
            Some(Fault::FenceWithoutTime) => 0,
            _ => (next.now + 1) * FENCES_PER_TICK,
        };
        let fence = time.max(next.fence_counter + 1);
        match self.fault {
            Some(Fault::FenceAfterGrant) => next.fence_is_behind = true,
            _ => next.fence_counter = fence,
        }
        next.seen.fence_not_larger |= fence <= next.seen.largest_fence;
        next.seen.largest_fence = fence.max(next.seen.largest_fence);
        next.seen.undo_met_new_grant |= next
            .messages
            .iter()
            .any(|message| matches!(message, Message::Release { is_undo: true, id: other } if *other != id));
        let ends = next.now + TTL;
        next.lock = Some(Lock { id, fence, ends });
        next.seen.granted.insert((id, ends));
        if self.fault != Some(Fault::NoIndexEntry) {
            next.index.insert(id);
        }
        next.messages.insert(Message::Granted { id, fence });
    }

    fn release(&self, next: &mut State, id: Id, is_undo: bool) {
        let by_key = is_undo && self.fault == Some(Fault::UndoByKey);
        let is_checked = self.fault != Some(Fault::ReleaseUnchecked);
        let found = next
            .lock
            .filter(|lock| by_key || (next.index.contains(&id) && (lock.id == id || !is_checked)));
        let was_there = found.is_some_and(|lock| next.counts_as_held(lock.ends));
        if let Some(lock) = found {
            next.seen.foreign_change |= lock.id != id;
            next.free();
        }
        next.messages.insert(Message::Released { id, was_there });
    }

    fn extend(&self, next: &mut State, id: Id, sent: u8) {
        let owned = next
            .lock
            .filter(|lock| lock.id == id && next.index.contains(&id));
        let is_live = owned.is_some_and(|lock| next.counts_as_held(lock.ends));
        let was_there = is_live || (owned.is_some() && self.fault == Some(Fault::ExtendExpired));
        if let (Some(lock), true) = (owned, was_there) {
            next.seen.revived |= !is_live;
            next.seen.granted.retain(|(other, _)| *other != id);
            let ends = next.now + TTL;
            next.seen.granted.insert((id, ends));
            next.lock = Some(Lock { ends, ..lock });
        }
        next.messages.insert(Message::Extended {
            id,
            sent,
            was_there,
        });
    }

    fn released(&self, next: &mut State, id: Id, was_there: bool) {
        let now = next.now;
        let undoing = &mut next.clients[usize::from(id.client)].undoing;
        let Some(undo) = undoing.iter().copied().find(|undo| undo.id == id) else {
            return;
        };
        undoing.remove(&undo);
        let is_over = was_there || now >= undo.until || self.fault == Some(Fault::UndoOnce);
        if !is_over {
            let try_at = Some(now + 1);
            undoing.insert(Undo { try_at, ..undo });
        }
    }
}
