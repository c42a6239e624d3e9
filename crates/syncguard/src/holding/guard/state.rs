//! The state that a guard shares with whoever else acts on its locks: heartbeats, which extend them or find them lost, and
//! releases of one of several by its id.

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

/// The state of the lock of a guard, or of several.
pub(crate) struct GuardState {
    ttl: Ttl,
    extends_itself: bool,
    expires_at_ms: AtomicI64,
    standing: watch::Sender<Standing>,
    /// Of several locks, those that nobody has released by their ids. Empty if there is only one.
    left: Mutex<Vec<LockId>>,
}

/// What changes together, so that whoever waits for a loss sees one consistent state.
struct Standing {
    state: LeaseState,
    /// Until when the lock is held, as far as this process knows. Heartbeats change it.
    end: Option<Instant>,
    /// Why the lock was lost, if it ever was.
    loss: Option<Error>,
}

impl GuardState {
    /// Makes the state of a lock that is about to be acquired, and what its request has to say for heartbeats.
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

    /// Notes what was granted.
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

    /// The TTL of the request, with which heartbeats extend the lock, too.
    pub(super) fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(super) fn expires_at_ms(&self) -> i64 {
        self.expires_at_ms.load(Relaxed)
    }

    pub(super) fn extends_itself(&self) -> bool {
        self.extends_itself
    }

    /// Until when the lock is held, as far as this process knows.
    pub(super) fn end(&self) -> Option<Instant> {
        self.standing.borrow().end
    }

    /// Of several locks, those that nobody has released by their ids. `None` if there is only one.
    pub(super) fn left(&self) -> Option<Batch<LockId>> {
        let left = lock(&self.left);
        (!left.is_empty()).then(|| left.iter().cloned().collect())
    }

    pub(super) fn state(&self) -> LeaseState {
        self.standing.borrow().state
    }

    /// Why the lock is lost, if it is lost at this moment. The clock decides, even if nobody has noticed yet.
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

    /// Whether the lock is lost at this moment.
    pub(super) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Notes that the lock is lost, unless it was lost before. `error` says why.
    pub(super) fn lose(&self, error: impl FnOnce() -> Error) {
        if !self.is_lost() {
            self.happens(LeaseEvent::Lose, error);
        }
    }

    /// Notes that the release begins. `false` if the lock was lost before.
    pub(super) fn begin_release(&self) -> bool {
        let was_lost = self.is_lost();
        self.happens(LeaseEvent::End, time_is_over);
        !was_lost
    }

    /// Notes that a release has freed the lock, or may have done so, or that nobody is to release it.
    pub(super) fn freed(&self) {
        self.happens(LeaseEvent::Freed, time_is_over);
    }

    /// Notes that a release did not find the lock.
    pub(super) fn gone(&self) {
        self.happens(LeaseEvent::Gone, || {
            let message = "the lock was lost: it was gone when it was to be released";
            Error::new(ErrorKind::LockLost, message)
        });
        if self.state() == LeaseState::Lost {
            // It was lost before, so its loss needs no second reason, and nothing is left to release.
            self.freed();
        }
    }

    /// Moves to the next state. If the lock is lost by that, `error` says why.
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

    /// Completes when the lock is lost.
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
                    // Nobody has the guard any more, so the lock cannot be lost.
                    Ok(Err(_)) => pending().await,
                    Err(_) if end.is_some_and(|end| end <= clock::now()) => {
                        return time_is_over();
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Notes that the holder sends an extension by `ttl` at `sent`. From then on the store may carry it out, even if its answer is
    /// lost, so a shorter end counts at once.
    pub(super) fn extends(&self, sent: Instant, ttl: Ttl) {
        self.ends_by(end_of(sent, ttl));
    }

    /// Notes that the store has carried out the extension that was sent at `sent`. `false` if the lock was lost before the answer
    /// came: whoever works under it may have been told by then.
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

    /// Makes the known end earlier if `end` is. A lock that extends itself hears of its end by its heartbeats instead.
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
    /// Heartbeats must not extend a lock again once its holder was told of the loss, so every state but held counts as gone.
    fn presence(&self) -> Presence {
        match self.state() {
            LeaseState::Held => Presence::Present,
            _ => Presence::Gone,
        }
    }

    fn held_until(&self, end: Instant) {
        self.standing.send_if_modified(|standing| {
            standing.end = Some(end);
            // `lost()` does not wait for the end of a lock that extends itself, so nobody needs to wake up.
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
