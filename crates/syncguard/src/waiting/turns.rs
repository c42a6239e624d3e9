//! Who of this process may ask the store for which lock: one at a time, first come, first served.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{self, Notify, OwnedMutexGuard};
use tokio::time::Instant;

use super::wakeups::Watch;
use crate::error::Error;
use crate::mutex::lock;

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
pub(crate) struct Place(Arc<Queue>);

/// The first place: the right to ask the store.
pub(crate) struct Turn {
    pub(crate) known: OwnedMutexGuard<Known>,
    place: Place,
}

impl Turns {
    /// The last place in the queue for `key`.
    pub(crate) fn enter(&self, key: &str) -> Place {
        let mut queues = lock(&self.0);
        if let Some(queue) = queues.get(key).and_then(Weak::upgrade) {
            return Place(queue);
        }
        let queue = Arc::new(Queue {
            key: key.to_owned(),
            queues: Arc::clone(&self.0),
            turn: Arc::default(),
            released: Notify::new(),
            failure: Mutex::default(),
        });
        queues.insert(key.to_owned(), Arc::downgrade(&queue));
        Place(queue)
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
        let known = Arc::clone(&self.0.turn).lock_owned().await;
        let place = Self(Arc::clone(&self.0));
        Turn { known, place }
    }

    /// How the store failed when the first in line last asked it.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.0.failure).clone()
    }
}

impl Turn {
    /// Lets those who wait know how the store has answered.
    pub(crate) fn tell(&self, failure: Option<&Error>) {
        *lock(&self.place.0.failure) = failure.cloned();
    }

    /// Completes when the lock may have been freed: when the store tells (if `listens`), and else when this
    /// process has released it. Where the store tells, all processes hear at the same time, and the one that
    /// released it has no advantage.
    pub(crate) async fn freed(&mut self, listens: bool) {
        let released = &self.place.0.released;
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
