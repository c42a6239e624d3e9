//! The heartbeats of one backend: which lock is due next, and the task that extends those that are.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::heartbeat::{Heartbeat, Loss, Step};
use super::hold::{Extender, Hold, Holder, Presence};
use crate::batch::Batch;
use crate::error::Error;
use crate::lock_id::LockId;
use crate::mutex::lock;
use crate::outcome::ExtendOutcome;
use crate::ttl::Ttl;

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
    /// Locks that were granted together are one entry, under the lock id of the first of them.
    by_lock_id: HashMap<LockId, Entry>,
    /// Under which lock id the others are.
    leads: HashMap<LockId, LockId>,
    /// By when to look at them again.
    queue: BTreeMap<(Instant, u64), LockId>,
    numbers: u64,
    is_running: bool,
}

struct Entry {
    heartbeat: Heartbeat,
    lock_ids: Batch<LockId>,
    /// Where it is in the queue: at this time, and with a number that tells it from others that are due then.
    at: Instant,
    number: u64,
    state: HeartbeatState,
}

enum HeartbeatState {
    /// It waits for its next heartbeat.
    Waiting,
    /// It is in a batch, and its turn has not come. Whether it ends before that is seen all the same.
    Due,
    /// A heartbeat is on its way. If something is sent here, the time for the answer is over; once this is dropped, there is
    /// no need for it any more.
    Beating(Option<oneshot::Sender<()>>),
}

impl Heartbeats {
    /// Extends locks from now on. Their acquisition was sent at the time `sent`.
    pub(crate) fn start(
        &self,
        extender: Arc<dyn Extender>,
        lock_ids: Batch<LockId>,
        hold: &Hold,
        ttl: Ttl,
        sent: Instant,
    ) {
        let heartbeat = Heartbeat::new(extender, hold, ttl, sent);
        let Some((lead, others)) = lock_ids.split_first() else {
            return;
        };
        let (lead, others) = (lead.clone(), others.to_vec());
        let is_running = {
            let mut locks = self.0.lock();
            locks.numbers += 1;
            let entry = Entry {
                at: heartbeat.next(),
                number: locks.numbers,
                state: HeartbeatState::Waiting,
                heartbeat,
                lock_ids,
            };
            let led = others.into_iter().map(|lock_id| (lock_id, lead.clone()));
            locks.leads.extend(led);
            locks.by_lock_id.insert(lead.clone(), entry);
            locks.queue_again(&lead);
            self.0.count.store(locks.by_lock_id.len(), SeqCst);
            std::mem::replace(&mut locks.is_running, true)
        };
        if is_running {
            self.0.changed.notify_one();
        } else {
            hold.runtime
                .spawn(run(HeartbeatTask(Some(Arc::clone(&self.0)))));
        }
    }

    /// Ends the heartbeats of locks, if they have any. One that is on its way and was not sent yet is not sent any more.
    /// Locks that were granted together with one of them end with their TTL, too, unless they are released.
    pub(crate) fn stop(&self, lock_ids: &[LockId]) {
        if self.any() {
            for lock_id in lock_ids {
                let lead = self.0.lock().lead(lock_id);
                self.0.remove(&lead);
            }
        }
    }

    /// Notes that the holder itself extends locks. To be called before that is sent. Locks that were granted together are
    /// extended together, or this is not their affair.
    pub(crate) fn extending(&self, lock_ids: &[LockId], ttl: Ttl) -> Option<Extending> {
        if !self.any() {
            return None;
        }
        let sent = Instant::now();
        let lead = {
            let mut locks = self.0.lock();
            let lead = locks.lead(lock_ids.first()?);
            if locks.by_lock_id.get(&lead)?.lock_ids.as_slice() != lock_ids {
                return None;
            }
            locks.change(&lead, |heartbeat| heartbeat.begin(ttl, sent))?;
            lead
        };
        self.0.changed.notify_one();
        Some(Extending::new(&self.0, &lead, ttl, sent))
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let locks = self.0.lock();
        locks.by_lock_id.is_empty()
            && locks.leads.is_empty()
            && locks.queue.is_empty()
            && !locks.is_running
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
        let finished = self.shared.lock().change(&self.lock_id, |heartbeat| {
            let lost = heartbeat.finish(self.ttl, self.sent, answer, Instant::now());
            (Arc::clone(&heartbeat.holder), lost)
        });
        self.shared.changed.notify_one();
        // The lock was released meanwhile.
        let Some((holder, lost)) = finished else {
            return;
        };
        if let Some(loss) = lost {
            self.shared.lose(&self.lock_id, loss);
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
async fn run(mut running: HeartbeatTask) {
    while let Some(shared) = running.0.clone() {
        let next = {
            let mut locks = shared.lock();
            if locks.by_lock_id.is_empty() {
                locks.is_running = false;
                running.0 = None;
                return;
            }
            locks.take_due(Instant::now())
        };
        match next {
            Next::Due { due, ended } => {
                beat_all(&shared, due);
                // Nothing is sent for these, or one more at once: no reason to wait for others.
                for lock_id in ended {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { beat(&shared, &lock_id).await });
                }
            }
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
struct HeartbeatTask(Option<Arc<Shared>>);

impl Drop for HeartbeatTask {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().is_running = false;
        }
    }
}

enum Next {
    /// The locks whose heartbeats are due, the last one first, and those whose end has come.
    Due {
        due: Vec<LockId>,
        ended: Vec<LockId>,
    },
    At(Instant),
    /// All locks have just come to their end, or to that of the time for an answer: what is done about them tells more.
    Unknown,
}

/// Extends many locks at once: backends send together what comes together. So many tasks take one after the other
/// that the backend can do with at a time.
fn beat_all(shared: &Arc<Shared>, due: Vec<LockId>) {
    let at_once = {
        let locks = shared.lock();
        let first = due
            .first()
            .and_then(|lock_id| locks.by_lock_id.get(lock_id));
        first.map_or(1, |entry| entry.heartbeat.extender.at_once())
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

/// Extends one lock that is due, unless it was released, has been lost, or need not be extended now.
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
    let (late, stopped) = oneshot::channel();
    let (extender, lock_ids, _running, ttl, sent) = {
        let mut locks = shared.lock();
        let Some(entry) = locks.by_lock_id.get_mut(lock_id) else {
            return;
        };
        if !matches!(entry.state, HeartbeatState::Due) {
            return;
        }
        let (extender, now) = (Arc::clone(&entry.heartbeat.extender), Instant::now());
        // While the backend is being closed, nothing is sent, and so nothing may count as sent.
        let (running, closed) = match extender.begin() {
            Ok(running) => (Some(running), None),
            Err(closed) => (None, Some(closed)),
        };
        match entry.heartbeat.step(now, stalled.or(closed)) {
            Step::Extend(ttl) => {
                entry.heartbeat.begin(ttl, now);
                entry.state = HeartbeatState::Beating(Some(late));
                let lock_ids = entry.lock_ids.clone();
                locks.queue_again(lock_id);
                shared.changed.notify_one();
                (extender, lock_ids, running, ttl, now)
            }
            Step::Wait => {
                drop(locks);
                return shared.wait_again(lock_id);
            }
            Step::Lose(loss) => {
                drop(locks);
                return shared.lose(lock_id, loss);
            }
        }
    };
    let extending = Extending::new(shared, lock_id, ttl, sent);
    let mut extension = extender.extend(lock_ids, ttl);
    let answer = tokio::select! {
        // What is stopped before it was sent is not sent: a release comes next.
        biased;
        late = stopped => match late {
            Err(_) => return,
            // An answer that is there wins.
            Ok(()) => tokio::select! {
                biased;
                answer = &mut extension => answer,
                () = ready(()) => Err(extender.timed_out(sent.elapsed())),
            },
        },
        answer = &mut extension => answer,
    };
    extending.done(&answer);
    shared.wait_again(lock_id);
}

impl Shared {
    fn lose(&self, lock_id: &LockId, loss: Loss) {
        if let Some(holder) = self.remove(lock_id) {
            holder.lost(loss.error, loss.which);
        }
    }

    fn remove(&self, lock_id: &LockId) -> Option<Arc<dyn Holder>> {
        let mut locks = self.lock();
        let entry = locks.by_lock_id.remove(lock_id)?;
        locks.queue.remove(&(entry.at, entry.number));
        for led in entry.lock_ids.iter().skip(1) {
            locks.leads.remove(led);
        }
        self.count.store(locks.by_lock_id.len(), SeqCst);
        if locks.by_lock_id.is_empty() {
            self.changed.notify_one();
        }
        Some(entry.heartbeat.holder)
    }

    /// Lets a lock wait for its next heartbeat.
    fn wait_again(&self, lock_id: &LockId) {
        let mut locks = self.lock();
        if let Some(entry) = locks.by_lock_id.get_mut(lock_id) {
            entry.state = HeartbeatState::Waiting;
            locks.queue_again(lock_id);
        }
        drop(locks);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Locks> {
        lock(&self.locks)
    }
}

impl Entry {
    /// When to look at it, as things are.
    fn look_at(&self) -> Instant {
        match self.state {
            HeartbeatState::Waiting => self.heartbeat.next(),
            HeartbeatState::Due => self.heartbeat.end(),
            HeartbeatState::Beating(_) => self.heartbeat.answer_by(),
        }
    }
}

impl Locks {
    /// Takes what is due now or soon out of the queue, else says when something is. A heartbeat whose time is over is told so.
    fn take_due(&mut self, now: Instant) -> Next {
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        while let Some(first) = self.queue.first_entry() {
            let Some(entry) = self.by_lock_id.get_mut(first.get()) else {
                first.remove();
                continue;
            };
            // The first one sets the time, and those that are due soon go with it.
            let is_waiting = matches!(entry.state, HeartbeatState::Waiting);
            let goes_with = is_waiting && !due.is_empty() && entry.heartbeat.is_due_soon(now);
            if entry.at > now && !goes_with {
                break;
            }
            let lock_id = first.remove();
            // It does not hear that if its runtime has ended.
            if let HeartbeatState::Beating(late) = &mut entry.state
                && late.take().is_some_and(|late| late.send(()).is_ok())
            {
                continue;
            }
            entry.state = HeartbeatState::Due;
            if entry.heartbeat.end() <= now {
                ended.push(lock_id);
            } else {
                entry.at = entry.look_at();
                self.queue.insert((entry.at, entry.number), lock_id.clone());
                due.push(lock_id);
            }
        }
        due.reverse();
        match self.queue.first_key_value() {
            _ if !due.is_empty() || !ended.is_empty() => Next::Due { due, ended },
            Some(((at, _), _)) => Next::At(*at),
            None => Next::Unknown,
        }
    }

    /// Changes a lock, and its place in the queue.
    fn change<T>(
        &mut self,
        lock_id: &LockId,
        change: impl FnOnce(&mut Heartbeat) -> T,
    ) -> Option<T> {
        let changed = change(&mut self.by_lock_id.get_mut(lock_id)?.heartbeat);
        self.queue_again(lock_id);
        Some(changed)
    }

    fn queue_again(&mut self, lock_id: &LockId) {
        let Some(entry) = self.by_lock_id.get_mut(lock_id) else {
            return;
        };
        self.queue.remove(&(entry.at, entry.number));
        entry.at = entry.look_at();
        self.queue.insert((entry.at, entry.number), lock_id.clone());
    }

    /// Under which lock id that lock is.
    fn lead(&self, lock_id: &LockId) -> LockId {
        self.leads.get(lock_id).unwrap_or(lock_id).clone()
    }

    fn holder(&self, lock_id: &LockId) -> Option<Arc<dyn Holder>> {
        Some(Arc::clone(&self.by_lock_id.get(lock_id)?.heartbeat.holder))
    }
}

#[cfg(test)]
mod tests;
