//! Wakes waiters when a store tells that their lock was freed.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tokio::task::yield_now;

use super::listener::{self, Listen};
use super::topics::{Topic, Topics};

/// The locks for which somebody waits, and the connection on which the store tells of them. Dropping this ends the
/// connection.
pub(crate) struct Wakeups(Arc<WakeupsInner>);

struct WakeupsInner {
    listen: Box<dyn Listen>,
    topics: Topics,
    is_running: AtomicBool,
}

impl Wakeups {
    /// Opens no connection yet. The first waiter does.
    pub(crate) fn new(listen: impl Listen) -> Self {
        Self(Arc::new(WakeupsInner {
            listen: Box::new(listen),
            topics: Topics::default(),
            is_running: AtomicBool::new(false),
        }))
    }

    /// Hears of the lock with this name for as long as the watch lives.
    pub(crate) fn watch(&self, name: &str) -> Watch {
        let (name, topic, seen) = self.0.topics.join(name);
        Watch {
            shared: Arc::clone(&self.0),
            name,
            topic,
            seen: AtomicU64::new(seen),
        }
    }

    /// Whether nobody waits, and no connection is open.
    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        self.0.topics.is_idle() && !self.0.is_running.load(SeqCst)
    }

    /// Ends the connection. Waiters are woken for the last time, and find that the backend is closed.
    pub(crate) fn close(&self) {
        self.0.topics.close();
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.close();
    }
}

impl WakeupsInner {
    /// Starts the task that listens, unless it runs.
    fn listen(self: &Arc<Self>) {
        if self.topics.is_closed() || self.is_running.swap(true, SeqCst) {
            return;
        }
        let mut running = ListeningTask {
            shared: Arc::clone(self),
            is_over: false,
        };
        tokio::spawn(async move {
            while !running.is_over {
                listener::run(&running.shared.topics, running.shared.listen.as_ref()).await;
                running.end();
            }
        });
    }
}

/// The task that listens.
struct ListeningTask {
    shared: Arc<WakeupsInner>,
    is_over: bool,
}

impl ListeningTask {
    /// Ends the task, unless somebody has come since the listener decided to end.
    fn end(&mut self) {
        let WakeupsInner {
            topics, is_running, ..
        } = &*self.shared;
        topics.disconnected();
        is_running.store(false, SeqCst);
        let is_wanted = !topics.is_idle() && !topics.is_closed();
        self.is_over = !is_wanted || is_running.swap(true, SeqCst);
    }
}

/// Lets another task listen when this one has ended with its runtime.
impl Drop for ListeningTask {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.shared.topics.disconnected();
        self.shared.is_running.store(false, SeqCst);
        self.shared.topics.look_again();
    }
}

/// Hears when a lock may have been freed: from [`Backend::watch`](crate::Backend::watch).
///
/// Messages may be lost, and releases by other libraries send none: whoever waits must try again after a while
/// in any case.
pub struct Watch {
    shared: Arc<WakeupsInner>,
    name: Arc<str>,
    topic: Arc<Topic>,
    seen: AtomicU64,
}

impl Watch {
    /// Completes when the lock may have been freed since the last time this completed, or when the store has just begun to tell of it.
    /// Gives how many times the lock may have been freed. Never completes while the store cannot tell. Needs a tokio runtime.
    pub async fn freed(&self) -> u64 {
        loop {
            let mut woken = pin!(self.topic.woken.notified());
            // Enabled before the count is read, so that nothing is missed between the two.
            woken.as_mut().enable();
            let freed = self.topic.freed.load(SeqCst);
            let seen = self.seen.swap(freed, SeqCst);
            if seen != freed {
                return freed.wrapping_sub(seen);
            }
            self.shared.listen();
            woken.await;
            if self.topic.freed.load(SeqCst) == freed {
                // The task that listens has ended with its runtime. If that is the runtime of this task, too, another listener would end as
                // soon as it is spawned, and this task can be dropped only if it gives its thread free.
                yield_now().await;
            }
        }
    }

    /// Whether the store tells at this moment.
    pub fn is_listening(&self) -> bool {
        self.topic.is_listening.load(SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.topics.leave(&self.name);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
