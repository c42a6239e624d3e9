//! Who waits for which lock to be freed.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::listener::{self, Listen};
use crate::mutex::lock;

/// The locks for which somebody waits, by the names under which a store tells of them, and the connection on
/// which it does. Dropping this ends the connection.
pub(crate) struct Wakeups(Arc<Shared>);

pub(super) struct Shared {
    pub(super) listen: Box<dyn Listen>,
    names: Mutex<Names>,
    /// Tells the task that listens of changes.
    pub(super) changed: Notify,
    is_running: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Names {
    topics: BTreeMap<Arc<str>, (Arc<Topic>, usize)>,
    /// Names that came or went since the listener looked.
    changes: Vec<Arc<str>>,
}

/// What is known about one name.
#[derive(Default)]
struct Topic {
    /// How many times it may have been freed.
    freed: AtomicU64,
    is_listening: AtomicBool,
    woken: Notify,
}

impl Wakeups {
    /// Opens no connection: the first who waits does.
    pub(crate) fn new(listen: impl Listen) -> Self {
        Self(Arc::new(Shared {
            listen: Box::new(listen),
            names: Mutex::default(),
            changed: Notify::new(),
            is_running: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Hears of the lock with that name for as long as what it gives lives.
    pub(crate) fn watch(&self, name: &str) -> Watch {
        let mut names = lock(&self.0.names);
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
        // Whoever comes when the store tells already has missed what it told before, as if it had just begun to.
        // Read before the listener can see the name, so that its first wake-up counts.
        let is_late = topic.is_listening.load(SeqCst);
        let seen = topic.freed.load(SeqCst).wrapping_sub(u64::from(is_late));
        let seen = AtomicU64::new(seen);
        drop(names);
        self.0.changed.notify_one();
        Watch {
            shared: Arc::clone(&self.0),
            name,
            topic,
            seen,
        }
    }

    /// Whether nobody waits, and no connection is open.
    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        self.0.is_idle() && !self.0.is_running.load(SeqCst)
    }

    /// Ends the connection. Those who wait are woken for the last time, and find that the backend is closed.
    pub(crate) fn close(&self) {
        self.0.is_closed.store(true, SeqCst);
        self.0.changed.notify_one();
        for (topic, _) in lock(&self.0.names).topics.values() {
            topic.wake();
        }
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
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

    /// The store tells of what happens to that name from now on. What happened before was not heard.
    pub(super) fn listening(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name)
            && !topic.is_listening.swap(true, SeqCst)
        {
            topic.wake();
        }
    }

    /// The lock may have been freed.
    pub(super) fn freed(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name) {
            topic.wake();
        }
    }

    /// The store tells of what happens to that name no longer.
    pub(super) fn deaf_to(&self, name: &str) {
        if let Some((topic, _)) = lock(&self.names).topics.get(name) {
            topic.is_listening.store(false, SeqCst);
        }
    }

    /// The store tells of nothing any more.
    pub(super) fn deaf(&self) {
        for (topic, _) in lock(&self.names).topics.values() {
            topic.is_listening.store(false, SeqCst);
        }
    }

    fn leave(&self, name: &Arc<str>) {
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

    /// Starts the task that listens, unless it runs.
    fn listen(self: &Arc<Self>) {
        if self.is_closed() || self.is_running.swap(true, SeqCst) {
            return;
        }
        let mut running = Running {
            shared: Arc::clone(self),
            is_over: false,
        };
        tokio::spawn(async move {
            while !running.is_over {
                listener::run(&running.shared).await;
                running.end();
            }
        });
    }
}

/// The task that listens.
struct Running {
    shared: Arc<Shared>,
    is_over: bool,
}

impl Running {
    /// Ends, unless somebody has come since the listener decided to.
    fn end(&mut self) {
        let shared = &self.shared;
        shared.deaf();
        shared.is_running.store(false, SeqCst);
        let is_wanted = !shared.is_idle() && !shared.is_closed();
        self.is_over = !is_wanted || shared.is_running.swap(true, SeqCst);
    }
}

/// Lets another task listen when this one has ended with its runtime.
impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.shared.deaf();
        self.shared.is_running.store(false, SeqCst);
        for (topic, _) in lock(&self.shared.names).topics.values() {
            topic.woken.notify_waiters();
        }
    }
}

impl Topic {
    fn wake(&self) {
        self.freed.fetch_add(1, SeqCst);
        self.woken.notify_waiters();
    }
}

/// Hears when a lock may have been freed: from [`Backend::watch`](crate::Backend::watch).
///
/// Messages may be lost, and releases by other libraries send none: whoever waits must try again after a while
/// in any case.
pub struct Watch {
    shared: Arc<Shared>,
    name: Arc<str>,
    topic: Arc<Topic>,
    seen: AtomicU64,
}

impl Watch {
    /// Completes when the lock may have been freed since the last time this completed, also when the store has
    /// just begun to tell of it. Never completes while the store cannot tell. Needs a tokio runtime.
    pub async fn freed(&self) {
        loop {
            let mut woken = pin!(self.topic.woken.notified());
            // Before the count is read, so that nothing is missed between the two.
            woken.as_mut().enable();
            let freed = self.topic.freed.load(SeqCst);
            if self.seen.swap(freed, SeqCst) != freed {
                return;
            }
            self.shared.listen();
            woken.await;
        }
    }

    /// Whether the store tells at this moment.
    pub fn is_listening(&self) -> bool {
        self.topic.is_listening.load(SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.leave(&self.name);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
