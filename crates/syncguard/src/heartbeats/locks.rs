//! Keeps the locks of one backend that extend themselves, in the order in which to look at them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::members::Members;
use crate::asking::hold::Holder;
use crate::clock;
use crate::heartbeats::heartbeat::{Heartbeat, Loss};
use crate::mutex::lock;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

#[derive(Default)]
pub(super) struct Shared {
    /// How many grants there are. Most backends have none, so that their operations need not lock the mutex.
    pub(super) count: AtomicUsize,
    pub(super) locks: Mutex<Locks>,
    /// Tells the task that a lock is due earlier than it knows.
    pub(super) changed: Notify,
}

#[derive(Default)]
pub(super) struct Locks {
    /// An entry for each grant, under the lock id of its first lock, which leads it.
    pub(super) by_lock_id: HashMap<LockId, Entry>,
    /// For every other lock, the one that leads its grant.
    pub(super) leads: HashMap<LockId, LockId>,
    /// The entries, by the time at which to look at them again.
    pub(super) queue: BTreeMap<(Instant, u64), LockId>,
    pub(super) numbers: u64,
    pub(super) is_running: bool,
}

pub(super) struct Entry {
    pub(super) heartbeat: Heartbeat,
    pub(super) members: Members,
    /// The time at which the entry is in the queue.
    pub(super) at: Instant,
    /// Tells the entry from others that are due at the same time.
    pub(super) number: u64,
    pub(super) state: HeartbeatState,
}

pub(super) enum HeartbeatState {
    /// The lock waits for its next heartbeat.
    Waiting,
    /// The lock is in a batch, and its turn has not come. It stays in the queue, so that its end is noticed.
    Due,
    /// A heartbeat is on its way. A message on this channel says that the time for the answer is over. If the sender is dropped, the
    /// heartbeat is not needed any more.
    Beating(Option<oneshot::Sender<()>>),
}

pub(super) enum Next {
    /// The locks whose heartbeats are due, with the nearest end last because tasks take from there, and those whose end has come.
    Due {
        due: Vec<LockId>,
        ended: Vec<LockId>,
    },
    At(Instant),
    /// The queue is empty, because all locks have just come to their end, or to the end of the time for an answer. Whatever is done
    /// about them notifies `changed`.
    Unknown,
}

impl Shared {
    pub(super) fn lose(&self, lock_id: &LockId, loss: Loss) {
        if let Some(entry) = self.remove(lock_id) {
            entry.heartbeat.holder.lost(loss.error, loss.place);
        }
    }

    pub(super) fn remove(&self, lock_id: &LockId) -> Option<Entry> {
        let mut locks = self.lock();
        let entry = locks.by_lock_id.remove(lock_id)?;
        locks.queue.remove(&(entry.at, entry.number));
        for led in entry.members.granted().iter().skip(1) {
            locks.leads.remove(led);
        }
        self.count.store(locks.by_lock_id.len(), SeqCst);
        if locks.by_lock_id.is_empty() {
            self.changed.notify_one();
        }
        Some(entry)
    }

    /// Extends these locks no more. Gives the heartbeats that are on their way for grants of which nothing is left. Dropping them gives
    /// them up.
    pub(super) fn leave(&self, lock_ids: &[LockId]) -> Vec<oneshot::Sender<()>> {
        let mut beating = Vec::new();
        for lock_id in lock_ids {
            let mut locks = self.lock();
            let lead = locks.lead(lock_id);
            let Some(entry) = locks.by_lock_id.get_mut(&lead) else {
                continue;
            };
            if !entry.members.release(lock_id) {
                continue;
            }
            if entry.members.is_empty() {
                drop(locks);
                if let Some(entry) = self.remove(&lead)
                    && let HeartbeatState::Beating(Some(late)) = entry.state
                {
                    beating.push(late);
                }
                continue;
            }
            // The heartbeat on its way names this lock, too, so it is given up, and another one for the rest is due at once. After their
            // end no more may be sent, so then the heartbeat on its way goes on, because only its answer can save the rest.
            let has_time = clock::now() < entry.heartbeat.end();
            if has_time && matches!(entry.state, HeartbeatState::Beating(_)) {
                entry.state = HeartbeatState::Waiting;
                locks.queue_again(&lead);
                self.changed.notify_one();
            }
        }
        beating
    }

    /// Lets a lock wait for its next heartbeat.
    pub(super) fn wait_again(&self, lock_id: &LockId) {
        let mut locks = self.lock();
        if let Some(entry) = locks.by_lock_id.get_mut(lock_id) {
            entry.state = HeartbeatState::Waiting;
            locks.queue_again(lock_id);
        }
        drop(locks);
        self.changed.notify_one();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locks> {
        lock(&self.locks)
    }
}

impl Entry {
    /// When to look at the entry in its present state.
    pub(super) fn look_at(&self) -> Instant {
        match self.state {
            HeartbeatState::Waiting => self.heartbeat.next(),
            HeartbeatState::Due => self.heartbeat.end(),
            HeartbeatState::Beating(_) => self.heartbeat.answer_by(),
        }
    }
}

impl Locks {
    /// Takes the locks that are due now or soon. If there are none, says when the next one is. Heartbeats whose time for an answer is
    /// over are told so.
    pub(super) fn take_due(&mut self, now: Instant) -> Next {
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        while let Some(first) = self.queue.first_entry() {
            let Some(entry) = self.by_lock_id.get_mut(first.get()) else {
                first.remove();
                continue;
            };
            // If one lock is due, those that are due soon go with it.
            let is_waiting = matches!(entry.state, HeartbeatState::Waiting);
            let goes_with = is_waiting && !due.is_empty() && entry.heartbeat.is_due_soon(now);
            if entry.at > now && !goes_with {
                break;
            }
            let lock_id = first.remove();
            // If sending fails, the heartbeat has ended with its runtime, and the lock is looked at here.
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
                due.push((entry.heartbeat.end(), lock_id));
            }
        }
        due.reverse();
        due.sort_by_key(|(end, _)| Reverse(*end));
        let due: Vec<_> = due.into_iter().map(|(_, lock_id)| lock_id).collect();
        match self.queue.first_key_value() {
            _ if !due.is_empty() || !ended.is_empty() => Next::Due { due, ended },
            Some(((at, _), _)) => Next::At(*at),
            None => Next::Unknown,
        }
    }

    /// Changes a lock, and its place in the queue.
    pub(super) fn change<T>(
        &mut self,
        lock_id: &LockId,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let changed = change(self.by_lock_id.get_mut(lock_id)?);
        self.queue_again(lock_id);
        Some(changed)
    }

    pub(super) fn queue_again(&mut self, lock_id: &LockId) {
        let Some(entry) = self.by_lock_id.get_mut(lock_id) else {
            return;
        };
        self.queue.remove(&(entry.at, entry.number));
        entry.at = entry.look_at();
        let is_beating = matches!(entry.state, HeartbeatState::Beating(_));
        let heartbeat = &entry.heartbeat;
        heartbeat
            .holder
            .held_until(heartbeat.held_until(is_beating));
        self.queue.insert((entry.at, entry.number), lock_id.clone());
    }

    /// The lock that leads the grant of this one.
    pub(super) fn lead(&self, lock_id: &LockId) -> LockId {
        self.leads.get(lock_id).unwrap_or(lock_id).clone()
    }

    /// The leads of the grants that have some of these locks.
    pub(super) fn leads_of(&self, lock_ids: &[LockId]) -> Batch<LockId> {
        let mut leads = Batch::new();
        for lock_id in lock_ids {
            let lead = self.lead(lock_id);
            let entry = self.by_lock_id.get(&lead);
            if entry.is_some_and(|entry| entry.members.has(lock_id)) && !leads.contains(&lead) {
                leads.push(lead);
            }
        }
        leads
    }

    pub(super) fn holder(&self, lock_id: &LockId) -> Option<Arc<dyn Holder>> {
        Some(Arc::clone(&self.by_lock_id.get(lock_id)?.heartbeat.holder))
    }
}
