//! Who of this process may ask the store for which lock: one at a time, first come, first served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{self, Notify, OwnedMutexGuard};
use tokio::time::Instant;

use super::retry::{RetryPolicy, Wait};
use super::wakeups::Watch;
use crate::error::Error;
use crate::mutex::lock;
use crate::random;

/// The queues of one backend, one for each key for which somebody waits.
#[derive(Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<String, Weak<Queue>>>>);

/// Those who wait for one key.
struct Queue {
    key: String,
    queues: Arc<Mutex<HashMap<String, Weak<Queue>>>>,
    /// Whoever has this has the turn. Tokio's mutex is fair.
    turn: Arc<sync::Mutex<Known>>,
    /// Somebody in this process has released the lock.
    released: Notify,
    /// How the store failed when it was last asked. All who wait for their turn wait for this.
    failure: Mutex<Option<Error>>,
    /// Those behind the first.
    line: Mutex<HashMap<u64, Waiting>>,
    /// Somebody has come.
    joined: Notify,
}

/// One who waits for its turn.
struct Waiting {
    since: Instant,
    policy: RetryPolicy,
}

/// What the first in line knows, and leaves to the next.
#[derive(Default)]
pub(crate) struct Known {
    /// Hears of releases; there once it was needed.
    pub(crate) watch: Option<Watch>,
    /// Whether the one before has taken the lock, and when it ends by itself.
    pub(crate) taken: Option<Instant>,
}

/// A place in a queue.
pub(crate) struct Place {
    queue: Arc<Queue>,
    number: u64,
}

/// The first place: the right to ask the store.
pub(crate) struct Turn {
    pub(crate) known: OwnedMutexGuard<Known>,
    queue: Arc<Queue>,
}

impl Turns {
    /// The last place in the queue for `key`, for one who would ask as `policy` says if it were alone.
    pub(crate) fn enter(&self, key: &str, policy: &RetryPolicy) -> Place {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let queue = self.queue(key);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let waiting = Waiting {
            since: Instant::now(),
            policy: *policy,
        };
        lock(&queue.line).insert(number, waiting);
        queue.joined.notify_one();
        Place { queue, number }
    }

    fn queue(&self, key: &str) -> Arc<Queue> {
        let mut queues = lock(&self.0);
        if let Some(queue) = queues.get(key).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(Queue {
            key: key.to_owned(),
            queues: Arc::clone(&self.0),
            turn: Arc::default(),
            released: Notify::new(),
            failure: Mutex::default(),
            line: Mutex::default(),
            joined: Notify::new(),
        });
        queues.insert(key.to_owned(), Arc::downgrade(&queue));
        queue
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Tells the first in line that this process has released the lock, if the store does not tell.
    pub(crate) fn released(&self, key: &str) {
        let queue = lock(&self.0).get(key).and_then(Weak::upgrade);
        if let Some(queue) = queue {
            queue.released.notify_one();
        }
    }
}

impl Place {
    /// Waits until all who came before have left.
    pub(crate) async fn first(&self) -> Turn {
        let queue = Arc::clone(&self.queue);
        let known = Arc::clone(&queue.turn).lock_owned().await;
        self.leave_line();
        Turn { known, queue }
    }

    /// How the store failed when the first in line last asked it.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.queue.failure).clone()
    }

    fn leave_line(&self) {
        lock(&self.queue.line).remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave_line();
    }
}

impl Turn {
    /// Lets those who wait know how the store has answered.
    pub(crate) fn tell(&self, failure: Option<&Error>) {
        *lock(&self.queue.failure) = failure.cloned();
    }

    /// Whether somebody who waits behind wants to be told by the store.
    pub(crate) fn others_listen(&self) -> bool {
        let line = lock(&self.queue.line);
        line.values()
            .any(|waiting| waiting.policy.wait == Wait::Notify)
    }

    /// Completes when somebody comes.
    pub(crate) async fn joined(&self) {
        self.queue.joined.notified().await;
    }

    /// When the most eager of those who wait behind would ask again, `asked` being when the store was last asked;
    /// `None` if none of them would.
    pub(crate) fn others_ask_at(&self, asked: Instant) -> Option<Instant> {
        let line = lock(&self.queue.line);
        if line.is_empty() {
            return None;
        }
        let random = random::unit().unwrap_or(0.5);
        let paces = line.values().map(|waiting| {
            let waited = asked.saturating_duration_since(waiting.since);
            let waited_ms = waited.as_secs_f64() * 1000.0;
            waiting.policy.pace_ms(waited_ms, random)
        });
        let pace_ms = paces.fold(f64::INFINITY, f64::min);
        asked.checked_add(Duration::try_from_secs_f64(pace_ms / 1000.0).ok()?)
    }

    /// Completes when the lock may have been freed: when the store tells (if `listens`), and else when this
    /// process has released it. Where the store tells, all processes hear at the same time, and the one that
    /// released it has no advantage.
    pub(crate) async fn freed(&self, listens: bool) {
        let released = &self.queue.released;
        let Some(watch) = self.known.watch.as_ref().filter(|_| listens) else {
            return released.notified().await;
        };
        loop {
            tokio::select! {
                biased;
                () = watch.freed() => return,
                () = released.notified() => if !watch.is_listening() { return },
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut queues = lock(&self.queues);
        // Somebody else may have come in the meantime, and made a new one.
        if queues
            .get(&self.key)
            .is_some_and(|queue| queue.strong_count() == 0)
        {
            queues.remove(&self.key);
        }
    }
}
