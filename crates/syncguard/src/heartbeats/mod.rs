//! Extends locks by heartbeats, and knows when one is lost.
//!
//! This room knows values and outcomes, and is given what extends a lock. It must not know backends, guards, waiters, or any store.
//!
//! A *heartbeat* is an extension of a lock that extends itself. One task per backend sends the heartbeats of all its locks, many of
//! them together ([`Heartbeats`]). The task runs only while such locks are held.
//!
//! # When a lock is lost
//!
//! A lock is held until its *end*: the moment before its acquisition or its last extension was sent, plus its TTL.
//! The store cannot end it earlier by itself, because its own count starts later. The end is on the monotonic clock
//! of this process, so that nobody who sets a clock moves it, and a process that was stopped finds it passed.
//!
//! - If the store says that it has no such lock, it is lost at once.
//! - If an extension fails, it is tried again, more often as the end comes near. At the end, the lock is lost.
//! - The answer to an extension that was sent before the end may come until `GRACE` after the end. If it says that the lock was
//!   extended, but the new end has passed by then as well, one more extension is sent at once. The store gives the lock to nobody
//!   before the tolerance of a second has passed (docs/decisions/tolerance.md).
//!
//! In no other case is an extension sent after the end: a holder that was stopped past it must not go on, whatever the
//! store says.

use std::future::ready;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::heartbeat::{Heartbeat, Step};
use self::locks::{Entry, HeartbeatState, Next, Shared};
use self::members::Members;
use crate::asking::hold::{Extender, Hold, Presence};
use crate::clock;
use crate::mutex::lock;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

mod extending;
mod heartbeat;
mod locks;
pub(crate) mod looks;
mod members;
pub(crate) mod sets;

pub(crate) use self::extending::Extending;
pub(crate) use self::heartbeat::end_of;

/// The longest sleep: tokio's timers do not reach as far as TTLs do.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// The locks of one backend that extend themselves. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Heartbeats(Arc<Shared>);

impl Heartbeats {
    /// Extends locks from now on. Their acquisition was sent at `sent`.
    #[expect(
        clippy::too_many_arguments,
        reason = "what was granted, and who extends and holds it"
    )]
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
                members: Members::new(lock_ids),
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

    /// Ends the heartbeats of locks, if they have any. A heartbeat that was not sent yet is not sent any more. Others that were granted
    /// together with these locks are extended without them from then on.
    pub(crate) fn stop(&self, lock_ids: &[LockId]) {
        if self.any() {
            // Dropping this gives up the heartbeats that are on their way.
            drop(self.0.leave(lock_ids));
        }
    }

    /// As [`stop`](Self::stop), for locks that are to end later than at once. A heartbeat that is on its way could make them last longer
    /// again, so this completes only when there is none.
    pub(crate) fn finish(&self, lock_ids: &[LockId]) -> impl Future<Output = ()> + Send + use<> {
        let beating = match self.any() {
            true => self.0.leave(lock_ids),
            false => Vec::new(),
        };
        async move {
            for mut heartbeat in beating {
                // Closed when the heartbeat is answered, or when its time is over.
                heartbeat.closed().await;
            }
        }
    }

    /// Notes that the holder itself extends locks, and must be called before that extension is sent. If they are only some of the locks
    /// of one grant, the heartbeats of all may come sooner by this, but never later.
    pub(crate) fn extending(&self, lock_ids: &[LockId], ttl: Ttl) -> Option<Extending> {
        if !self.any() {
            return None;
        }
        let sent = clock::now();
        let leads = {
            let mut locks = self.0.lock();
            let leads = locks.leads_of(lock_ids);
            for lead in &leads {
                locks.change(lead, |entry| entry.heartbeat.begin(ttl, sent));
            }
            leads
        };
        if leads.is_empty() {
            return None;
        }
        self.0.changed.notify_one();
        let lock_ids = lock_ids.iter().cloned().collect();
        Some(Extending::new(&self.0, leads, lock_ids, ttl, sent))
    }

    /// Extends all locks at once, the nearest end first, because another server may have taken over, and may not know the latest
    /// extensions.
    pub(crate) fn hurry(&self) {
        if !self.any() {
            return;
        }
        let now = clock::now();
        {
            let mut locks = self.0.lock();
            let lock_ids: Vec<_> = locks.by_lock_id.keys().cloned().collect();
            for lock_id in &lock_ids {
                locks.change(lock_id, |entry| entry.heartbeat.hurry(now));
            }
        }
        self.0.changed.notify_one();
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

/// The task of a backend: extends the locks that are due, until there are none.
async fn run(mut running: HeartbeatTask) {
    while let Some(shared) = running.0.clone() {
        let next = {
            let mut locks = shared.lock();
            if locks.by_lock_id.is_empty() {
                locks.is_running = false;
                running.0 = None;
                return;
            }
            locks.take_due(clock::now())
        };
        match next {
            Next::Due { due, ended } => {
                beat_all(&shared, due);
                // For these, nothing is sent any more, or one last extension at once. So they do not wait behind others.
                for lock_id in ended {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { beat(&shared, &lock_id).await });
                }
            }
            Next::At(at) => {
                let at = at.min(clock::now() + LONGEST_SLEEP);
                tokio::select! {
                    biased;
                    () = clock::sleep_until(at) => {}
                    () = shared.changed.notified() => {}
                }
            }
            Next::Unknown => shared.changed.notified().await,
        }
    }
}

/// Stands for the task. When it is dropped early, because the runtime has ended, another task can start.
struct HeartbeatTask(Option<Arc<Shared>>);

impl Drop for HeartbeatTask {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().is_running = false;
        }
    }
}

/// Extends many locks at once, because backends send together what comes together. There are as many tasks as the backend can
/// serve at a time, and each takes one lock after the other.
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
    let (extender, lock_ids, _running, ttl, [sent, end]) = {
        let mut locks = shared.lock();
        let Some(entry) = locks.by_lock_id.get_mut(lock_id) else {
            return;
        };
        if !matches!(entry.state, HeartbeatState::Due) {
            return;
        }
        let (extender, now) = (Arc::clone(&entry.heartbeat.extender), clock::now());
        // A backend that is being closed sends nothing, so nothing may count as sent then.
        let (running, closed) = match extender.begin() {
            Ok(running) => (Some(running), None),
            Err(closed) => (None, Some(closed)),
        };
        match entry.heartbeat.step(now, stalled.or(closed)) {
            Step::Extend(ttl) => {
                entry.heartbeat.begin(ttl, now);
                let times = [now, entry.heartbeat.end()];
                entry.state = HeartbeatState::Beating(Some(late));
                let lock_ids = entry.members.left();
                locks.queue_again(lock_id);
                shared.changed.notify_one();
                (extender, lock_ids, running, ttl, times)
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
    let lead = Batch::from([lock_id.clone()]);
    let extending = Extending::new(shared, lead, lock_ids.clone(), ttl, sent);
    let (limit, mut extension) = extender.extend(lock_ids, ttl, end);
    let answer = tokio::select! {
        // If the heartbeat is stopped before it was sent, it must not be sent any more, because a release comes next.
        biased;
        late = stopped => match late {
            Err(_) => return,
            // The time for an answer is over, but one that is there already wins.
            Ok(()) => tokio::select! {
                biased;
                answer = &mut extension => answer,
                () = ready(()) => Err(limit.explain(extender.timed_out(clock::now() - sent))),
            },
        },
        answer = &mut extension => answer,
    };
    extending.done(&answer);
    shared.wait_again(lock_id);
}

#[cfg(test)]
mod tests;
