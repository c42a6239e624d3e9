//! What the store does: each operation is one step, as a script or a transaction is.

use super::state::{Fences, Id, Lock, Message, Phase, Places, State, TOLERANCE, TTL};
use super::worlds::{Fault, GATE, KEY, OWN, System};

/// More than are granted in a tick: a fence is the time, unless the counter is ahead of it.
const FENCES_PER_TICK: u8 = 16;

/// Why locks cannot be had: this one is held, and those beside it are free.
pub(crate) struct Obstacle {
    held: usize,
    free: Places,
}

impl Obstacle {
    pub(crate) fn at(held: usize) -> Self {
        Self {
            held,
            free: Places::new(),
        }
    }
}

impl System {
    /// Whether a lock is in the way of an acquisition.
    pub(crate) fn is_in_the_way(&self, state: &State, lock: Lock) -> bool {
        let tolerance = match self.fault {
            Some(Fault::NoTolerance) => 0,
            Some(Fault::ExpiryIgnored) => u8::MAX / 2,
            _ => TOLERANCE,
        };
        lock.ends + tolerance > state.now
    }

    /// The locks that a client can have, or what is in its way.
    pub(crate) fn wanted(
        &self,
        state: &State,
        client: usize,
        is_gate: bool,
    ) -> Result<Places, Obstacle> {
        if self.is_shared() {
            let place = if is_gate { GATE } else { KEY };
            let obstacle = self.obstacle(state, client, place);
            return obstacle.map_or(Ok(Places::from([place])), Err);
        }
        let (places, size) = (self.places_of(client), self.size_of(client));
        let in_the_way =
            |place: usize| state.locks[place].filter(|lock| self.is_in_the_way(state, *lock));
        let is_free = |place: &usize| in_the_way(*place).is_none();
        let free: Places = places.iter().copied().filter(is_free).take(size).collect();
        if free.len() == size {
            return Ok(free);
        }
        if self.fault == Some(Fault::HeldSlotIsFree) {
            return Ok(places.into_iter().take(size).collect());
        }
        let held = places.into_iter().filter(|place| !is_free(place));
        let ends = |place: &usize| in_the_way(*place).map(|lock| lock.ends);
        // Of slots, the one that ends first.
        let held = match self.is_slots() {
            true => held.min_by_key(ends),
            false => held.min(),
        };
        let held = held.unwrap_or_default();
        Err(Obstacle { held, free })
    }

    pub(crate) fn acquire(&self, next: &mut State, id: Id, is_gate: bool) {
        let client = usize::from(id.client);
        match self.wanted(next, client, is_gate) {
            Ok(_) if self.reads(client) => self.join(next, id),
            Ok(places) => self.grant(next, id, &places),
            Err(obstacle) => self.refuse(next, id, obstacle),
        }
    }

    fn grant(&self, next: &mut State, id: Id, places: &Places) {
        let is_others_undo = |message: &Message| matches!(message, Message::Release { is_undo: true, id: other } if *other != id);
        next.seen.undo_met_new_grant |= next.messages.iter().any(is_others_undo);
        let fences: Fences = places
            .iter()
            .map(|place| (*place, self.next_fence(next, *place)))
            .collect();
        for place in places {
            next.seen.granted.insert((*place, id, next.now + TTL));
        }
        self.write(
            next,
            id,
            &self.in_part(Fault::GrantWithoutLast, places),
            &fences,
        );
        next.messages.insert(Message::Granted { id, fences });
    }

    pub(crate) fn next_fence(&self, next: &mut State, place: usize) -> u8 {
        let time = match self.fault {
            Some(Fault::FenceWithoutTime) => 0,
            _ => (next.now + 1) * FENCES_PER_TICK,
        };
        let counter = match self.fault {
            Some(Fault::FenceOfFirstSlot) => 0,
            _ => place,
        };
        let fence = time.max(next.fences[counter] + 1);
        match self.fault {
            Some(Fault::FenceAfterGrant) => next.fence_is_behind = true,
            _ => next.fences[place] = fence,
        }
        let largest = &mut next.seen.largest_fences[place];
        next.seen.fence_not_larger |= fence <= *largest;
        *largest = fence.max(*largest);
        fence
    }

    fn refuse(&self, next: &mut State, id: Id, Obstacle { held: place, free }: Obstacle) {
        next.seen.was_held_in_part |= !free.is_empty();
        let fences: Fences = free.iter().map(|place| (*place, 0)).collect();
        if self.fault == Some(Fault::KeepsWhileWaiting) {
            self.write(next, id, &free, &fences);
        }
        if self.fault == Some(Fault::GrantInPart) && !free.is_empty() {
            self.write(next, id, &free, &fences);
            next.messages.insert(Message::Granted { id, fences });
            return;
        }
        let free_at = next.locks[place].map_or(next.now, |lock| lock.ends + TOLERANCE);
        let by_readers = next.locks[place].is_some_and(|lock| lock.is_group());
        next.messages.insert(Message::Held {
            id,
            place,
            free_at,
            by_readers,
        });
    }

    fn write(&self, next: &mut State, id: Id, places: &Places, fences: &Fences) {
        let ends = next.now + TTL;
        for place in places {
            let fence = fences[place];
            next.locks[*place] = Some(Lock { id, fence, ends });
        }
        if self.fault != Some(Fault::NoIndexEntry) {
            next.index.insert(id);
        }
    }

    /// All of them, or all but the last one if that is what is done wrong.
    fn in_part(&self, fault: Fault, places: &Places) -> Places {
        let wrong = usize::from(self.fault == Some(fault) && places.len() > 1);
        places.iter().copied().take(places.len() - wrong).collect()
    }

    pub(crate) fn release(&self, next: &mut State, id: Id, is_undo: bool) {
        let by_key = is_undo && self.fault == Some(Fault::UndoByKey);
        let is_unchecked = self.fault == Some(Fault::ReleaseUnchecked) && next.index.contains(&id);
        let found = if by_key || is_unchecked {
            let places = self.places_of(usize::from(id.client)).into_iter();
            places
                .filter(|place| next.locks[*place].is_some())
                .collect()
        } else {
            next.owned(id)
        };
        let was_there = found.iter().any(|place| next.live_at(*place).is_some());
        let fault = match is_undo {
            true => Fault::UndoInPart,
            false => Fault::ReleaseInPart,
        };
        for place in self.in_part(fault, &found) {
            next.seen.foreign_change |= next.locks[place].is_some_and(|lock| lock.id != id);
            self.free(next, place);
            if self.is_shared() && place >= OWN {
                self.follow(next);
            }
        }
        next.messages.insert(Message::Released {
            id,
            is_undo,
            was_there,
        });
    }

    pub(crate) fn extend(&self, next: &mut State, id: Id, sent: u8) {
        let owned = next.owned(id);
        let is_whole = owned.len() == self.size_of(usize::from(id.client));
        let is_live = owned.iter().all(|place| self.is_live(next, *place));
        let was_there = is_whole && (is_live || self.fault == Some(Fault::ExtendExpired));
        if was_there {
            next.seen.revived |= !is_live;
            for place in self.in_part(Fault::ExtendInPart, &owned) {
                next.prolong(place, id);
                if self.is_shared() && place >= OWN {
                    self.follow(next);
                }
            }
        }
        next.messages.insert(Message::Extended {
            id,
            sent,
            was_there,
        });
    }
}

impl System {
    /// The store removes the lock, and tells those who wait.
    pub(crate) fn free(&self, next: &mut State, place: usize) {
        if next.remove(place) {
            self.tell(next, place);
        }
    }

    pub(crate) fn tell(&self, next: &mut State, place: usize) {
        let Some(place) = self.told_at(place) else {
            return;
        };
        for (client, waiter) in (0..).zip(&next.clients) {
            if matches!(
                waiter.phase,
                Phase::Waiting { .. } | Phase::Acquiring { .. }
            ) {
                next.messages.insert(Message::Freed { client, place });
            }
        }
    }
}

impl State {
    /// Removes a lock, and gives whether there was one.
    pub(crate) fn remove(&mut self, place: usize) -> bool {
        let Some(lock) = self.locks[place].take() else {
            return false;
        };
        self.forget_grant(place, lock.id);
        if !self.locks.iter().flatten().any(|one| one.id == lock.id) {
            self.index.remove(&lock.id);
        }
        true
    }

    fn prolong(&mut self, place: usize, id: Id) {
        let ends = self.now + TTL;
        self.locks[place] = self.locks[place].map(|lock| Lock { ends, ..lock });
        self.forget_grant(place, id);
        self.seen.granted.insert((place, id, ends));
    }

    fn forget_grant(&mut self, place: usize, id: Id) {
        let granted = &mut self.seen.granted;
        granted.retain(|(at, other, _)| (*at, *other) != (place, id));
    }
}
