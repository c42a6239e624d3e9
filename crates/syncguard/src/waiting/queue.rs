//! Who of this process may ask the store for which lock: one at a time, first come, first served.
//!
//! Who claims several locks stands in the queue of each of them, and asks when it is the first in all. It enters all
//! of them in one step, so that of two whose claims overlap one is before the other everywhere: nobody waits in a circle, and
//! nobody is passed.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::hand_over::HandOver;
use super::retry::{RetryPolicy, Wait};
use super::wakeups::Watch;
use crate::batch::Batch;
use crate::claim::Claim;
use crate::error::Error;
use crate::event_loop::Lane;
use crate::key::Key;
use crate::mutex::lock;
use crate::random;

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
}

/// Those who wait for one key. The first is not in the line.
#[derive(Default)]
struct Queue {
    /// Whether one who has got the lock keeps the next from getting it. Of slots, others may be free.
    is_exclusive: bool,
    line: VecDeque<QueuedWaiter>,
    /// Tells the first that something has changed.
    news: Arc<Notify>,
    /// In which lane the first asks.
    lane: Option<Lane>,
    /// Hears what the store tells; there once it was needed.
    watch: Option<Arc<Watch>>,
    /// Whether this process has freed the lock since the store was last asked, and the first is to hear of it.
    is_freed: bool,
    /// Whether the first is to hear of the release that is under way once it has ended.
    hears_of_end: bool,
    hand_over: HandOver,
    /// When the lock ends by itself that the one before has taken.
    taken: Option<Instant>,
    /// How the store failed when it was last asked. All who wait for their turn wait for this.
    failure: Option<Error>,
}

/// One who waits for its turn.
struct QueuedWaiter {
    number: u64,
    since: Instant,
    policy: RetryPolicy,
    turn: oneshot::Sender<Turn>,
}

/// What somebody finds who comes.
pub(crate) enum Entered {
    First(Turn),
    Behind(Place),
}

impl Entered {
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

/// The first place: the right to ask the store. Dropping it gives the turn to the next.
pub(crate) struct Turn {
    queues: Queues,
    key: Key,
    is_over: bool,
}

impl Queues {
    /// The last places in the queues for what is claimed, for one who would ask as `policy` says if it were alone. Claims
    /// of the same key stand side by side and share one.
    pub(crate) fn enter(&self, claims: &[Claim], policy: &RetryPolicy) -> Batch<Entered> {
        let mut queues = lock(&self.0);
        let QueuesInner { by_key, number, .. } = &mut *queues;
        *number += 1;
        let mut enter = |claim: &Claim| {
            let is_exclusive = claim.slots.is_none();
            let key = match is_exclusive {
                true => claim.key.clone(),
                false => all_slots(&claim.key),
            };
            let Some(queue) = by_key.get_mut(&key) else {
                by_key.insert(key.clone(), Queue::new(is_exclusive));
                return Entered::First(Turn::new(self, key));
            };
            let (sender, turn) = oneshot::channel();
            queue.line.push_back(QueuedWaiter {
                number: *number,
                since: Instant::now(),
                policy: *policy,
                turn: sender,
            });
            queue.news.notify_one();
            Entered::Behind(Place {
                queues: self.clone(),
                key,
                number: *number,
                turn,
            })
        };
        let keys = claims.chunk_by(|one, other| one.key == other.key);
        keys.filter_map(<[_]>::first).map(&mut enter).collect()
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
        let mut queues = lock(&self.0);
        let Some(queue) = queues.by_key.get_mut(queue_of(key).as_ref()) else {
            return;
        };
        queue.hand_over.freed();
        if queue.is_told() && queue.hand_over.releases(Instant::now()) {
            match lane.is_some() && lane == queue.lane {
                true => queue.free(),
                false => queue.hears_of_end = true,
            }
        }
    }

    /// That release has ended.
    pub(crate) fn release_ended(&self, key: &Key) {
        if let Some(queue) = lock(&self.0).by_key.get_mut(queue_of(key).as_ref())
            && (mem::take(&mut queue.hears_of_end) || !queue.is_told())
        {
            queue.free();
        }
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
            ..Self::default()
        }
    }

    /// Whether the store tells at this moment that the lock was freed.
    fn is_told(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.is_listening())
    }

    fn free(&mut self) {
        self.is_freed = true;
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
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = lock(&self.queues.0);
        if let Some(queue) = queues.by_key.get_mut(&self.key) {
            // They stand in the order of their numbers.
            let place = queue
                .line
                .binary_search_by_key(&self.number, |one| one.number);
            if let Ok(place) = place {
                queue.line.remove(place);
            }
        }
        // Whoever has just been given the turn drops it with its receiver.
    }
}

impl Turn {
    fn new(queues: &Queues, key: Key) -> Self {
        Self {
            queues: queues.clone(),
            key,
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

    /// When the lock ends by itself that the one before has taken, if it has.
    pub(crate) fn taken(&self) -> Option<Instant> {
        self.with(|queue| queue.taken.take())
    }

    /// Notes that the store is asked now, and fails if nobody may wait any more.
    pub(crate) fn asks(&self) -> Result<(), Error> {
        let mut queues = lock(&self.queues.0);
        if let Some(refusal) = &queues.refusal {
            return Err(refusal.clone());
        }
        if let Some(queue) = queues.by_key.get_mut(&self.key) {
            // What was told before is of no use any more.
            queue.is_freed = false;
        }
        Ok(())
    }

    /// Notes that somebody holds the lock, or how the store has failed.
    pub(crate) fn found(&self, failure: Option<&Error>) {
        self.with(|queue| {
            queue.failure = failure.cloned();
            if failure.is_none() {
                queue.hand_over.found_held(Instant::now());
            }
        });
    }

    /// The lock was granted. It ends by itself at that time.
    pub(crate) fn granted(self, end: Instant) {
        self.with(|queue| {
            if queue.is_exclusive {
                queue.taken = Some(end);
                queue.hand_over.granted(Instant::now());
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
            let others = || queue.line.iter().map(|waiting| waiting.policy.wait);
            if queue.watch.is_none() && (listens || others().any(|wait| wait == Wait::Notify)) {
                queue.watch = listen().map(Arc::new);
            }
            (Arc::clone(&queue.news), queue.watch.clone())
        })
    }

    /// Whether there is a reason to ask now, beside the time and what the store tells.
    pub(crate) fn is_freed(&self) -> bool {
        let queues = lock(&self.queues.0);
        let queue = queues.by_key.get(&self.key);
        queues.refusal.is_some() || queue.is_some_and(|queue| queue.is_freed)
    }

    /// Whether what the store tells now is news.
    pub(crate) fn is_news(&self) -> bool {
        !self.with(|queue| queue.hand_over.is_late(Instant::now()))
    }

    /// When the most eager of those who wait behind would ask again, `asked` being when the store was last asked;
    /// `None` if none of them would.
    pub(crate) fn others_ask_at(&self, asked: Instant) -> Option<Instant> {
        let pace_ms = self.with(|queue| {
            let random = random::unit().unwrap_or(0.5);
            let paces = queue.line.iter().map(|waiting| {
                let waited = asked.saturating_duration_since(waiting.since);
                let waited_ms = waited.as_secs_f64() * 1000.0;
                waiting.policy.pace_ms(waited_ms, random)
            });
            paces.reduce(f64::min)
        })?;
        asked.checked_add(Duration::try_from_secs_f64(pace_ms / 1000.0).ok()?)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        while !self.is_over {
            let mut queues = lock(&self.queues.0);
            let queue = queues.by_key.get_mut(&self.key);
            let Some(next) = queue.and_then(|queue| queue.line.pop_front()) else {
                let last = queues.by_key.remove(&self.key);
                // The connection that the watch may end takes locks of its own.
                drop(queues);
                drop(last);
                return;
            };
            drop(queues);
            let turn = Self::new(&self.queues, self.key.clone());
            match next.turn.send(turn) {
                Ok(()) => self.is_over = true,
                // It has just left: this one passes the turn on, and not that one.
                Err(mut turn) => turn.is_over = true,
            }
        }
    }
}
