//! The worlds whose states are visited: what is wanted in each, what may happen there, and how many states it has.

/// The places of the lock on the key, and of the gate. Behind them are those of the locks that readers have for themselves.
pub(crate) const KEY: usize = 0;
pub(crate) const GATE: usize = 1;
pub(crate) const OWN: usize = 2;

/// What each client asks for.
#[derive(Clone, Copy)]
pub(crate) enum Wants {
    /// These keys, all together.
    Keys(&'static [&'static [usize]]),
    /// So many of the slots of one key.
    Slots { count: u8, takes: &'static [usize] },
    /// One key, to read or to write.
    Shared(&'static [Mode]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Reads,
    Writes,
}

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
    /// A release that has failed is not tried again.
    ReleaseOnce,
    /// The release leaves the index entry, and the acquisition makes none.
    NoIndexEntry,
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
    /// A writer does not look at readers.
    WriteBesideReaders,
    /// A reader joins a group that has ended.
    JoinEnded,
    /// A reader that joins a group does not make it last.
    GroupEndsEarly,
    /// The last reader leaves the group behind.
    GroupStays,
    /// A reader does not look for a gate.
    JoinPastGate,
    /// A writer that has the key keeps its gate.
    GateStays,
    /// The store does not tell readers of the end of a gate.
    GateIsNotTold,
}

/// Some locks, their store and its clients.
#[derive(Clone, Copy)]
pub(crate) struct System {
    pub(crate) wants: Wants,
    pub(crate) ticks: u8,
    pub(crate) budget: Budget,
    pub(crate) fault: Option<Fault>,
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
    /// How often the store loses the counters of fences, which takes a tick.
    pub(crate) forgets: u8,
}

/// A world, and how many states it has, and steps that lead to them. The numbers show whoever changes the model whether some
/// states are no longer visited.
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) system: System,
    pub(crate) states: usize,
    pub(crate) steps: usize,
}

/// What may happen besides asking, holding and releasing.
pub(crate) const NOTHING: Budget = Budget {
    losses: 0,
    delays: 0,
    pauses: 0,
    crashes: 0,
    forces: 0,
    extends: 0,
    give_ups: 0,
    forgets: 0,
};
const UNDO: Budget = Budget {
    delays: 1,
    give_ups: 1,
    losses: 1,
    ..NOTHING
};
const PAUSE: Budget = Budget {
    pauses: 1,
    extends: 1,
    ..NOTHING
};
const FORCE: Budget = Budget {
    crashes: 1,
    forces: 1,
    forgets: 1,
    ..NOTHING
};
const CRASH: Budget = Budget {
    crashes: 1,
    extends: 1,
    ..NOTHING
};
/// Messages take long, and one of them may be an extension.
pub(crate) const LATE_EXTENSION: Budget = Budget {
    delays: 5,
    extends: 1,
    ..NOTHING
};

pub(crate) const ALONE: Wants = Wants::Keys(&[&[0]]);
pub(crate) const TWO: Wants = Wants::Keys(&[&[0], &[0]]);
const THREE: Wants = Wants::Keys(&[&[0], &[0], &[0]]);
/// Sets of keys, each with the next in its way.
pub(crate) const OVERLAPPING: Wants = Wants::Keys(&[&[0, 1], &[1, 2], &[0]]);
pub(crate) const SAME: Wants = Wants::Keys(&[&[0, 1], &[0, 1]]);
pub(crate) const SLOTS: Wants = Wants::Slots {
    count: 2,
    takes: &[1, 1, 1],
};
const TAKES: Wants = Wants::Slots {
    count: 2,
    takes: &[2, 1],
};

pub(crate) const READS: Wants = Wants::Shared(&[Mode::Reads]);
pub(crate) const READ: Wants = Wants::Shared(&[Mode::Reads, Mode::Reads]);
/// Readers come and go before a writer, and between two.
pub(crate) const READERS: Wants = Wants::Shared(&[Mode::Reads, Mode::Reads, Mode::Writes]);
pub(crate) const WRITERS: Wants = Wants::Shared(&[Mode::Reads, Mode::Writes, Mode::Writes]);
pub(crate) const BOTH: Wants = Wants::Shared(&[Mode::Reads, Mode::Writes]);

pub(crate) fn system(wants: Wants, ticks: u8, budget: Budget) -> System {
    System {
        wants,
        ticks,
        budget,
        fault: None,
    }
}

/// Small worlds of one lock. Together they have all that can go wrong, in the pairs that matter.
pub(crate) fn of_one_lock() -> [World; 5] {
    #[rustfmt::skip]
    let worlds = [
        world("an undo", system(TWO, 5, UNDO), (253_013, 560_933)),
        world("a pause", system(TWO, 5, PAUSE), (66_777, 166_831)),
        world("force", system(TWO, 5, FORCE), (97_273, 201_593)),
        world("three clients", system(THREE, 3, NOTHING), (57_751, 142_789)),
        world("a late extension", system(ALONE, 5, LATE_EXTENSION), (1_700, 2_988)),
    ];
    worlds
}

/// The same of sets of keys, and of the slots of one key.
pub(crate) fn of_several_locks() -> [World; 6] {
    #[rustfmt::skip]
    let worlds = [
        world("sets that overlap", system(OVERLAPPING, 3, NOTHING), (419_792, 1_385_141)),
        world("two sets, and an undo", system(SAME, 4, UNDO), (412_182, 1_056_045)),
        world("two sets, and a crash", system(SAME, 5, CRASH), (95_226, 214_050)),
        world("slots", system(SLOTS, 3, NOTHING), (119_313, 334_586)),
        world("two slots at once, and an undo", system(TAKES, 4, UNDO), (317_364, 798_114)),
        world("two slots at once, and a crash", system(TAKES, 5, CRASH), (68_385, 150_717)),
    ];
    worlds
}

/// The same of one key that is read and written.
pub(crate) fn of_readers() -> [World; 4] {
    #[rustfmt::skip]
    let worlds = [
        world("two readers and a writer", system(READERS, 3, NOTHING), (168_340, 483_306)),
        world("two writers and a reader", system(WRITERS, 3, NOTHING), (464_254, 1_428_063)),
        world("a reader and a writer, and an undo", system(BOTH, 4, UNDO), (824_941, 2_230_653)),
        world("a reader and a writer, and a crash", system(BOTH, 5, CRASH), (97_377, 218_910)),
    ];
    worlds
}

fn world(name: &'static str, system: System, (states, steps): (usize, usize)) -> World {
    World {
        name,
        system,
        states,
        steps,
    }
}

impl System {
    pub(crate) fn is_slots(&self) -> bool {
        matches!(self.wants, Wants::Slots { .. })
    }

    pub(crate) fn clients(&self) -> usize {
        match self.wants {
            Wants::Keys(sets) => sets.len(),
            Wants::Slots { takes, .. } => takes.len(),
            Wants::Shared(modes) => modes.len(),
        }
    }

    /// How many locks that client wants.
    pub(crate) fn size_of(&self, client: usize) -> usize {
        match self.wants {
            Wants::Keys(sets) => sets[client].len(),
            Wants::Slots { takes, .. } => takes[client],
            Wants::Shared(_) => 1,
        }
    }

    /// The places in the store of the locks that that client may be granted.
    pub(crate) fn places_of(&self, client: usize) -> Vec<usize> {
        match self.wants {
            Wants::Keys(sets) => sets[client].to_vec(),
            Wants::Slots { count, .. } => {
                let more = usize::from(self.fault == Some(Fault::OneSlotMore));
                (0..usize::from(count) + more).collect()
            }
            Wants::Shared(_) => vec![KEY],
        }
    }

    /// How many places the store has.
    pub(crate) fn places(&self) -> usize {
        if self.is_shared() {
            return OWN + self.clients();
        }
        let all = (0..self.clients()).flat_map(|client| self.places_of(client));
        all.max().map_or(0, |last| last + 1)
    }
}
