//! What this part of the model knows at one moment.

use std::collections::{BTreeMap, BTreeSet};

use super::super::state::{Id, POLL, TOLERANCE};
use super::system::System;

/// The locks of a set, by their places in the store.
pub(super) type Places = BTreeSet<usize>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The store's clock.
    pub(super) now: u8,
    /// Those of keys, or of the slots of one.
    pub(super) locks: Vec<Option<Lock>>,
    pub(super) fences: Vec<u8>,
    pub(super) clients: Vec<Client>,
    pub(super) messages: BTreeSet<Message>,
    pub(super) left: Budget,
    pub(super) seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) id: Id,
    pub(super) ends: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// Each wants its locks once.
    pub(super) has_wanted: bool,
    pub(super) asked: u8,
    /// It was told, while it was asking, that these were freed.
    pub(super) hinted: Places,
    /// Acquisitions that it has given up: until when they are released, and when again; `None` while a release is on its way.
    pub(super) undoing: BTreeMap<Id, (u8, Option<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Acquiring {
        id: Id,
        has_waited: bool,
    },
    /// This one was held by another.
    Waiting {
        place: usize,
        poll_at: u8,
    },
    /// It believes to hold them until then.
    Holding {
        id: Id,
        places: Places,
        ends: u8,
    },
    Lost,
    Crashed,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    Acquire { id: Id, sent: u8 },
    Granted { id: Id, places: Places, sent: u8 },
    Held { id: Id, place: usize, free_at: u8 },
    Release { id: Id, is_undo: bool },
    Released { id: Id, was_there: bool },
    Extend { id: Id, sent: u8 },
    Extended { id: Id, sent: u8, was_there: bool },
    Freed { client: u8, place: usize },
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) losses: u8,
    /// Ticks while messages are on their way.
    pub(super) delays: u8,
    pub(super) give_ups: u8,
    pub(super) extends: u8,
    pub(super) crashes: u8,
}

/// What was seen, for the properties. Nothing decides by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Seen {
    /// What was granted, and is neither released nor ended: which lock to whom, and until when.
    pub(super) granted: BTreeSet<(usize, Id, u8)>,
    /// Acquisitions that are to be gone: given up, or released.
    pub(super) over: BTreeSet<Id>,
    pub(super) largest: Vec<u8>,
    pub(super) fence_not_larger: bool,
    pub(super) was_disturbed: bool,
    /// For how many ticks all that somebody waits for has been free.
    pub(super) waits_in_vain: u8,
    pub(super) was_held_in_part: bool,
    pub(super) got_after_waiting: bool,
    pub(super) granted_in_vain: bool,
}

impl State {
    pub(super) fn counts_as_held(&self, ends: u8) -> bool {
        ends + TOLERANCE > self.now
    }

    /// The lock at that place, if somebody holds it.
    pub(super) fn held_at(&self, place: usize) -> Option<Lock> {
        self.locks[place].filter(|lock| self.counts_as_held(lock.ends))
    }

    pub(super) fn live_at(&self, place: usize) -> usize {
        let all = self.seen.granted.iter();
        all.filter(|(at, _, ends)| *at == place && self.counts_as_held(*ends))
            .count()
    }

    pub(super) fn live_holders(&self) -> usize {
        (0..self.locks.len()).map(|place| self.live_at(place)).sum()
    }

    /// Whether each who believes to hold a set has as many locks as it wants.
    pub(super) fn is_whole(&self, system: &System) -> bool {
        (0..)
            .zip(&self.clients)
            .all(|(number, client)| match &client.phase {
                Phase::Holding { places, .. } => places.len() == system.size_of(number),
                _ => true,
            })
    }

    /// Whether the locks of each set in the store end at the same time.
    pub(super) fn ends_together(&self) -> bool {
        let mut ends = BTreeMap::new();
        let mut locks = self.locks.iter().flatten();
        locks.all(|lock| *ends.entry(lock.id).or_insert(lock.ends) == lock.ends)
    }

    /// Whether a lock is held that was given up or released, although its client lives and does not release it any more.
    pub(super) fn is_left_behind(&self) -> bool {
        let mut locks = (0..self.locks.len()).filter_map(|place| self.held_at(place));
        locks.any(|lock| {
            let client = &self.clients[usize::from(lock.id.client)];
            let release = |is_undo| Message::Release {
                id: lock.id,
                is_undo,
            };
            let is_coming = [true, false]
                .into_iter()
                .any(|it| self.messages.contains(&release(it)));
            let is_undone = client.undoing.contains_key(&lock.id);
            let is_over = self.seen.over.contains(&lock.id);
            is_over && !is_undone && !is_coming && client.phase != Phase::Crashed
        })
    }

    /// Whether somebody who waits has a part of what it last asked for.
    pub(super) fn waits_with_some(&self) -> bool {
        let mut locks = (0..self.locks.len()).filter_map(|place| self.held_at(place));
        locks.any(|lock| {
            let client = &self.clients[usize::from(lock.id.client)];
            let is_waiting = matches!(client.phase, Phase::Waiting { .. });
            is_waiting && lock.id.number + 1 == client.asked
        })
    }

    /// Whether a client has something to do that it does at once.
    pub(super) fn has_to_act(&self, client: &Client) -> bool {
        let polls = matches!(client.phase, Phase::Waiting { poll_at, .. } if poll_at <= self.now);
        client.phase != Phase::Crashed && (polls || self.undo_of(client).is_some())
    }

    /// What it has to release once more.
    pub(super) fn undo_of(&self, client: &Client) -> Option<Id> {
        let is_due = |try_at: &Option<u8>| try_at.is_some_and(|at| at <= self.now);
        let mut undoing = client.undoing.iter();
        undoing
            .find(|(_, (_, try_at))| is_due(try_at))
            .map(|(id, _)| *id)
    }

    /// Whether all that takes less than a tick has happened.
    pub(super) fn is_settled(&self) -> bool {
        !self.messages.iter().any(|message| self.can_arrive(message))
            && !self.clients.iter().any(|client| self.has_to_act(client))
    }
}

impl System {
    /// For how long what somebody waits for may be free.
    pub(super) fn longest_wait(&self, state: &State) -> u8 {
        match state.seen.was_disturbed {
            true => POLL + self.budget.delays,
            false => 0,
        }
    }
}
