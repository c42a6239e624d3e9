//! What is known at one moment: the store, the clients, the messages on their way, and what was seen so far.

use std::collections::{BTreeMap, BTreeSet};

use super::worlds::Budget;

/// Ticks for which a lock lasts.
pub(crate) const TTL: u8 = 2;
/// Ticks for which an ended lock counts as held.
pub(crate) const TOLERANCE: u8 = 1;
/// Ticks after which a waiter asks again by itself.
pub(crate) const POLL: u8 = 3;

/// Locks, by their places in the store.
pub(crate) type Places = BTreeSet<usize>;
/// What was granted: the places of the locks, with their fences.
pub(crate) type Fences = BTreeMap<usize, u8>;

/// A lock id: its client, and which of that client's acquisitions it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The store's clock.
    pub(crate) now: u8,
    /// Those of keys, or of the slots of one.
    pub(crate) locks: Vec<Option<Lock>>,
    /// The lock ids under which the store finds locks. Entries of locks that were replaced may stay for a while.
    pub(crate) index: BTreeSet<Id>,
    /// The counter of each lock.
    pub(crate) fences: Vec<u8>,
    /// Only with [`Fault::FenceAfterGrant`]: a fence was given that the counter does not have yet.
    pub(crate) fence_is_behind: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) messages: BTreeSet<Message>,
    pub(crate) left: Budget,
    pub(crate) seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) id: Id,
    pub(crate) fence: u8,
    pub(crate) ends: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Each client wants its locks once.
    pub(crate) has_wanted: bool,
    /// How often it has asked the store. Each question has a lock id of its own.
    pub(crate) asked: u8,
    /// It was told, while it was asking, that these were freed.
    pub(crate) hinted: Places,
    /// What it asks for next is the gate.
    pub(crate) wants_gate: bool,
    /// The gate that it has, and until when.
    pub(crate) gate: Option<(Id, u8)>,
    pub(crate) is_paused: bool,
    /// What it releases until it is known to be gone: acquisitions that it has given up, and releases that have failed.
    pub(crate) undoing: BTreeMap<Id, Undo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Undo {
    /// When it stops: no lock that was granted before it began lives longer.
    pub(crate) until: u8,
    /// When the next release is to be sent; `None` while one is on its way.
    pub(crate) try_at: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// An acquisition is on its way.
    Acquiring {
        id: Id,
        sent: u8,
        has_waited: bool,
    },
    /// This lock was held by another.
    Waiting {
        place: usize,
        poll_at: u8,
    },
    /// It believes to hold them until then.
    Holding {
        id: Id,
        fences: Fences,
        ends: u8,
    },
    /// It was told that its lock is lost.
    Lost,
    Crashed,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Acquire {
        id: Id,
        is_gate: bool,
    },
    Granted {
        id: Id,
        fences: Fences,
    },
    Held {
        id: Id,
        place: usize,
        free_at: u8,
        by_readers: bool,
    },
    Release {
        id: Id,
        is_undo: bool,
    },
    Released {
        id: Id,
        is_undo: bool,
        was_there: bool,
    },
    Extend {
        id: Id,
        sent: u8,
    },
    Extended {
        id: Id,
        sent: u8,
        was_there: bool,
    },
    /// Tells a client that a lock was freed.
    Freed {
        client: u8,
        place: usize,
    },
}

/// What was seen, for the properties. Nothing decides by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Seen {
    /// What was granted, by what its holder knows, and is neither released nor ended: which lock to whom, and until when.
    pub(crate) granted: BTreeSet<(usize, Id, u8)>,
    /// Acquisitions that were given up, and until when they are undone.
    pub(crate) given_up: BTreeMap<Id, u8>,
    pub(crate) largest_fences: Vec<u8>,
    pub(crate) fence_not_larger: bool,
    pub(crate) foreign_change: bool,
    pub(crate) revived: bool,
    pub(crate) was_forced: bool,
    pub(crate) was_paused: bool,
    /// Anything that makes messages late, or leaves them out.
    pub(crate) was_disturbed: bool,
    /// For how many ticks all that somebody waits for has been free.
    pub(crate) waits_in_vain: u8,
    pub(crate) undo_met_new_grant: bool,
    pub(crate) got_after_waiting: bool,
    pub(crate) was_held_in_part: bool,
    /// A reader has joined others although a writer had the gate.
    pub(crate) passed_gate: bool,
    pub(crate) got_past_readers: bool,
}

impl State {
    pub(crate) fn client(&mut self, number: u8) -> &mut Client {
        &mut self.clients[usize::from(number)]
    }

    pub(crate) fn counts_as_held(&self, ends: u8) -> bool {
        ends + TOLERANCE > self.now
    }

    /// The lock at that place, if somebody holds it, by the one predicate.
    pub(crate) fn live_at(&self, place: usize) -> Option<Lock> {
        self.locks[place].filter(|lock| self.counts_as_held(lock.ends))
    }

    /// All locks that somebody holds.
    pub(crate) fn live(&self) -> impl Iterator<Item = Lock> {
        (0..self.locks.len()).filter_map(|place| self.live_at(place))
    }

    /// How many locks at that place were granted and neither released nor ended.
    pub(crate) fn granted_at(&self, place: usize) -> usize {
        let all = self.seen.granted.iter();
        let live = all.filter(|(at, _, ends)| *at == place && self.counts_as_held(*ends));
        live.count()
    }

    /// The places of the locks that the store finds by that lock id.
    pub(crate) fn owned(&self, id: Id) -> Places {
        let is_own = |place: &usize| self.locks[*place].is_some_and(|lock| lock.id == id);
        match self.index.contains(&id) {
            true => (0..self.locks.len()).filter(is_own).collect(),
            false => Places::new(),
        }
    }
}
