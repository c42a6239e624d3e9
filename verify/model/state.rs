//! What the model knows at one moment: the store, the clients, the messages on their way, and what was seen so far.

use std::collections::BTreeSet;

/// Ticks for which a lock lasts.
pub(crate) const TTL: u8 = 2;
/// Ticks for which an ended lock counts as held.
pub(crate) const TOLERANCE: u8 = 1;
/// Ticks after which a waiter asks again by itself.
pub(crate) const POLL: u8 = 3;

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
    pub(crate) lock: Option<Lock>,
    /// The lock ids under which the store finds the lock. Entries of locks that were replaced may stay for a while.
    pub(crate) index: BTreeSet<Id>,
    pub(crate) fence_counter: u8,
    /// Only with [`Fault::FenceAfterGrant`](super::Fault): a fence was given that the counter does not have yet.
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
    /// Each client wants the lock once.
    pub(crate) has_wanted: bool,
    /// How often it has asked the store. Each question has a lock id of its own.
    pub(crate) asked: u8,
    /// It was told that the lock was freed while it was asking.
    pub(crate) is_hinted: bool,
    pub(crate) is_paused: bool,
    /// Acquisitions that it has given up and releases until they are known to be gone.
    pub(crate) undoing: BTreeSet<Undo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Undo {
    pub(crate) id: Id,
    /// When it stops: no lock that was granted before the acquisition was given up lives longer.
    pub(crate) until: u8,
    /// When the next release is to be sent; `None` while one is on its way.
    pub(crate) try_at: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// An acquisition is on its way.
    Acquiring {
        id: Id,
        sent: u8,
        has_waited: bool,
    },
    /// The lock was held by another.
    Waiting {
        poll_at: u8,
    },
    /// It believes to hold the lock until then.
    Holding {
        id: Id,
        fence: u8,
        ends: u8,
    },
    /// It was told that its lock is lost.
    Lost,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Acquire {
        id: Id,
    },
    Granted {
        id: Id,
        fence: u8,
    },
    Held {
        id: Id,
        free_at: u8,
    },
    Release {
        id: Id,
        is_undo: bool,
    },
    Released {
        id: Id,
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
    /// Tells a client that the lock was freed.
    Freed {
        client: u8,
    },
}

/// What may still happen. Everything is bounded, so that every run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) losses: u8,
    /// Ticks while messages are on their way.
    pub(crate) delays: u8,
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    pub(crate) forces: u8,
    pub(crate) extends: u8,
    pub(crate) give_ups: u8,
    /// How often the store loses the counter of fences, which takes a tick.
    pub(crate) forgets: u8,
}

/// What was seen, for the properties. Nothing decides by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Seen {
    /// Locks by what their holders were granted, released or not: when they end.
    pub(crate) granted: BTreeSet<(Id, u8)>,
    /// Acquisitions that were given up, and until when they are undone.
    pub(crate) given_up: BTreeSet<(Id, u8)>,
    pub(crate) largest_fence: u8,
    pub(crate) fence_not_larger: bool,
    pub(crate) foreign_change: bool,
    pub(crate) revived: bool,
    pub(crate) was_forced: bool,
    pub(crate) was_paused: bool,
    /// Anything that makes messages late, or leaves them out.
    pub(crate) was_disturbed: bool,
    /// For how many ticks the lock has been free while somebody waited for it.
    pub(crate) waits_in_vain: u8,
    pub(crate) undo_met_new_grant: bool,
    pub(crate) got_after_waiting: bool,
}

impl State {
    /// Whether somebody holds the lock, by the one predicate.
    pub(crate) fn is_live(&self) -> bool {
        self.lock.is_some_and(|lock| self.counts_as_held(lock.ends))
    }

    pub(crate) fn counts_as_held(&self, ends: u8) -> bool {
        ends + TOLERANCE > self.now
    }

    /// The locks that were granted and neither released nor ended.
    pub(crate) fn live_locks(&self) -> usize {
        let all = self.seen.granted.iter();
        all.filter(|(_, ends)| self.counts_as_held(*ends)).count()
    }
}
