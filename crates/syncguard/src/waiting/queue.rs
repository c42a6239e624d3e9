//! Who of this process may ask the store for which lock: one at a time, first come, first served.
//!
//! Who claims several locks stands in the queue of each of them, and asks when it is the first in all. It enters all
//! of them in one step, so that of two whose claims overlap one is before the other everywhere: nobody waits in a circle, and
//! nobody is passed.
//!
//! Of slots, several may be free. Those who want nothing but slots of one key ask beside each other while none was refused.
//! After a refusal, as many of them ask as this process has released slots. When other processes may have released some, one
//! asks, and one more for each that is granted, until the next refusal. Whoever is refused goes back to its place.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::hand_over::{HandOver, LATE_MESSAGE};
use super::retry::{RetryPolicy, Wait};
use super::wakeups::Watch;
use crate::mutex::lock;
use crate::network::event_loop::Lane;
use crate::random;
use crate::text::error::{Busy, Error};
use crate::values::batch::Batch;
use crate::values::claim::{Claim, Slots};
use crate::values::key::Key;

/// The queues of one backend, one for each key for which somebody waits, and one for all slots of a key.
#[derive(Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<QueuesInner>>);

#[derive(Default)]
struct QueuesInner {
    by_key: HashMap<Key, Queue>,
    /// The number of the next place.
    number: u64,
    /// Why nobody may wait any more.
    refusal: Option<Error>,
    /// Until when the store's messages are not relied on, because a lock was freed of which it had not told.
    doubted_until: Option<Instant>,
}

/// For how long the store's messages are not relied on after a lock was freed without one.
const DOUBT: Duration = Duration::from_secs(600);

/// Those who wait for one key. Those who have a turn are not in the line.
#[derive(Default)]
struct Queue {
    /// Whether one who has got the lock keeps the next from getting it. Of slots, others may be free.
    is_exclusive: bool,
    /// In the order of their numbers.
    line: VecDeque<QueuedWaiter>,
    /// How many have a turn: one, unless it is about slots.
    turns: usize,
    /// How many of them ask at this moment, and want nothing else.
    asking: usize,
    room: Room,
    /// The slots that this process was granted through this queue, and has not released.
    held: HashSet<u16>,
    /// Tells the first that something has changed.
    news: Arc<Notify>,
    /// In which lane the first asks.
    lane: Option<Lane>,
    /// Hears what the store tells; there once it was needed.
    watch: Option<Arc<Watch>>,
    /// How often this process has freed the lock since the store was last asked, and the first is to hear of it. Of slots,
    /// each question answers one.
    freed: usize,
    /// Of how many releases that are under way the first is to hear once they have ended.
    hears_of_ends: usize,
    hand_over: HandOver,
    /// When the lock ends by itself that the one before has taken; of slots, the first of those that are all held.
    taken: Option<Instant>,
    /// When to ask for a slot again, because what the store has told may have been news.
    look_again_at: Option<Instant>,
    /// How the store failed when it was last asked. All who wait for their turn wait for this.
    failure: Option<Error>,
    /// What the store has last said of a lock that is held, and when.
    busy: Option<(Instant, Busy)>,
}

/// What is known of the slots of a key.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Room {
    /// Nobody was refused.
    #[default]
    Open,
    /// Something may have been freed by others: how much is unknown. So many may ask at the same time: at first one, and
    /// one more for each grant.
    Unknown { window: usize },
    /// The last who asked was refused.
    Full,
}

/// Who came when, and how it would ask if it were alone.
#[derive(Clone, Copy)]
struct Ticket {
    number: u64,
    since: Instant,
    policy: RetryPolicy,
    /// Whether it stands in no other queue.
    is_alone: bool,
    /// How many slots its key has.
    slots: Option<Slots>,
}

/// One who waits for its turn.
struct QueuedWaiter {
    ticket: Ticket,
    turn: oneshot::Sender<Turn>,
}

/// What somebody finds who comes.
pub(crate) enum QueueEntry {
    First(Turn),
    Behind(Place),
}

impl QueueEntry {
    /// The turn of one who is the first.
    pub(super) fn first(self) -> Option<Turn> {
        match self {
            Self::First(turn) => Some(turn),
            Self::Behind(_) => None,
        }
    }
}

/// A place behind the first. Dropping it leaves the queue.
pub(crate) struct Place {
    queues: Queues,
    key: Key,
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

/// The right to ask the store. Dropping it gives the turn to the next.
pub(crate) struct Turn {
    queues: Queues,
    key: Key,
    ticket: Ticket,
    /// Whether others may have one at the same time.
    has_others: bool,
    /// Whether it asked last because what it wants was freed.
    was_freed: bool,
    is_over: bool,
}

/// Notes for as long as it lives that one who has a turn asks.
pub(crate) struct Asking<'a>(&'a Turn);

impl Queues {
    /// The last places in the queues for what is claimed, for one who would ask as `policy` says if it were alone. Claims
    /// of the same key stand side by side and share one.
    pub(crate) fn enter(&self, claims: &[Claim], policy: &RetryPolicy) -> Batch<QueueEntry> {
        let mut queues = lock(&self.0);
        let QueuesInner { by_key, number, .. } = &mut *queues;
        *number += 1;
        let keys = || claims.chunk_by(|one, other| one.key == other.key);
        let ticket = Ticket {
            number: *number,
            since: Instant::now(),
            policy: *policy,
            is_alone: keys().count() == 1,
            slots: None,
        };
        let mut enter = |claim: &Claim| {
            let is_exclusive = claim.slots.is_none();
            let ticket = Ticket {
                slots: claim.slots,
                ..ticket
            };
            let key = match is_exclusive {
                true => claim.key.clone(),
                false => all_slots(&claim.key),
            };
            let Some(queue) = by_key.get_mut(&key) else {
                by_key.insert(key.clone(), Queue::new(is_exclusive));
                return QueueEntry::First(Turn::new(self, key, ticket, is_exclusive));
            };
            if queue.line.is_empty() && queue.has_room(&ticket) {
                queue.turns += 1;
                return QueueEntry::First(Turn::new(self, key, ticket, is_exclusive));
            }
            QueueEntry::Behind(queue.wait(self, key, ticket))
        };
        keys().filter_map(<[_]>::first).map(&mut enter).collect()
    }

    /// Gives the first in line a turn if nobody has one, or if there is room for one more.
    fn go_on(&self, key: &Key) {
        loop {
            let mut queues = lock(&self.0);
            let Some(queue) = queues.by_key.get_mut(key) else {
                return;
            };
            let front = queue.line.front();
            let goes_on =
                front.is_some_and(|next| queue.turns == 0 || queue.has_room(&next.ticket));
            let Some(next) = goes_on.then(|| queue.line.pop_front()).flatten() else {
                if queue.turns == 0 {
                    let last = queues.by_key.remove(key);
                    // The connection that the watch may end takes locks of its own.
                    drop(queues);
                    drop(last);
                }
                return;
            };
            queue.turns += 1;
            let is_exclusive = queue.is_exclusive;
            drop(queues);
            let turn = Turn::new(self, key.clone(), next.ticket, is_exclusive);
            let Err(mut turn) = next.turn.send(turn) else {
                return;
            };
            // It has just left.
            turn.is_over = true;
            if let Some(queue) = lock(&self.0).by_key.get_mut(key) {
                queue.turns -= 1;
            }
        }
    }

    /// Lets all who wait, and who come later, fail with this error.
    pub(crate) fn refuse(&self, error: Error) {
        let mut queues = lock(&self.0);
        queues.refusal.get_or_insert(error);
        for queue in queues.by_key.values() {
            queue.news.notify_one();
        }
    }

    /// This process has sent the release of a lock in that lane: what is asked in the same lane comes after it.
    pub(crate) fn release_sent(&self, key: &Key, lane: Option<Lane>) {
        let (slot, key, now) = (key.slot_number(), queue_of(key), Instant::now());
        let mut queues = lock(&self.0);
        let Some(queue) = queues.by_key.get_mut(key.as_ref()) else {
            return;
        };
        queue.hand_over.freed();
        if let Some(number) = slot {
            queue.held.remove(&number);
        }
        if !queue.is_told() || !queue.hand_over.releases(now) {
            return;
        }
        if !queue.is_exclusive {
            queue.hand_over.slot_handed_over(now);
        }
        if lane.is_none() || lane != queue.lane {
            queue.hears_of_ends += 1;
            return;
        }
        queue.free();
        drop(queues);
        self.go_on(&key);
    }

    /// That release has ended.
    pub(crate) fn release_ended(&self, key: &Key) {
        let key = queue_of(key);
        let mut queues = lock(&self.0);
        let Some(queue) = queues.by_key.get_mut(key.as_ref()) else {
            return;
        };
        match queue.hears_of_ends.checked_sub(1) {
            Some(others) => queue.hears_of_ends = others,
            None if queue.is_told() => return,
            None => {}
        }
        queue.free();
        drop(queues);
        self.go_on(&key);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).by_key.is_empty()
    }
}

/// The name of the queue for any slot of a key: no slot has this number.
fn all_slots(key: &Key) -> Key {
    key.slot(0)
}

/// The name of the queue of those who wait for what has that key.
fn queue_of(key: &Key) -> Cow<'_, Key> {
    match key.slot_number() {
        None => Cow::Borrowed(key),
        Some(_) => Cow::Owned(all_slots(key)),
    }
}

impl Queue {
    fn new(is_exclusive: bool) -> Self {
        Self {
            is_exclusive,
            turns: 1,
            ..Self::default()
        }
    }

    /// Whether one more may ask beside those who do: all of these have been granted what they want, as far as is known, or
    /// so much was freed.
    fn has_room(&self, ticket: &Ticket) -> bool {
        let is_beside = !self.is_exclusive && ticket.is_alone && self.asking == self.turns;
        let has_room = match self.room {
            Room::Open => true,
            Room::Unknown { window } => self.asking < window,
            Room::Full => false,
        };
        is_beside && (has_room || self.freed > 0)
    }

    /// A place in line, behind those who came before.
    fn wait(&mut self, queues: &Queues, key: Key, ticket: Ticket) -> Place {
        let (sender, turn) = oneshot::channel();
        let place = self
            .line
            .partition_point(|one| one.ticket.number < ticket.number);
        let waiter = QueuedWaiter {
            ticket,
            turn: sender,
        };
        self.line.insert(place, waiter);
        self.news.notify_one();
        Place {
            queues: queues.clone(),
            key,
            number: ticket.number,
            turn,
        }
    }

    /// Whether the store tells at this moment that the lock was freed.
    fn is_told(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_listening())
    }

    fn free(&mut self) {
        self.freed = match self.is_exclusive {
            true => 1,
            false => self.freed + 1,
        };
        self.news.notify_one();
    }
}

impl Place {
    /// Waits until all who came before have left.
    pub(crate) async fn turn(&mut self) -> Result<Turn, Error> {
        // Nobody drops the sender of a place that is still taken.
        let gone = |_| Error::new(crate::ErrorKind::Internal, "a place in a queue is gone");
        (&mut self.turn).await.map_err(gone)
    }

    /// How the store failed when the first in line last asked it.
    pub(crate) fn failure(&self) -> Option<Error> {
        let queues = lock(&self.queues.0);
        queues.by_key.get(&self.key)?.failure.clone()
    }

    /// What the store has last said of the lock that is waited for, and when.
    pub(crate) fn busy(&self) -> Option<(Instant, Busy)> {
        let queues = lock(&self.queues.0);
        queues.by_key.get(&self.key)?.busy.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = lock(&self.queues.0);
        if let Some(queue) = queues.by_key.get_mut(&self.key) {
            // They stand in the order of their numbers.
            let place = queue
                .line
                .binary_search_by_key(&self.number, |one| one.ticket.number);
            if let Ok(place) = place {
                queue.line.remove(place);
            }
        }
        // Whoever has just been given the turn drops it with its receiver.
    }
}

impl Turn {
    fn new(queues: &Queues, key: Key, ticket: Ticket, is_exclusive: bool) -> Self {
        Self {
            queues: queues.clone(),
            key,
            ticket,
            has_others: ticket.is_alone && !is_exclusive,
            was_freed: false,
            is_over: false,
        }
    }

    /// Runs with what is known of the queue.
    fn with<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> T
    where
        T: Default,
    {
        let mut queues = lock(&self.queues.0);
        // The queue is there for as long as the turn is.
        queues
            .by_key
            .get_mut(&self.key)
            .map(run)
            .unwrap_or_default()
    }

    /// When what it wants ends by itself, as far as is known, if there is no need to ask for it now: the one before has taken
    /// the lock, or was refused a slot.
    pub(crate) fn taken(&self) -> Option<Option<Instant>> {
        self.with(|queue| match queue.is_exclusive {
            true => queue.taken.take().map(Some),
            false => (queue.room == Room::Full && queue.freed == 0).then_some(queue.taken),
        })
    }

    /// Notes that the store is asked now, and fails if nobody may wait any more.
    pub(crate) fn asks(&mut self) -> Result<(), Error> {
        let mut queues = lock(&self.queues.0);
        if let Some(refusal) = &queues.refusal {
            return Err(refusal.clone());
        }
        if let Some(queue) = queues.by_key.get_mut(&self.key) {
            // What was told before is of no use any more.
            let left = queue.freed.checked_sub(1);
            self.was_freed = left.is_some();
            queue.freed = left.filter(|_| !queue.is_exclusive).unwrap_or(0);
            queue.taken = queue.taken.filter(|_| !queue.is_exclusive);
        }
        Ok(())
    }

    /// Whether the store tells at this moment when the lock is freed, and has not failed to lately. Of slots, one message may stand
    /// for several releases.
    pub(crate) fn is_told(&self) -> bool {
        let queues = lock(&self.queues.0);
        let doubted = queues.doubted_until;
        let queue = queues.by_key.get(&self.key);
        let is_told = queue.is_some_and(|queue| queue.is_exclusive && queue.is_told());
        is_told && doubted.is_none_or(|until| until <= Instant::now())
    }

    /// Notes that the lock was freed before its time, and the store has not told of it.
    pub(crate) fn was_not_told(&self) {
        lock(&self.queues.0).doubted_until = Instant::now().checked_add(DOUBT);
    }

    /// Whether others may have a turn at the same time.
    pub(crate) fn has_others(&self) -> bool {
        self.has_others
    }

    /// Lets others ask at the same time, as many as there is room for, until what this gives is dropped.
    pub(crate) fn asking(&self) -> Option<Asking<'_>> {
        if !self.has_others {
            return None;
        }
        self.with(|queue| queue.asking += 1);
        self.queues.go_on(&self.key);
        Some(Asking(self))
    }

    /// Notes that somebody holds the lock, until that time if it is known, or how the store has failed.
    pub(crate) fn found(&self, failure: Option<&Error>, free_at: Option<Instant>) {
        let now = Instant::now();
        self.with(|queue| {
            queue.failure = failure.cloned();
            if queue.is_exclusive {
                if failure.is_none() {
                    queue.hand_over.found_held(now);
                }
                return;
            }
            queue.taken = free_at;
            queue.look_again_at = None;
            queue.room = match failure {
                None => Room::Full,
                Some(_) => Room::Unknown { window: 1 },
            };
            // Somebody else has got a slot that was just freed, unless this process itself holds all of them.
            let slots = self.ticket.slots.map_or(0, |slots| slots.count().into());
            if failure.is_none() && self.was_freed && queue.held.len() < slots {
                queue.hand_over.found_held(now);
            }
        });
    }

    /// Notes what the store has said of the lock that is held.
    pub(crate) fn tells(&self, busy: Option<(Instant, Busy)>) {
        self.with(|queue| queue.busy = busy);
    }

    /// Notes that something may have been freed by others, or by itself.
    pub(crate) fn may_be_free(&self) {
        self.with(|queue| {
            if queue.room == Room::Full {
                queue.room = Room::Unknown { window: 1 };
            }
        });
    }

    /// Goes back to its place in line if somebody else waits with a turn, or came earlier.
    pub(crate) fn give_way(self) -> QueueEntry {
        let mut queues = lock(&self.queues.0);
        let Some(queue) = queues.by_key.get_mut(&self.key) else {
            drop(queues);
            return QueueEntry::First(self);
        };
        let is_older = |one: &QueuedWaiter| one.ticket.number < self.ticket.number;
        if queue.turns == 1 && !queue.line.front().is_some_and(is_older) {
            drop(queues);
            return QueueEntry::First(self);
        }
        let place = queue.wait(&self.queues, self.key.clone(), self.ticket);
        drop(queues);
        QueueEntry::Behind(place)
    }

    /// What it wanted was granted: the lock of the key, which ends by itself at that time, or these slots of it.
    pub(crate) fn granted(self, end: Instant, slots: impl Iterator<Item = u16>) {
        self.with(|queue| {
            queue.busy = None;
            if queue.is_exclusive {
                queue.taken = Some(end);
                queue.hand_over.granted(Instant::now());
                return;
            }
            queue.held.extend(slots);
            if let Room::Unknown { window } = &mut queue.room {
                *window += 1;
            }
        });
    }

    /// Prepares to wait in that lane. Gives what tells the first that something has changed, and what the store tells;
    /// `listen` gives the latter if anybody wants it and it is not there yet.
    pub(crate) fn listen(
        &self,
        lane: Option<Lane>,
        listens: bool,
        listen: impl FnOnce() -> Option<Watch>,
    ) -> (Arc<Notify>, Option<Arc<Watch>>) {
        self.with(|queue| {
            queue.lane = lane;
            let others = || queue.line.iter().map(|waiting| waiting.ticket.policy.wait);
            if queue.watch.is_none() && (listens || others().any(|wait| wait != Wait::Poll)) {
                queue.watch = listen().map(Arc::new);
            }
            (Arc::clone(&queue.news), queue.watch.clone())
        })
    }

    /// Whether there is a reason to ask now, beside the time and what the store tells.
    pub(crate) fn is_freed(&self) -> bool {
        let queues = lock(&self.queues.0);
        let queue = queues.by_key.get(&self.key);
        queues.refusal.is_some() || queue.is_some_and(|queue| queue.freed > 0)
    }

    /// Whether what the store tells now, so many times, is news.
    pub(crate) fn is_news(&self, times: u64) -> bool {
        let now = Instant::now();
        self.with(|queue| {
            if queue.is_exclusive {
                return !queue.hand_over.is_late(now);
            }
            let is_news = queue.hand_over.news_of_slots(times, now) > 0;
            if !is_news {
                // A store may tell once of several releases, and then this was another one.
                queue.look_again_at.get_or_insert(now + LATE_MESSAGE);
            }
            is_news
        })
    }

    /// When to ask again because of messages that were taken for those of slots which this process has handed over.
    pub(crate) fn looks_again_at(&self) -> Option<Instant> {
        self.with(|queue| queue.look_again_at)
    }

    /// When the most eager of those who wait behind would ask again, `asked` being when the store was last asked;
    /// `None` if none of them would. With `relies`, those count alone who do not rely on the store's messages.
    pub(crate) fn others_ask_at(&self, asked: Instant, relies: bool) -> Option<Instant> {
        let pace_ms = self.with(|queue| {
            let random = random::unit().unwrap_or(0.5);
            let others = queue.line.iter();
            let others =
                others.filter(|waiting| !relies || waiting.ticket.policy.wait == Wait::Poll);
            let paces = others.map(|waiting| {
                let waited = asked.saturating_duration_since(waiting.ticket.since);
                let waited_ms = waited.as_secs_f64() * 1000.0;
                waiting.ticket.policy.pace_ms(waited_ms, random)
            });
            paces.reduce(f64::min)
        })?;
        asked.checked_add(Duration::try_from_secs_f64(pace_ms / 1000.0).ok()?)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.with(|queue| queue.turns -= 1);
        self.queues.go_on(&self.key);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.with(|queue| queue.asking -= 1);
    }
}

#[cfg(test)]
mod tests;
