//! What becomes of the lock of a guard, or of several: who extends them tells of it, and who releases one of them by its id.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::asking::hold::{AutoExtend, Hold, Holder, Presence};
use crate::clock;
use crate::heartbeats::end_of;
use crate::heartbeats::sets::SetHolder;
use crate::holding::lease_state::{LeaseEvent, LeaseState};
use crate::mutex::lock;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;
use crate::waiting::waiter::Granted;

/// What becomes of the lock of a guard.
pub(crate) struct GuardState {
    ttl: Ttl,
    extends_itself: bool,
    expires_at_ms: AtomicI64,
    standing: watch::Sender<Standing>,
    /// Of several, those that nobody has released by their ids.
    left: Mutex<Vec<LockId>>,
}

/// How it stands with the lock.
struct Standing {
    state: LeaseState,
    /// Until when it is held, as far as that is known. Heartbeats change it.
    end: Option<Instant>,
    /// Why it is lost, if it ever was.
    loss: Option<Error>,
}

impl GuardState {
    /// For a lock that is about to be acquired, with what the acquisition is to ask for.
    ///
    /// # Errors
    /// As [`AutoExtend::check`].
    pub(crate) fn new(
        auto_extend: Option<AutoExtend>,
        ttl: Ttl,
    ) -> Result<(Arc<Self>, Option<Box<Hold>>), Error> {
        if let Some(auto_extend) = auto_extend {
            auto_extend.check(ttl)?;
        }
        let state = Arc::new(Self {
            ttl,
            extends_itself: auto_extend.is_some(),
            expires_at_ms: AtomicI64::new(0),
            standing: watch::Sender::new(Standing {
                state: LeaseState::Held,
                end: None,
                loss: None,
            }),
            left: Mutex::default(),
        });
        let hold = auto_extend.map(|auto_extend| {
            Box::new(Hold {
                auto_extend,
                holder: Arc::clone(&state) as _,
                runtime: Handle::current(),
            })
        });
        Ok((state, hold))
    }

    /// It was granted.
    pub(super) fn granted(&self, granted: &Granted) {
        let ends = granted.grants.iter().map(|grant| grant.expires_at_ms).min();
        self.expires_at_ms.fetch_max(ends.unwrap_or(0), Relaxed);
        if !self.extends_itself {
            self.ends(end_of(granted.asked, self.ttl));
        }
        if granted.grants.len() > 1 {
            let lock_ids = granted.grants.iter().map(|grant| grant.lock_id.clone());
            lock(&self.left).extend(lock_ids);
        }
    }

    /// For how long it was asked for, and heartbeats extend it.
    pub(super) fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(super) fn expires_at_ms(&self) -> i64 {
        self.expires_at_ms.load(Relaxed)
    }

    pub(super) fn extends_itself(&self) -> bool {
        self.extends_itself
    }

    /// Until when it is held, as far as that is known.
    pub(super) fn end(&self) -> Option<Instant> {
        self.standing.borrow().end
    }

    /// Of several locks, those that nobody has released by their ids; `None` of one.
    pub(super) fn left(&self) -> Option<Batch<LockId>> {
        let left = lock(&self.left);
        (!left.is_empty()).then(|| left.iter().cloned().collect())
    }

    pub(super) fn state(&self) -> LeaseState {
        self.standing.borrow().state
    }

    /// Why it is lost, if it is at this moment: the clock decides, whether or not somebody has noticed.
    pub(super) fn loss(&self) -> Option<Error> {
        {
            let standing = self.standing.borrow();
            let is_over = || standing.end.is_some_and(|end| end <= clock::now());
            if standing.state != LeaseState::Held || !is_over() {
                return standing.loss.clone();
            }
        }
        self.happens(LeaseEvent::Lose, || match self.extends_itself {
            true => {
                let message = "the lock was lost: its end passed before it could be extended";
                Error::new(ErrorKind::LockLost, message)
            }
            false => time_is_over(),
        });
        self.standing.borrow().loss.clone()
    }

    /// Whether it is lost at this moment.
    pub(super) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// The lock is lost, if it was not before.
    pub(super) fn lose(&self, error: impl FnOnce() -> Error) {
        if !self.is_lost() {
            self.happens(LeaseEvent::Lose, error);
        }
    }

    /// Its release begins; `false` if it was lost before.
    pub(super) fn begin_release(&self) -> bool {
        let was_lost = self.is_lost();
        self.happens(LeaseEvent::End, time_is_over);
        !was_lost
    }

    /// A release has freed it, or may have done so, or nobody is to release it.
    pub(super) fn freed(&self) {
        self.happens(LeaseEvent::Freed, time_is_over);
    }

    /// A release has found it gone.
    pub(super) fn gone(&self) {
        self.happens(LeaseEvent::Gone, || {
            let message = "the lock was lost: it was gone when it was to be released";
            Error::new(ErrorKind::LockLost, message)
        });
        if self.state() == LeaseState::Lost {
            // It was lost before, and nothing of it is left.
            self.freed();
        }
    }

    /// Notes what happens. `error` says why, where the lock is lost by that.
    fn happens(&self, event: LeaseEvent, error: impl FnOnce() -> Error) {
        self.standing.send_if_modified(|standing| {
            let next = standing.state.after(event);
            let is_other = std::mem::replace(&mut standing.state, next) != next;
            let is_lost = matches!(next, LeaseState::Lost | LeaseState::Gone);
            if is_other && is_lost && standing.loss.is_none() {
                standing.loss = Some(error());
            }
            is_other
        });
    }

    /// Completes when it is lost.
    pub(super) fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let mut changes = self.standing.subscribe();
        let extends_itself = self.extends_itself;
        async move {
            loop {
                let end = {
                    let standing = changes.borrow_and_update();
                    if let Some(error) = &standing.loss {
                        return error.clone();
                    }
                    let is_watched = !extends_itself && standing.state == LeaseState::Held;
                    standing.end.filter(|_| is_watched)
                };
                let changed = match end {
                    None => Ok(changes.changed().await),
                    Some(end) => timeout_at(soon(end), changes.changed()).await,
                };
                match changed {
                    Ok(Ok(())) => {}
                    // The guard is gone, and with it the lock.
                    Ok(Err(_)) => pending().await,
                    Err(_) if end.is_some_and(|end| end <= clock::now()) => {
                        return time_is_over();
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Its holder asks for an extension by `ttl`, which is sent now. The store may carry it out from now on, also if nobody hears of it.
    pub(super) fn extends(&self, sent: Instant, ttl: Ttl) {
        self.ends_by(end_of(sent, ttl));
    }

    /// Its holder has extended it by `ttl`, which was sent at that time; `false` if it was lost before the answer came, and whoever
    /// works under it may have been told.
    pub(super) fn has_extended(&self, sent: Instant, ttl: Ttl, expires_at_ms: i64) -> bool {
        if self.is_lost() {
            return false;
        }
        self.expires_at_ms.store(expires_at_ms, Relaxed);
        if !self.extends_itself {
            self.ends(end_of(sent, ttl));
        }
        true
    }

    fn ends(&self, end: Instant) {
        self.standing
            .send_modify(|standing| standing.end = Some(end));
    }

    /// It ends at this time, or earlier. A lock that extends itself hears of that by its heartbeats.
    fn ends_by(&self, end: Instant) {
        self.standing.send_if_modified(|standing| {
            let is_earlier = standing.end.is_some_and(|known| end < known);
            if is_earlier && !self.extends_itself {
                standing.end = Some(end);
            }
            is_earlier && !self.extends_itself
        });
    }
}

impl Holder for GuardState {
    /// Who has seen by the clock that it is lost works under it no more.
    fn presence(&self) -> Presence {
        match self.state() {
            LeaseState::Held => Presence::Present,
            _ => Presence::Gone,
        }
    }

    fn held_until(&self, end: Instant) {
        self.standing.send_if_modified(|standing| {
            standing.end = Some(end);
            // Nobody waits for that.
            false
        });
    }

    fn extended(&self, expires_at_ms: i64) {
        self.expires_at_ms.store(expires_at_ms, Relaxed);
    }

    fn lost(&self, error: Error, _which: Option<usize>) {
        self.happens(LeaseEvent::Lose, || error);
    }
}

fn time_is_over() -> Error {
    Error::new(ErrorKind::LockLost, "the lock was lost: its time is over")
}

/// `end`, or a time before it that tokio's timers reach.
fn soon(end: Instant) -> Instant {
    clock::of_tokio(end).min(Instant::now() + Duration::from_secs(1))
}

impl SetHolder for GuardState {
    fn leaves(&self, lock_id: &LockId) {
        let mut left = lock(&self.left);
        if left.len() > 1 {
            left.retain(|other| other != lock_id);
        }
    }

    fn may_end(&self, end: Instant) {
        self.ends_by(end);
    }
}

impl fmt::Debug for GuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardState")
            .field("extends_itself", &self.extends_itself)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
