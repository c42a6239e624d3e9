//! The heartbeats of one backend: which lock is due next, and the task that extends those that are.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::held::{Held, Step};
use super::{Hold, Holder, Presence};
use crate::backend::{Backend, ExtendOutcome, Ttl};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::mutex::lock;
use crate::operation;

/// The longest sleep: tokio's timers do not reach as far as TTLs do.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// The locks of one backend that extend themselves. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Heartbeats(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// How many locks there are: most backends have none, and their operations look no further.
    count: AtomicUsize,
    locks: Mutex<Locks>,
    /// Tells the task that a lock is due earlier than it knows.
    changed: Notify,
}

#[derive(Default)]
struct Locks {
    held: HashMap<LockId, Entry>,
    /// The locks without a heartbeat on its way, by when to look at them again.
    queue: BTreeMap<(Instant, u64), LockId>,
    numbers: u64,
    is_running: bool,
}

struct Entry {
    held: Held,
    /// Tells it from others that are due at the same time.
    number: u64,
    place: Place,
}

enum Place {
    /// In the queue at this time.
    Queued(Instant),
    /// In a batch. The sender ends the heartbeat that is on its way.
    Beating(Option<oneshot::Sender<()>>),
}

impl Heartbeats {
    /// Extends a lock from now on. Its acquisition was sent at the time `sent`.
    pub(crate) fn start(
        &self,
        backend: &Arc<dyn Backend>,
        lock_id: &LockId,
        hold: &Hold,
        ttl: Ttl,
        sent: Instant,
    ) {
        let held = Held::new(backend, hold, ttl, sent);
        let is_running = {
            let mut locks = self.0.lock();
            locks.numbers += 1;
            let entry = Entry {
                place: Place::Queued(held.next()),
                number: locks.numbers,
                held,
            };
            let at = (entry.held.next(), entry.number);
            locks.queue.insert(at, lock_id.clone());
            locks.held.insert(lock_id.clone(), entry);
            self.0.count.store(locks.held.len(), SeqCst);
            std::mem::replace(&mut locks.is_running, true)
        };
        if is_running {
            self.0.changed.notify_one();
        } else {
            hold.runtime.spawn(run(Running(Some(Arc::clone(&self.0)))));
        }
    }

    /// Ends the heartbeats of a lock, if it has any. One that is on its way and was not sent yet is not sent any more.
    pub(crate) fn stop(&self, lock_id: &LockId) {
        if self.any() {
            self.0.remove(lock_id);
        }
    }

    /// Notes that the holder itself extends a lock. To be called before that is sent.
    pub(crate) fn extending(&self, lock_id: &LockId, ttl: Ttl) -> Option<Extending> {
        if !self.any() {
            return None;
        }
        let sent = Instant::now();
        self.0
            .lock()
            .change(lock_id, |held| held.begin(ttl, sent))?;
        self.0.changed.notify_one();
        Some(Extending::new(&self.0, lock_id, ttl, sent))
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let locks = self.0.lock();
        locks.held.is_empty() && locks.queue.is_empty() && !locks.is_running
    }

    fn any(&self) -> bool {
        self.0.count.load(SeqCst) > 0
    }
}

/// An extension on its way. If it is dropped, nobody knows what became of it.
pub(crate) struct Extending {
    shared: Arc<Shared>,
    lock_id: LockId,
    ttl: Ttl,
    sent: Instant,
    is_done: bool,
}

impl Extending {
    fn new(shared: &Arc<Shared>, lock_id: &LockId, ttl: Ttl, sent: Instant) -> Self {
        Self {
            shared: Arc::clone(shared),
            lock_id: lock_id.clone(),
            ttl,
            sent,
            is_done: false,
        }
    }

    /// Notes what came of it, and tells the holder.
    pub(crate) fn done(mut self, answer: &Result<ExtendOutcome, Error>) {
        self.is_done = true;
        self.note(Some(answer));
    }

    fn note(&self, answer: Option<&Result<ExtendOutcome, Error>>) {
        let finished = self.shared.lock().change(&self.lock_id, |held| {
            let lost = held.finish(self.ttl, self.sent, answer, Instant::now());
            (Arc::clone(&held.holder), lost)
        });
        self.shared.changed.notify_one();
        // The lock was released meanwhile.
        let Some((holder, lost)) = finished else {
            return;
        };
        if let Some(error) = lost {
            self.shared.lose(&self.lock_id, error);
        } else if let Some(Ok(ExtendOutcome::Extended { expires_at_ms })) = answer {
            holder.extended(*expires_at_ms);
        }
    }
}

impl Drop for Extending {
    fn drop(&mut self) {
        if !self.is_done {
            self.note(None);
        }
    }
}

/// Extends what is due, until nothing is held any more.
async fn run(mut running: Running) {
    while let Some(shared) = running.0.clone() {
        let next = {
            let mut locks = shared.lock();
            if locks.held.is_empty() {
                locks.is_running = false;
                running.0 = None;
                return;
            }
            locks.take_due(Instant::now())
        };
        match next {
            Next::Due(due) => beat_all(&shared, due),
            Next::At(at) => {
                let at = at.min(Instant::now() + LONGEST_SLEEP);
                tokio::select! {
                    biased;
                    () = sleep_until(at) => {}
                    () = shared.changed.notified() => {}
                }
            }
            Next::Unknown => shared.changed.notified().await,
        }
    }
}

/// What the task works on. If it ends before its time, because its runtime does, another one can start.
struct Running(Option<Arc<Shared>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().is_running = false;
        }
    }
}

enum Next {
    Due(Vec<LockId>),
    At(Instant),
    /// All locks have a heartbeat on its way.
    Unknown,
}

/// Extends many locks at once: backends send together what comes together. So many tasks take one after the other
/// that the backend can do with at a time.
fn beat_all(shared: &Arc<Shared>, due: Vec<LockId>) {
    let at_once = {
        let locks = shared.lock();
        let first = due.first().and_then(|lock_id| locks.held.get(lock_id));
        first.map_or(1, |entry| entry.held.backend.heartbeats_at_once())
    };
    let tasks = due.len().min(at_once.max(1));
    let due = Arc::new(Mutex::new(due));
    for _ in 0..tasks {
        let (shared, due) = (Arc::clone(shared), Arc::clone(&due));
        tokio::spawn(async move {
            let take = || lock(&due).pop();
            while let Some(lock_id) = take() {
                beat(&shared, &lock_id).await;
            }
        });
    }
}

/// Extends one lock, unless it was released, has been lost, or need not be extended now.
async fn beat(shared: &Arc<Shared>, lock_id: &LockId) {
    let Some(holder) = shared.lock().holder(lock_id) else {
        return;
    };
    let stalled = match holder.presence() {
        Presence::Present => None,
        Presence::Stalled(reason) => Some(reason),
        Presence::Gone => {
            shared.remove(lock_id);
            return;
        }
    };
    let (stop, stopped) = oneshot::channel();
    let step = {
        let mut locks = shared.lock();
        let Some(entry) = locks.held.get_mut(lock_id) else {
            return;
        };
        let now = Instant::now();
        match entry.held.step(now, stalled) {
            Step::Extend { ttl, limit } => {
                entry.held.begin(ttl, now);
                entry.place = Place::Beating(Some(stop));
                let extending = Extending::new(shared, lock_id, ttl, now);
                Ok((Arc::clone(&entry.held.backend), extending, limit))
            }
            Step::Wait => Err(None),
            Step::Lose(error) => Err(Some(error)),
        }
    };
    match step {
        Ok((backend, extending, limit)) => {
            let ttl = extending.ttl;
            tokio::select! {
                // What is stopped before it was sent is not sent: a release comes next.
                biased;
                Ok(()) = stopped => return,
                answer = operation::extend_with_others(&backend, lock_id, ttl, limit) => {
                    extending.done(&answer);
                }
            }
        }
        Err(None) => {}
        Err(Some(error)) => shared.lose(lock_id, error),
    }
    shared.lock().queue_again(lock_id);
    shared.changed.notify_one();
}

impl Shared {
    fn lose(&self, lock_id: &LockId, error: Error) {
        if let Some(holder) = self.remove(lock_id) {
            holder.lost(error);
        }
    }

    fn remove(&self, lock_id: &LockId) -> Option<Arc<dyn Holder>> {
        let mut locks = self.lock();
        let entry = locks.held.remove(lock_id)?;
        match entry.place {
            Place::Queued(at) => {
                locks.queue.remove(&(at, entry.number));
            }
            Place::Beating(Some(stop)) => {
                // Fails if the heartbeat has just ended.
                let _ = stop.send(());
            }
            Place::Beating(None) => {}
        }
        self.count.store(locks.held.len(), SeqCst);
        if locks.held.is_empty() {
            self.changed.notify_one();
        }
        Some(entry.held.holder)
    }

    fn lock(&self) -> MutexGuard<'_, Locks> {
        lock(&self.locks)
    }
}

impl Locks {
    /// Takes what is due now or soon out of the queue, else says when something is.
    fn take_due(&mut self, now: Instant) -> Next {
        let mut due = Vec::new();
        while let Some(first) = self.queue.first_entry() {
            let (at, lock_id) = (first.key().0, first.get());
            let Some(entry) = self.held.get_mut(lock_id) else {
                first.remove();
                continue;
            };
            // The first one sets the time, and those that are due soon go with it.
            let is_first = due.is_empty();
            if at > now && (is_first || !entry.held.is_due_soon(now)) {
                if is_first {
                    return Next::At(at);
                }
                break;
            }
            entry.place = Place::Beating(None);
            due.push(first.remove());
        }
        if due.is_empty() {
            Next::Unknown
        } else {
            Next::Due(due)
        }
    }

    /// Changes a lock, and its place in the queue.
    fn change<T>(&mut self, lock_id: &LockId, change: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let entry = self.held.get_mut(lock_id)?;
        let changed = change(&mut entry.held);
        if matches!(entry.place, Place::Queued(_)) {
            self.queue_again(lock_id);
        }
        Some(changed)
    }

    fn queue_again(&mut self, lock_id: &LockId) {
        let Some(entry) = self.held.get_mut(lock_id) else {
            return;
        };
        if let Place::Queued(at) = entry.place {
            self.queue.remove(&(at, entry.number));
        }
        let at = entry.held.next();
        entry.place = Place::Queued(at);
        self.queue.insert((at, entry.number), lock_id.clone());
    }

    fn holder(&self, lock_id: &LockId) -> Option<Arc<dyn Holder>> {
        Some(Arc::clone(&self.held.get(lock_id)?.held.holder))
    }
}

#[cfg(test)]
mod tests;
