//! Readers, who share a key, and writers, who have it alone. Each reader has a lock of its own, and the lock on the key is that of their group,
//! which nobody owns, and which ends with the last of them. A writer whom readers refuse takes the gate, which no new reader passes, and
//! asks again.

use super::state::{Fences, Id, Lock, Message, State, TOLERANCE, TTL, Undo};
use super::store::Obstacle;
use super::worlds::{Fault, GATE, KEY, Mode, OWN, System, Wants};

/// The lock id of the group.
const GROUP: Id = Id {
    client: u8::MAX,
    number: 0,
};

impl Lock {
    pub(crate) fn is_group(&self) -> bool {
        self.id == GROUP
    }
}

impl State {
    /// The group, if readers have the key.
    pub(crate) fn group(&self) -> Option<Lock> {
        self.live_at(KEY).filter(Lock::is_group)
    }

    /// The locks that readers have for themselves, and that have not ended.
    pub(crate) fn readers(&self) -> impl Iterator<Item = Lock> {
        (OWN..self.locks.len()).filter_map(|place| self.live_at(place))
    }

    /// The group is over, and with it the locks of all its readers.
    pub(crate) fn clear_readers(&mut self) {
        for place in OWN..self.locks.len() {
            self.remove(place);
        }
    }

    /// A waiter has got the gate, and asks for the key again.
    pub(crate) fn has_gate(&mut self, id: Id, ends: u8) {
        let client = self.client(id.client);
        (client.wants_gate, client.gate) = (false, Some((id, ends)));
        self.ask(id.client);
    }

    /// Gives the gate back, because the writer has the key, or its time is over.
    pub(crate) fn leaves_gate(&mut self, number: u8) {
        let until = self.now + TTL + TOLERANCE;
        let client = self.client(number);
        client.wants_gate = false;
        if let Some((id, _)) = client.gate.take() {
            let try_at = None;
            client.undoing.insert(id, Undo { until, try_at });
            self.messages.insert(Message::Release { id, is_undo: true });
        }
    }
}

impl System {
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.wants, Wants::Shared(_))
    }

    pub(crate) fn reads(&self, client: usize) -> bool {
        matches!(self.wants, Wants::Shared(modes) if modes[client] == Mode::Reads)
    }

    /// Whether somebody holds the lock at that place. That of a reader is held while its group is.
    pub(crate) fn is_live(&self, state: &State, place: usize) -> bool {
        let has_group = |fence| state.group().is_some_and(|group| group.fence == fence);
        let live = state.live_at(place);
        live.is_some_and(|lock| !self.is_shared() || place < OWN || has_group(lock.fence))
    }

    /// Where the store tells of what it frees at that place: of the gate as of the key, and of no single reader.
    pub(crate) fn told_at(&self, place: usize) -> Option<usize> {
        match place {
            _ if !self.is_shared() => Some(place),
            KEY => Some(KEY),
            GATE if self.fault != Some(Fault::GateIsNotTold) => Some(KEY),
            _ => None,
        }
    }

    /// What is in the way of a reader, or of a writer at that place.
    pub(crate) fn obstacle(&self, state: &State, client: usize, place: usize) -> Option<Obstacle> {
        let in_the_way = |place: usize| {
            let lock = state.locks[place].filter(|lock| self.is_in_the_way(state, *lock));
            lock.map(|lock| (place, lock))
        };
        let is_wrong = |fault| self.fault == Some(fault);
        let alone = |place| in_the_way(place).filter(|(_, lock)| !lock.is_group());
        let found = match self.reads(client) {
            true if is_wrong(Fault::JoinPastGate) => alone(KEY),
            true => alone(KEY).or_else(|| in_the_way(GATE)),
            false if is_wrong(Fault::WriteBesideReaders) => alone(place),
            false => in_the_way(place),
        };
        found.map(|(held, _)| Obstacle::at(held))
    }

    /// Grants a reader what it wants: it joins the group, or makes one.
    pub(crate) fn join(&self, next: &mut State, id: Id) {
        next.seen.passed_gate |= next.live_at(GATE).is_some();
        let ends = next.now + TTL;
        let group = match self.fault {
            Some(Fault::JoinEnded) => next.locks[KEY].filter(Lock::is_group),
            _ => next.group(),
        };
        next.seen.revived |= group.is_some() && next.group().is_none();
        let (fence, group_ends) = match group {
            Some(group) if self.fault == Some(Fault::GroupEndsEarly) => (group.fence, group.ends),
            Some(group) => (group.fence, group.ends.max(ends)),
            None => {
                next.clear_readers();
                (self.next_fence(next, KEY), ends)
            }
        };
        let own = OWN + usize::from(id.client);
        for (place, id, ends) in [(KEY, GROUP, group_ends), (own, id, ends)] {
            next.locks[place] = Some(Lock { id, fence, ends });
            next.index.insert(id);
        }
        next.seen.granted.insert((own, id, ends));
        let fences = Fences::from([(KEY, fence)]);
        next.messages.insert(Message::Granted { id, fences });
    }

    /// Lets the group end with the last of its readers, or frees the key.
    pub(crate) fn follow(&self, next: &mut State) {
        let Some(group) = next.group() else {
            return;
        };
        match next.readers().map(|reader| reader.ends).max() {
            Some(ends) => {
                next.locks[KEY] = Some(Lock { ends, ..group });
                if ends < group.ends {
                    // Whoever waits knows a later end.
                    self.tell(next, KEY);
                }
            }
            None if self.fault == Some(Fault::GroupStays) => {}
            None => self.free(next, KEY),
        }
    }
}
