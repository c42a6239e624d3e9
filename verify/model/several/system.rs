//! What can happen to several locks, each as in the library or the store, and the faults that may be put in.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use super::super::state::{Id, TOLERANCE, TTL};
use super::state::{Budget, Client, Lock, Message, Phase, Places, Seen, State};

/// Some locks, their store and its clients.
#[derive(Clone, Copy)]
pub(super) struct System {
    pub(super) wants: Wants,
    pub(super) ticks: u8,
    pub(super) budget: Budget,
    pub(super) fault: Option<Fault>,
}

/// What each client asks for.
#[derive(Clone, Copy)]
pub(super) enum Wants {
    /// So many keys of three.
    Keys(&'static [&'static [usize]]),
    /// So many of the slots of one key.
    Slots { count: u8, takes: &'static [usize] },
}

/// What is done wrong, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Of several, the last one is not locked.
    GrantWithoutLast,
    /// If one is held, the others are granted.
    GrantInPart,
    /// There is a slot more than was asked for.
    OneSlotMore,
    /// A slot that is held counts as free.
    HeldSlotIsFree,
    /// A release frees all but the last.
    ReleaseInPart,
    /// An undo frees all but the last.
    UndoInPart,
    /// An extension makes all but the last end later.
    ExtendInPart,
    /// The fence of every slot is counted from that of the first.
    FenceOfFirstSlot,
    /// Whoever waits for one lock keeps those that were free.
    KeepsWhileWaiting,
    /// Whoever waits for a slot hears only of the one that it found held.
    WakeOfOneSlot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Ask(u8),
    Arrive(Message),
    Lose(Message),
    Tick,
    GiveUp(u8),
    Release(u8),
    Extend(u8),
    Crash(u8),
    Undo(Id),
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
            undoing: BTreeMap::new(),
        };
        // One more than there are slots, for whoever takes it.
        let places = 3;
        vec![State {
            now: 0,
            locks: vec![None; places],
            fences: vec![0; places],
            clients: vec![client; self.clients()],
            messages: BTreeSet::new(),
            left: self.budget,
            seen: Seen {
                largest: vec![0; places],
                ..Seen::default()
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&state.clients) {
            self.actions_of(state, number, client, actions);
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
                next.answer_is_lost(&message);
            }
            Action::Tick => self.tick(&mut next),
            Action::GiveUp(client) => {
                next.left.give_ups -= 1;
                next.give_up(client);
            }
            Action::Release(client) => {
                if let Phase::Holding { id, .. } = next.client(client).phase {
                    next.messages
                        .insert(Message::Release { id, is_undo: false });
                    next.seen.over.insert(id);
                    next.client(client).phase = Phase::Idle;
                }
            }
            Action::Extend(client) => {
                if let Phase::Holding { id, .. } = next.client(client).phase {
                    next.left.extends -= 1;
                    let sent = next.now;
                    next.messages.insert(Message::Extend { id, sent });
                }
            }
            Action::Crash(client) => {
                next.left.crashes -= 1;
                let client = next.client(client);
                client.phase = Phase::Crashed;
                client.undoing.clear();
            }
            Action::Undo(id) => next.undo(id),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties()
    }
}

impl System {
    pub(super) fn is_slots(&self) -> bool {
        matches!(self.wants, Wants::Slots { .. })
    }

    fn clients(&self) -> usize {
        match self.wants {
            Wants::Keys(sets) => sets.len(),
            Wants::Slots { takes, .. } => takes.len(),
        }
    }

    /// How many locks that client wants.
    pub(super) fn size_of(&self, client: usize) -> usize {
        match self.wants {
            Wants::Keys(sets) => sets[client].len(),
            Wants::Slots { takes, .. } => takes[client],
        }
    }

    fn actions_of(&self, state: &State, number: u8, client: &Client, actions: &mut Vec<Action>) {
        if client.phase == Phase::Crashed {
            return;
        }
        if state.left.crashes > 0 {
            actions.push(Action::Crash(number));
        }
        actions.extend(state.undo_of(client).map(Action::Undo));
        match client.phase {
            Phase::Idle | Phase::Lost if !client.has_wanted => actions.push(Action::Ask(number)),
            Phase::Waiting { poll_at, .. } if poll_at <= state.now => {
                actions.push(Action::Ask(number));
            }
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
        let mut waiting = (0..).zip(&next.clients);
        let waits_in_vain = waiting.any(|(number, client)| {
            let is_waiting = matches!(client.phase, Phase::Waiting { .. });
            is_waiting && self.wanted(next, number, None).is_ok()
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
            Message::Acquire { id, sent } => self.acquire(next, id, sent),
            Message::Release { id, is_undo } => self.release(next, id, is_undo),
            Message::Extend { id, sent } => self.extend(next, id, sent),
            Message::Granted { id, places, sent } => next.granted(id, places, sent),
            Message::Held { id, place, free_at } => next.held(id, place, free_at),
            Message::Released { id, was_there } => released(next, id, was_there),
            Message::Extended {
                id,
                sent,
                was_there,
            } => next.extended(id, sent, was_there),
            Message::Freed { client, place } => self.wake(next, client, place),
        }
    }

    /// The locks that a client can have, or what stands in its way: that one, and the free ones beside it. `own` is the
    /// acquisition that may have some of them.
    fn wanted(
        &self,
        state: &State,
        client: usize,
        own: Option<Id>,
    ) -> Result<Places, (usize, Places)> {
        let is_free = |place: &usize| {
            state
                .held_at(*place)
                .is_none_or(|lock| Some(lock.id) == own)
        };
        let (places, size): (Vec<usize>, usize) = match self.wants {
            Wants::Keys(sets) => (sets[client].to_vec(), sets[client].len()),
            Wants::Slots { count, takes } => {
                let more = usize::from(self.fault == Some(Fault::OneSlotMore));
                ((0..usize::from(count) + more).collect(), takes[client])
            }
        };
        let free: Places = places.iter().copied().filter(is_free).take(size).collect();
        if free.len() == size {
            return Ok(free);
        }
        if self.fault == Some(Fault::HeldSlotIsFree) {
            return Ok(places.into_iter().take(size).collect());
        }
        let held = places.iter().copied().filter(|place| !is_free(place));
        // Of slots, the one that ends first.
        let ends = |place: &usize| state.held_at(*place).map(|lock| lock.ends);
        let held = match self.is_slots() {
            true => held.min_by_key(ends),
            false => held.min(),
        };
        Err((held.unwrap_or_default(), free))
    }

    fn acquire(&self, next: &mut State, id: Id, sent: u8) {
        let client = usize::from(id.client);
        let own: Places = (0..next.locks.len())
            .filter(|place| next.held_at(*place).is_some_and(|lock| lock.id == id))
            .collect();
        if own.len() == self.size_of(client) {
            let places = own;
            next.messages.insert(Message::Granted { id, places, sent });
            return;
        }
        let places = match self.wanted(next, client, None) {
            Ok(places) => places,
            Err((place, free)) => {
                next.seen.was_held_in_part |= !free.is_empty();
                let free_at = next
                    .held_at(place)
                    .map_or(next.now, |lock| lock.ends + TOLERANCE);
                if self.fault == Some(Fault::KeepsWhileWaiting) {
                    write(next, id, &free);
                }
                if self.fault == Some(Fault::GrantInPart) && !free.is_empty() {
                    write(next, id, &free);
                    let places = free;
                    next.messages.insert(Message::Granted { id, places, sent });
                } else {
                    next.messages.insert(Message::Held { id, place, free_at });
                }
                return;
            }
        };
        next.seen.granted_in_vain |= next.seen.over.contains(&id);
        for place in places.iter().copied() {
            let counter = match self.fault {
                Some(Fault::FenceOfFirstSlot) => 0,
                _ => place,
            };
            let fence = next.fences[counter] + 1;
            next.fences[place] = fence;
            next.seen.fence_not_larger |= fence <= next.seen.largest[place];
            next.seen.largest[place] = fence.max(next.seen.largest[place]);
            next.seen.granted.insert((place, id, next.now + TTL));
        }
        write(next, id, &self.in_part(Fault::GrantWithoutLast, &places));
        next.messages.insert(Message::Granted { id, places, sent });
    }

    /// All of them, or all but the last one if that is what is done wrong.
    fn in_part(&self, fault: Fault, places: &Places) -> Places {
        let wrong = usize::from(self.fault == Some(fault) && places.len() > 1);
        places.iter().copied().take(places.len() - wrong).collect()
    }

    fn release(&self, next: &mut State, id: Id, is_undo: bool) {
        let owned = owned(next, id);
        let was_there = owned.iter().any(|place| next.held_at(*place).is_some());
        let fault = match is_undo {
            true => Fault::UndoInPart,
            false => Fault::ReleaseInPart,
        };
        for place in self.in_part(fault, &owned) {
            next.locks[place] = None;
            next.seen
                .granted
                .retain(|(at, other, _)| (*at, *other) != (place, id));
            for (client, waiter) in (0..).zip(&next.clients) {
                if matches!(
                    waiter.phase,
                    Phase::Waiting { .. } | Phase::Acquiring { .. }
                ) {
                    next.messages.insert(Message::Freed { client, place });
                }
            }
        }
        next.messages.insert(Message::Released { id, was_there });
    }

    fn extend(&self, next: &mut State, id: Id, sent: u8) {
        let owned = owned(next, id);
        let is_live = |place: &usize| next.held_at(*place).is_some();
        let was_there =
            owned.len() == self.size_of(usize::from(id.client)) && owned.iter().all(is_live);
        if was_there {
            let ends = next.now + TTL;
            for place in self.in_part(Fault::ExtendInPart, &owned) {
                next.locks[place] = Some(Lock { id, ends });
                next.seen
                    .granted
                    .retain(|(at, other, _)| (*at, *other) != (place, id));
                next.seen.granted.insert((place, id, ends));
            }
        }
        next.messages.insert(Message::Extended {
            id,
            sent,
            was_there,
        });
    }
}

/// The locks in the store that an acquisition was granted.
fn owned(state: &State, id: Id) -> Places {
    let is_own = |place: &usize| state.locks[*place].is_some_and(|lock| lock.id == id);
    (0..state.locks.len()).filter(is_own).collect()
}

fn write(next: &mut State, id: Id, places: &Places) {
    let ends = next.now + TTL;
    for place in places {
        next.locks[*place] = Some(Lock { id, ends });
    }
}

fn released(next: &mut State, id: Id, was_there: bool) {
    let now = next.now;
    let undoing = &mut next.client(id.client).undoing;
    if let Some((until, try_at)) = undoing.get_mut(&id) {
        if was_there || now >= *until {
            undoing.remove(&id);
        } else {
            *try_at = Some(now + 1);
        }
    }
}
