//! What can happen: the transitions of the model, each as in the library or the store.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use super::properties;
use super::state::{Client, Id, Message, Phase, Places, Seen, State};
use super::worlds::{OWN, System};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Ask(u8),
    Arrive(Message),
    Lose(Message),
    Tick,
    GiveUp(u8),
    Release(u8),
    Extend(u8),
    Force(usize),
    Pause(u8),
    Resume(u8),
    Crash(u8),
    Undo(Id),
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
            hinted: Places::new(),
            wants_gate: false,
            gate: None,
            is_paused: false,
            undoing: BTreeMap::new(),
        };
        vec![State {
            now: 0,
            locks: vec![None; self.places()],
            index: BTreeSet::new(),
            fences: vec![0; self.places()],
            fence_is_behind: false,
            clients: vec![client; self.clients()],
            messages: BTreeSet::new(),
            left: self.budget,
            seen: Seen {
                largest_fences: vec![0; self.places()],
                ..Seen::default()
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&state.clients) {
            actions_of(state, number, client, actions);
        }
        for message in &state.messages {
            if state.can_arrive(message) {
                actions.push(Action::Arrive(message.clone()));
            }
            if state.left.losses > 0 {
                actions.push(Action::Lose(message.clone()));
            }
        }
        if state.now < self.ticks && (state.is_settled() || state.left.delays > 0) {
            actions.push(Action::Tick);
            if state.left.forgets > 0 {
                actions.push(Action::ForgetFence);
            }
        }
        if state.left.forces > 0 {
            let end = if self.is_shared() {
                OWN
            } else {
                state.locks.len()
            };
            let live = (0..end).filter(|place| state.live_at(*place).is_some());
            actions.extend(live.map(Action::Force));
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
                self.answer_is_lost(&mut next, &message);
            }
            Action::Tick => self.tick(&mut next),
            Action::GiveUp(client) => {
                next.left.give_ups -= 1;
                next.give_up(client);
            }
            Action::Release(client) => next.release_of(client),
            Action::Extend(client) => next.extend_of(client),
            Action::Force(place) => {
                next.left.forces -= 1;
                next.seen.was_forced = true;
                if next.locks[place].is_some_and(|lock| lock.is_group()) {
                    next.clear_readers();
                }
                self.free(&mut next, place);
            }
            Action::Pause(client) => {
                next.left.pauses -= 1;
                next.seen.was_paused = true;
                next.seen.was_disturbed = true;
                next.client(client).is_paused = true;
            }
            Action::Resume(client) => {
                next.client(client).is_paused = false;
                next.look_at_the_clock();
            }
            Action::Crash(client) => {
                next.left.crashes -= 1;
                let client = next.client(client);
                client.phase = Phase::Crashed;
                client.undoing.clear();
                (client.wants_gate, client.gate) = (false, None);
            }
            Action::Undo(id) => next.undo(id),
            Action::RaiseFence => {
                next.fences.clone_from(&next.seen.largest_fences);
                next.fence_is_behind = false;
            }
            Action::ForgetFence => {
                next.left.forgets -= 1;
                next.fences.fill(0);
                self.tick(&mut next);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

/// What a client may do.
fn actions_of(state: &State, number: u8, client: &Client, actions: &mut Vec<Action>) {
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
    let undoing = client.undoing.iter();
    let due = undoing.filter(|(_, undo)| undo.is_due(state.now));
    actions.extend(due.map(|(id, _)| Action::Undo(*id)));
    match client.phase {
        Phase::Idle | Phase::Lost if !client.has_wanted => actions.push(Action::Ask(number)),
        Phase::Waiting { poll_at, .. } if poll_at <= state.now => actions.push(Action::Ask(number)),
        Phase::Acquiring { .. } if state.left.give_ups > 0 => actions.push(Action::GiveUp(number)),
        Phase::Holding { .. } => {
            actions.push(Action::Release(number));
            if state.left.extends > 0 {
                actions.push(Action::Extend(number));
            }
        }
        _ => {}
    }
}

impl State {
    fn release_of(&mut self, client: u8) {
        if let Phase::Holding { id, .. } = self.client(client).phase {
            let is_undo = false;
            self.messages.insert(Message::Release { id, is_undo });
            self.client(client).phase = Phase::Idle;
        }
    }

    fn extend_of(&mut self, client: u8) {
        if let Phase::Holding { id, .. } = self.client(client).phase {
            self.left.extends -= 1;
            let sent = self.now;
            self.messages.insert(Message::Extend { id, sent });
        }
    }
}

impl System {
    fn tick(&self, next: &mut State) {
        if !next.is_settled() {
            next.left.delays -= 1;
            next.seen.was_disturbed = true;
        }
        let right = System {
            fault: None,
            ..*self
        };
        let mut clients = next.clients.iter().enumerate();
        let waits_in_vain = clients.any(|(number, client)| {
            let is_waiting = matches!(client.phase, Phase::Waiting { .. }) && !client.is_paused;
            is_waiting && right.wanted(next, number, client.wants_gate).is_ok()
        });
        next.seen.waits_in_vain = match waits_in_vain {
            true => next.seen.waits_in_vain + 1,
            false => 0,
        };
        next.now += 1;
        next.look_at_the_clock();
    }

    fn arrive(&self, next: &mut State, message: Message) {
        next.messages.remove(&message);
        match message {
            Message::Acquire { id, is_gate } => self.acquire(next, id, is_gate),
            Message::Release { id, is_undo } => self.release(next, id, is_undo),
            Message::Extend { id, sent } => self.extend(next, id, sent),
            Message::Granted { id, fences } => self.granted(next, id, fences),
            Message::Held {
                id,
                place,
                free_at,
                by_readers,
            } => next.held(id, place, free_at, by_readers),
            Message::Released { id, was_there, .. } => self.released(next, id, was_there),
            Message::Extended {
                id,
                sent,
                was_there,
            } => next.extended(id, sent, was_there),
            Message::Freed { client, place } => self.wake(next, client, place),
        }
    }
}
