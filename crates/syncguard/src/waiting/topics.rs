//! Keeps the locks for which somebody waits, by the names under which a store tells of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::mutex::lock;

#[derive(Default)]
pub(super) struct Topics {
    names: Mutex<TopicNames>,
    /// Tells the task that listens of changes.
    pub(super) changed: Notify,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct TopicNames {
    /// For each name what is known of it, and how many wait for it.
    topics: BTreeMap<Arc<str>, (Arc<Topic>, usize)>,
    /// Names that came or went since the listener looked.
    changes: Vec<Arc<str>>,
}

/// What is known of one name.
#[derive(Default)]
pub(super) struct Topic {
    /// How many times its lock may have been freed.
    pub(super) freed: AtomicU64,
    pub(super) is_listening: AtomicBool,
    pub(super) woken: Notify,
}

impl Topics {
    /// Adds a waiter for a name. Gives the name, its topic, and how many wake-ups count as seen.
    pub(super) fn join(&self, name: &str) -> (Arc<str>, Arc<Topic>, u64) {
        let mut names = lock(&self.names);
        let (name, topic) = match names.topics.get_key_value(name) {
            Some((known, (topic, _))) => (Arc::clone(known), Arc::clone(topic)),
            None => {
                let name: Arc<str> = name.into();
                names.changes.push(Arc::clone(&name));
                (name, Arc::default())
            }
        };
        let entry = names.topics.entry(Arc::clone(&name));
        entry.or_insert_with(|| (Arc::clone(&topic), 0)).1 += 1;
        // If the store tells of the name already, this waiter has missed earlier messages, so one wake-up counts as not seen. The count
        // is read before the listener can see the name, so that its first wake-up counts, too.
        let is_late = topic.is_listening.load(SeqCst);
        let seen = topic.freed.load(SeqCst).wrapping_sub(u64::from(is_late));
        drop(names);
        self.changed.notify_one();
        (name, topic, seen)
    }

    /// Removes a waiter for a name.
    pub(super) fn leave(&self, name: &Arc<str>) {
        let mut names = lock(&self.names);
        let Some((_, watches)) = names.topics.get_mut(name) else {
            return;
        };
        *watches -= 1;
        if *watches == 0 {
            names.topics.remove(name);
            names.changes.push(Arc::clone(name));
            drop(names);
            self.changed.notify_one();
        }
    }

    /// The names that came (`true`) or went since the last call.
    pub(super) fn take_changes(&self) -> Vec<(Arc<str>, bool)> {
        let mut names = lock(&self.names);
        let changes = std::mem::take(&mut names.changes);
        let with_state = |name| {
            let is_wanted = names.topics.contains_key(&name);
            (name, is_wanted)
        };
        changes.into_iter().map(with_state).collect()
    }

    /// All names, for a new connection.
    pub(super) fn take_all(&self) -> Vec<(Arc<str>, bool)> {
        let mut names = lock(&self.names);
        names.changes.clear();
        names
            .topics
            .keys()
            .map(|name| (Arc::clone(name), true))
            .collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.names).topics.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Notes that the store tells of a name from now on. Wakes its waiters, because nobody has heard what happened before.
    pub(super) fn listening(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name)
            && !topic.is_listening.swap(true, SeqCst)
        {
            topic.wake();
        }
    }

    /// Wakes the waiters of a lock that may have been freed.
    pub(super) fn freed(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name) {
            topic.wake();
        }
    }

    /// Notes that the store tells of a name no longer.
    pub(super) fn unsubscribed(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name) {
            topic.is_listening.store(false, SeqCst);
        }
    }

    /// Notes that the store tells of nothing any more.
    pub(super) fn disconnected(&self) {
        for (topic, _) in lock(&self.names).topics.values() {
            topic.is_listening.store(false, SeqCst);
        }
    }

    /// Lets all waiters look again at once, although nothing was freed.
    pub(super) fn look_again(&self) {
        for (topic, _) in lock(&self.names).topics.values() {
            topic.woken.notify_waiters();
        }
    }

    /// Wakes all waiters for the last time.
    pub(super) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.changed.notify_one();
        for (topic, _) in lock(&self.names).topics.values() {
            topic.wake();
        }
    }
}

impl Topic {
    fn wake(&self) {
        self.freed.fetch_add(1, SeqCst);
        self.woken.notify_waiters();
    }
}
