//! Waiting for a lock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::backend::{AcquireOutcome, AcquireRequest, Backend, Owner, Ttl};
use crate::error::{Error, ErrorKind};
use crate::guard::{Guarded, LockGuard};
use crate::holding::{AutoExtend, Hold};
use crate::key::Key;
use crate::operation::{self, CallOptions};
use crate::random;
use crate::time::TIME_TOLERANCE_MS;
use crate::waiting::retry::{FailedAttempt, GiveUp, RetryPolicy, RetryState, Step, Wait};
use crate::waiting::turns::Turn;

/// How to take a lock and how to wait for it.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// How long the lock lasts.
    pub ttl: Ttl,
    /// How to wait while others hold it.
    pub retry: RetryPolicy,
    /// A label to store with it.
    pub owner: Option<Owner>,
    /// Extends the lock by itself while it is held. Default: it ends with its TTL.
    pub auto_extend: Option<AutoExtend>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT,
            retry: RetryPolicy::default(),
            owner: None,
            auto_extend: None,
        }
    }
}

/// Takes the lock on `key`, waiting as `options` say while others hold it.
///
/// Those in this process who wait for the same key on the same backend are served in the order in which they
/// came, and only the first of them asks: at the pace of the most eager of them, so that nobody waits longer than if it had
/// asked by itself. Between processes there is no order. Whoever does not wait (no retries, or no time) does not queue
/// either.
///
/// Dropping the future cancels: what the store may have granted is released in the background.
///
/// # Errors
/// `AcquisitionTimeout` when others held it for too long. Otherwise the store's last error, with how long and how
/// often it was tried. That the last attempt was cut short by the time limit is reported only if there was no other
/// error.
pub async fn lock(
    backend: &Arc<dyn Backend>,
    key: &Key,
    options: &LockOptions,
) -> Result<LockGuard, Error> {
    let (state, hold) = Guarded::new(options.auto_extend, options.ttl)?;
    let mut waiter = Waiter {
        backend,
        key,
        options,
        start: Instant::now(),
        retry: RetryState::new(options.retry)?,
        state,
        hold,
        failure: None,
    };
    let mut turn = match options.retry.waits() {
        true => Some(waiter.turn().await?),
        false => None,
    };
    let taken = turn.as_mut().and_then(|turn| turn.known.taken.take());
    let mut found = match taken {
        // Whoever was first before has it, so there is no need to ask.
        Some(free_at) => Found::NotYet {
            attempt: FailedAttempt::Locked,
            free_at: Some(free_at),
        },
        None => waiter.attempt().await?,
    };
    let mut is_hinted = false;
    loop {
        let (attempt, free_at) = match found {
            Found::Granted(guard) => {
                if let Some(turn) = &mut turn {
                    turn.known.taken = Some(ends_by(options.ttl));
                }
                return Ok(guard);
            }
            Found::NotYet { attempt, free_at } => (attempt, free_at),
        };
        if let Some(turn) = &turn {
            turn.tell(
                waiter
                    .failure
                    .as_ref()
                    .filter(|_| attempt != FailedAttempt::Locked),
            );
        }
        let retry_at = Instant::now() + waiter.decide(attempt, is_hinted)?;
        let until = free_at.map_or(retry_at, |free_at| free_at.min(retry_at));
        let is_early = match &mut turn {
            Some(turn) => {
                let reason = waiter.should_ask(turn);
                timeout_at(until, reason).await.is_ok()
            }
            None => false,
        };
        is_hinted = is_early || until < retry_at;
        found = waiter.attempt().await?;
    }
}

/// One who wants the lock.
struct Waiter<'a> {
    backend: &'a Arc<dyn Backend>,
    key: &'a Key,
    options: &'a LockOptions,
    start: Instant,
    retry: RetryState,
    /// What becomes of the lock, and who is to extend it.
    state: Arc<Guarded>,
    hold: Option<Box<Hold>>,
    /// The last failure of the store that was more than an attempt cut short by its time limit.
    failure: Option<Error>,
}

/// What an attempt has come to.
enum Found {
    Granted(LockGuard),
    NotYet {
        attempt: FailedAttempt,
        /// When the lock ends by itself, if that is known.
        free_at: Option<Instant>,
    },
}

impl Waiter<'_> {
    /// Waits for the turn, at most for as long as the lock is waited for.
    async fn turn(&mut self) -> Result<Turn, Error> {
        let policy = &self.options.retry;
        let turns = self.backend.work().turns();
        let place = turns.enter(self.key.as_str(), policy);
        let Ok(limit) = Duration::try_from_secs_f64(policy.timeout_ms / 1000.0) else {
            return Ok(place.first().await);
        };
        match timeout(limit, place.first()).await {
            Ok(turn) => Ok(turn),
            Err(_) => {
                self.failure = place.failure();
                let attempt = match &self.failure {
                    Some(error) => FailedAttempt::Error(error.kind()),
                    None => FailedAttempt::Locked,
                };
                match self.decide(attempt, false) {
                    Err(error) => Err(error),
                    Ok(_) => Err(Error::new(ErrorKind::Internal, "a wait has ended early")),
                }
            }
        }
    }

    /// Asks the store.
    async fn attempt(&mut self) -> Result<Found, Error> {
        let mut request = AcquireRequest::new(self.key.clone(), self.options.ttl)?;
        request.owner.clone_from(&self.options.owner);
        request.hold.clone_from(&self.hold);
        let limit_ms = self.retry.attempt_timeout_ms(self.elapsed_ms());
        let call = CallOptions {
            timeout: Duration::try_from_secs_f64(limit_ms / 1000.0).ok(),
            ..CallOptions::default()
        };
        let sent = Instant::now();
        let (attempt, free_in) =
            match operation::acquire(self.backend, request, call, pending()).await {
                Ok(AcquireOutcome::Acquired(grant)) => {
                    let (key, ttl) = (self.key, self.options.ttl);
                    let state = Arc::clone(&self.state);
                    let guard = LockGuard::new(self.backend, key, grant, ttl, sent, state);
                    return Ok(Found::Granted(guard));
                }
                Ok(AcquireOutcome::Locked { free_in }) => (FailedAttempt::Locked, free_in),
                Err(error) => {
                    let kind = error.kind();
                    if self.failure.is_none() || !self.retry.is_cut(kind, self.elapsed_ms()) {
                        self.failure = Some(error);
                    }
                    (FailedAttempt::Error(kind), None)
                }
            };
        let free_at = free_in.and_then(|free_in| Instant::now().checked_add(free_in));
        Ok(Found::NotYet { attempt, free_at })
    }

    /// How long to wait for the next retry, else the error to give up with.
    fn decide(&mut self, attempt: FailedAttempt, is_hinted: bool) -> Result<Duration, Error> {
        let (elapsed_ms, random) = (self.elapsed_ms(), random::unit()?);
        let step = match is_hinted {
            true => self.retry.after_hint(attempt, elapsed_ms, random),
            false => self.retry.after(attempt, elapsed_ms, random),
        };
        match step {
            Step::Wait { delay_ms } => Ok(Duration::from_secs_f64(delay_ms / 1000.0)),
            Step::GiveUp(GiveUp::Contention(error)) => Err(error),
            Step::GiveUp(GiveUp::Failed { effort }) => {
                let failure = self.failure.take();
                let failure = failure
                    .unwrap_or_else(|| Error::new(ErrorKind::Internal, "no attempt has failed"));
                Err(failure.after(&effort))
            }
        }
    }

    /// Completes when the lock may have been freed, if anybody tells; when somebody behind would ask by now, were it
    /// alone; or when nobody can get the lock any more because the backend is being closed.
    async fn should_ask(&self, turn: &mut Turn) {
        let asked = Instant::now();
        loop {
            let listens = self.options.retry.wait == Wait::Notify || turn.others_listen();
            if listens && turn.known.watch.is_none() {
                turn.known.watch = self.backend.watch(self.key);
            }
            let at = turn.others_ask_at(asked);
            let overdue = async {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = turn.freed(listens) => return,
                () = overdue => return,
                () = self.backend.work().closing() => return,
                () = turn.joined() => {}
            }
        }
    }

    fn elapsed_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1000.0
    }
}

/// When a lock that was just granted has ended, also on a store whose clock lags a little.
fn ends_by(ttl: Ttl) -> Instant {
    let ms = ttl.as_millis().saturating_add(TIME_TOLERANCE_MS);
    Instant::now() + Duration::from_millis(ms.unsigned_abs())
}

#[cfg(test)]
mod tests;
