//! Decides which waiter of this process may ask the store for which lock: first come, first served, among those who could be granted it
//! now.
//!
//! A waiter stands in one [line](line), for the lock that stood in the way when the store was last asked. Whatever else it wants is
//! open to everybody meanwhile. The first in a line watches its lock, and asks. It asks only if nothing else that it wants is known to
//! be held, and nobody asks for that at this moment. Otherwise it goes to the line for that lock, where its age gives it its place, and
//! the next one asks. So nobody is kept from what is free. And nobody waits in a circle, because whoever is waited for is older, or on
//! its way to the store.
//!
//! Others could pass a waiter for several locks for ever, by taking one of them while it waits for another. So it gathers them after a
//! while: `waiter/gathering.rs`.

pub(super) mod line;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use self::line::{Line, LineMember, Wish};
use super::wakeups::Watch;
use super::yielding::Turns;
use crate::mutex::lock;
use crate::network::event_loop::Lane;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::key::{GATE, Key};

/// The queues of one backend, one for each key for which somebody waits or asks, and one for all slots of a key.
#[derive(Clone, Default)]
pub(crate) struct Queues(pub(super) Arc<Mutex<QueuesInner>>);

#[derive(Default)]
pub(super) struct QueuesInner {
    pub(super) by_key: HashMap<Key, Queue>,
    pub(super) turns: Turns,
    /// The number of the last waiter who came.
    pub(super) number: u64,
    /// Why nobody may wait any more.
    pub(super) refusal: Option<Error>,
    /// Until this time, the store's messages are not relied on, because a lock was freed without one.
    pub(super) doubted_until: Option<Instant>,
}

/// All who want something of one key.
#[derive(Default)]
pub(super) struct Queue {
    /// One line for each wish. For the key itself there are two at most: of readers, and of those who want it alone.
    pub(super) lines: SmallVec<[Line; 1]>,
    /// The slots that this process was granted while somebody waited, and has not released.
    pub(super) held: HashSet<u16>,
}

/// The part of a ticket that is about one key.
pub(super) struct Want {
    /// The name of the queue.
    pub(super) key: Key,
    pub(super) wish: Wish,
    /// Whether the attempt that is on its way is made because this process has freed the lock.
    pub(super) was_freed: bool,
}

impl Queues {
    /// Gives a number to a waiter who comes.
    pub(super) fn next_number(&self) -> u64 {
        let mut queues = lock(&self.0);
        queues.number += 1;
        queues.number
    }

    /// Ends all waits, and all that begin later, with this error.
    pub(crate) fn refuse(&self, error: Error) {
        let mut queues = lock(&self.0);
        queues.refusal.get_or_insert(error);
        let lines = queues.by_key.values().flat_map(|queue| &queue.lines);
        lines.flat_map(Line::members).for_each(LineMember::tell);
    }

    /// Notes that this process has sent the release of a lock in this lane. What it asks in the same lane from now on comes after the release.
    pub(crate) fn release_sent(&self, key: &Key, lane: Option<Lane>) {
        lock(&self.0).turns.released(key, Instant::now());
        if key.reader_id().is_some() {
            // Other readers may still have the key: who waits for it hears of the end of the release.
            return;
        }
        self.with_lines_for(key, |queue, slot| {
            if let Some(number) = slot {
                queue.held.remove(&number);
            }
            |line: &mut Line| line.release_sent(lane)
        });
    }

    /// Notes that a release by this process has ended.
    pub(crate) fn release_ended(&self, key: &Key) {
        let base = || key.base_key();
        match (key.reader_id(), key.slot_number()) {
            (Some(_), _) => self.with_lines_for(&base(), |_, _| Line::reader_left),
            (None, Some(GATE)) => {
                self.with_lines_for(key, |_, _| Line::release_ended);
                self.with_lines_for(&base(), |_, _| Line::gate_opened);
            }
            (None, _) => self.with_lines_for(key, |_, _| Line::release_ended),
        }
    }

    /// Calls `tell` for each line whose wish the lock of this key could meet. The line whose first waiter is the oldest comes first.
    fn with_lines_for<Tell: FnMut(&mut Line)>(
        &self,
        key: &Key,
        tell: impl FnOnce(&mut Queue, Option<u16>) -> Tell,
    ) {
        let (slot, name) = (key.slot_number(), queue_of(key));
        let mut queues = lock(&self.0);
        let Some(queue) = queues.by_key.get_mut(name.as_ref()) else {
            return;
        };
        let tell = tell(queue, slot);
        queue.lines.sort_by_key(Line::first);
        // A waiter for a gate wants no slots, like one for a key. Its line is in the queue of the slots.
        let reaches = |line: &&mut Line| match (line.wish.slots, slot) {
            (_, None) => true,
            (None, Some(number)) => number == GATE,
            (Some(slots), Some(number)) => (1..=slots.count()).contains(&number),
        };
        queue.lines.iter_mut().filter(reaches).for_each(tell);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).by_key.is_empty()
    }
}

/// The name of the queue for all slots of a key, and for their gate, whose number it has.
pub(super) fn all_slots(key: &Key) -> Key {
    key.slot(0)
}

/// The name of the queue for the lock of this key.
fn queue_of(key: &Key) -> Cow<'_, Key> {
    match key.slot_number() {
        None => Cow::Borrowed(key),
        Some(_) => Cow::Owned(all_slots(key)),
    }
}

impl QueuesInner {
    /// The line for a want. Makes one if there is none.
    pub(super) fn line_or_new(&mut self, want: &Want) -> &mut Line {
        let Queue { lines, .. } = self.by_key.entry(want.key.clone()).or_default();
        let place = lines.iter().position(|line| line.wish == want.wish);
        let place = place.unwrap_or_else(|| {
            lines.push(Line::new(want.wish, Instant::now()));
            lines.len() - 1
        });
        &mut lines[place]
    }

    pub(super) fn line(&self, want: &Want) -> Option<&Line> {
        self.by_key.get(&want.key)?.line(want)
    }

    pub(super) fn line_mut(&mut self, want: &Want) -> Option<&mut Line> {
        self.by_key.get_mut(&want.key)?.line_mut(want)
    }

    /// Whether the waiter of this number may ask for this.
    pub(super) fn is_open(&self, want: &Want, number: u64) -> bool {
        self.line(want).is_none_or(|line| line.lets(number))
    }

    /// Forgets lines in which nobody waits or asks any more. The watches that this gives must be dropped after the mutex is unlocked,
    /// because the end of a watch may end a connection, which locks a mutex of its own.
    pub(super) fn tidy(&mut self, wants: &[Want]) -> Batch<Arc<Watch>> {
        let mut watches = Batch::new();
        for want in wants {
            let Some(queue) = self.by_key.get_mut(&want.key) else {
                continue;
            };
            queue.lines.retain(|line| {
                let is_idle = line.is_idle();
                watches.extend(line.watch.take_if(|_| is_idle));
                !is_idle
            });
            if queue.lines.is_empty() {
                self.by_key.remove(&want.key);
            }
        }
        watches
    }
}

impl Queue {
    pub(super) fn line(&self, want: &Want) -> Option<&Line> {
        self.lines.iter().find(|line| line.wish == want.wish)
    }

    pub(super) fn line_mut(&mut self, want: &Want) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.wish == want.wish)
    }
}

/// How long the store's messages are not relied on after a lock was freed without one.
pub(super) const DOUBT: Duration = Duration::from_secs(600);
