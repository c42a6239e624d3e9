//! A waiter asks the store for a lock, and waits in line between two attempts.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use self::obstacles::Obstacles;
use self::windows::Gathering;
use super::retry::{FailedAttempt, GiveUp, NextStep, RetryPolicy, RetryState, Wait};
use super::ticket::{LineRole, Ticket};
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::asking::request::AcquireRequest;
use crate::background::backend::Backend;
use crate::clock;
use crate::operation::{self, CallOptions};
use crate::random;
use crate::text::error::{Busy, Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::values::ttl::Ttl;

mod ending;
mod gathered;
mod gathering;
mod obstacles;
mod pausing;
mod windows;

/// Asks for a lock, or for several at once, until they are granted: see [`lock`](crate::lock), which gives a guard.
#[derive(Debug)]
pub struct Waiter {
    backend: Arc<dyn Backend>,
    request: AcquireRequest,
    policy: RetryPolicy,
    start: Instant,
    /// The waiter's number in the queues. It gets one when it begins to wait.
    number: Option<u64>,
    gathering: Gathering,
    retry: RetryState,
    /// The store's last failure. An attempt that its own time limit cut short does not replace an earlier one.
    failure: Option<Error>,
    /// When the next retry is due. Until the waiter has asked or become the first of a line, this is its start.
    retry_at: Instant,
    /// When the waiter first learned that it has to wait: an attempt has told it, or those before it in line.
    first_known: Option<Instant>,
    /// When the waiter last learned so.
    last_known: Instant,
    /// The known end of the lock in the way, since the waiter began to leave out retries and rely on messages. If the store grants the lock
    /// before this end, a message was missing.
    relied_on_end: Option<Instant>,
    obstacles: Obstacles,
    attempts: u32,
    contended: u32,
    wakeups: u32,
}

/// A waiter that relies on messages still asks again when the time for which it has known of the lock has doubled, and at least once in this
/// time, because other libraries and people may free a lock without a message.
pub(crate) const LONGEST_TRUST: Duration = Duration::from_secs(30);

/// Locks that were waited for.
#[derive(Debug)]
pub struct Granted {
    /// What the store has granted, in the order of the claims.
    pub grants: Batch<Grant>,
    /// When the request was sent. The store counts the TTL of the locks from then on or later.
    pub asked: Instant,
}

/// What an attempt has come to.
enum AttemptOutcome {
    Granted(Granted),
    NotYet {
        attempt: FailedAttempt,
        /// The number of the claim whose lock was held, and when that lock ends by itself, if the store has said so. `None` if the store has
        /// failed.
        obstacle: Option<(usize, Option<Instant>)>,
    },
}

/// What a waiter does next.
enum Turn {
    /// It asks. With `is_hinted` it does so before the next retry is due.
    Asks { is_hinted: bool },
    /// It gathers its locks one by one, for this time at most.
    Gathers(Duration),
}

/// What ended a pause.
enum PauseEnd {
    /// The lock may have been freed.
    Freed,
    /// The lock has ended by itself, or a waiter behind would ask by now. The next retry is not due yet.
    Early,
    /// The next retry is due.
    Retry,
    /// Something has changed in the line, so the waiter looks again at what it has to do.
    Changed,
    /// The waiter's time is over, or the backend is being closed.
    Over,
}

impl Waiter {
    /// Makes a waiter for this request, which waits as `policy` says. Its time begins now.
    ///
    /// # Errors
    /// As [`RetryPolicy::validate`], and `InvalidArgument` if the request names a period, because nobody waits for one.
    pub fn new(
        backend: &Arc<dyn Backend>,
        request: AcquireRequest,
        policy: RetryPolicy,
    ) -> Result<Self, Error> {
        if request.due.is_some() {
            return Err(no_period());
        }
        let start = Instant::now();
        Ok(Self {
            backend: Arc::clone(backend),
            gathering: Gathering::new(&request.claims, start),
            request,
            policy,
            start,
            number: None,
            first_known: None,
            last_known: start,
            relied_on_end: None,
            retry: RetryState::new(policy)?,
            failure: None,
            retry_at: start,
            obstacles: Obstacles::default(),
            attempts: 0,
            contended: 0,
            wakeups: 0,
        })
    }

    /// The claims of the request, in order.
    pub(crate) fn claims(&self) -> &[Claim] {
        &self.request.claims
    }

    /// How many times the store has been asked.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How many of these attempts have found the lock held.
    pub fn contended(&self) -> u32 {
        self.contended
    }

    /// How many times the waiter was told that the lock may have been freed.
    pub fn wakeups(&self) -> u32 {
        self.wakeups
    }

    /// Asks until the lock is granted. Call this once. When `cancelled` completes, or the future is dropped, the locks that the store may have
    /// granted are released in the background.
    ///
    /// # Errors
    /// As [`lock`](crate::lock), and `Aborted` when cancelled.
    pub async fn acquire(&mut self, cancelled: impl Future<Output = ()>) -> Result<Granted, Error> {
        let mut cancelled = pin!(cancelled);
        tokio::select! {
            // Whoever is cancelled does not ask once more.
            biased;
            () = &mut cancelled => Err(operation::aborted()),
            outcome = self.until_granted() => outcome,
        }
    }

    async fn until_granted(&mut self) -> Result<Granted, Error> {
        // Whoever does not wait does not queue either.
        if !self.policy.waits() {
            return match self.attempt().await? {
                AttemptOutcome::Granted(granted) => Ok(granted),
                AttemptOutcome::NotYet { attempt, .. } => {
                    Err(self.give_up(attempt, self.elapsed_ms()))
                }
            };
        }
        let queues = self.backend.work().queues();
        let number = *self.number.get_or_insert_with(|| queues.next_number());
        let mut ticket = Ticket::new(queues, number, &self.request.claims, &self.policy);
        let mut turn = Turn::Asks { is_hinted: false };
        if let Some(until) = ticket.pauses() {
            let limit = self.limit();
            sleep_until(limit.map_or(until, |limit| until.min(limit))).await;
        }
        // The futures of waiting are boxed, so that whoever gets a lock at once needs no memory for them.
        if !ticket.asks()? {
            turn = Box::pin(self.until_turn(&mut ticket)).await?;
        }
        loop {
            match turn {
                Turn::Asks { is_hinted } => match self.ask(&mut ticket).await? {
                    AttemptOutcome::Granted(granted) => return Ok(granted),
                    AttemptOutcome::NotYet { attempt, .. } => self.decide(attempt, is_hinted)?,
                },
                Turn::Gathers(window) => {
                    ticket.leaves();
                    if let Some(granted) = Box::pin(self.gather(window)).await {
                        ticket.gathered(ends_by(self.request.ttl));
                        return Ok(granted);
                    }
                    if ticket.asks()? {
                        let is_hinted = Instant::now() < self.retry_at;
                        turn = Turn::Asks { is_hinted };
                        continue;
                    }
                }
            }
            turn = Box::pin(self.until_turn(&mut ticket)).await?;
        }
    }

    /// Waits in line until the waiter is to ask or to gather.
    async fn until_turn(&mut self, ticket: &mut Ticket) -> Result<Turn, Error> {
        let mut was_behind = false;
        loop {
            let (since, obstacle) = (Instant::now(), ticket.obstacle());
            let end = match ticket.role() {
                LineRole::Ready => PauseEnd::Freed,
                LineRole::Behind => {
                    was_behind = true;
                    self.wait_behind(ticket).await
                }
                LineRole::First if was_behind && self.is_due_at_last() => PauseEnd::Retry,
                LineRole::First => {
                    if std::mem::take(&mut was_behind) {
                        self.becomes_first()?;
                    }
                    if let Some(window) = self.gathers_for() {
                        return Ok(Turn::Gathers(window));
                    }
                    self.pause(ticket).await
                }
            };
            let claim = self.request.claims.get(obstacle);
            self.obstacles.stood(claim, since);
            match end {
                PauseEnd::Changed => continue,
                PauseEnd::Over => return self.ends(ticket).await,
                PauseEnd::Retry if self.relies_on_messages(ticket) => {
                    self.relied_on_end = ticket.free_at();
                    self.decide(FailedAttempt::Locked, false)?;
                    continue;
                }
                PauseEnd::Freed => {
                    self.relied_on_end = None;
                    self.wakeups += u32::from(!was_behind);
                }
                PauseEnd::Early | PauseEnd::Retry => ticket.may_be_free(),
            }
            if ticket.asks()? {
                let is_hinted = !matches!(end, PauseEnd::Retry);
                return Ok(Turn::Asks { is_hinted });
            }
            // The ticket stands in another line now, or behind another waiter.
            self.gathering.was_refused();
            was_behind = true;
        }
    }

    /// Whether the last retry has become due while the waiter stood behind others.
    fn is_due_at_last(&self) -> bool {
        self.retry_at <= Instant::now() && self.retry.is_last(self.elapsed_ms())
    }

    /// Begins to watch the lock in place of the waiter before it, whose attempts have shown that somebody holds the lock.
    fn becomes_first(&mut self) -> Result<(), Error> {
        self.learns();
        self.decide(FailedAttempt::Locked, true)
    }

    /// How long the waiter relies on what it last learned: as long as it had known of the lock then.
    fn trust(&self) -> Duration {
        let known_for = self.first_known.map(|first| self.last_known - first);
        known_for.unwrap_or_default().min(LONGEST_TRUST)
    }

    /// Notes that the waiter learns at this moment that it has to wait.
    fn learns(&mut self) {
        self.last_known = Instant::now();
        self.first_known.get_or_insert(self.last_known);
    }

    /// Whether a retry that is due can be left out, because the store would have told if the lock were free. The last retry never is.
    fn relies_on_messages(&self, ticket: &Ticket) -> bool {
        let (now, free_at) = (Instant::now(), ticket.free_at());
        let until = match self.policy.wait {
            Wait::Poll => None,
            Wait::Notify => free_at.map(|end| end.min(self.last_known + self.trust())),
            Wait::NotifyOnly => free_at,
        };
        until.is_some_and(|until| now < until)
            && !self.retry.is_last(self.elapsed_ms())
            && ticket.is_told()
    }

    /// Gives the error of the wait, whose last attempt this was.
    fn give_up(&mut self, attempt: FailedAttempt, elapsed_ms: f64) -> Error {
        match self.retry.after(attempt, elapsed_ms, 0.0) {
            NextStep::GiveUp(end) => self.error(end),
            NextStep::Wait { .. } => Error::new(ErrorKind::Internal, "a wait has ended early"),
        }
    }

    /// Asks the store, and notes its answer in the queues, so that others know it.
    async fn ask(&mut self, ticket: &mut Ticket) -> Result<AttemptOutcome, Error> {
        let found = self.attempt().await?;
        let elapsed_ms = self.elapsed_ms();
        let relied_on_end = self.relied_on_end.take();
        match &found {
            AttemptOutcome::Granted(granted) => {
                if relied_on_end.is_some_and(|end| granted.asked < end) {
                    ticket.was_not_told();
                }
                ticket.granted(ends_by(self.request.ttl), &granted.grants);
            }
            AttemptOutcome::NotYet { obstacle, attempt } => match (*obstacle, *attempt) {
                (Some((claim, free_at)), _) => {
                    ticket.refused(claim, self.obstacles.last_said(), free_at);
                }
                // An attempt that ran out of its own time tells nothing to others.
                (None, FailedAttempt::Error(kind)) if self.retry.is_cut(kind, elapsed_ms) => {
                    ticket.asked_in_vain();
                    self.hears_last_word(ticket);
                }
                (None, _) => ticket.failed(self.failure.as_ref()),
            },
        }
        Ok(found)
    }

    async fn attempt(&mut self) -> Result<AttemptOutcome, Error> {
        if self.attempts > 0 {
            // Each attempt has its own lock ids, because nobody may know what became of the one before.
            for claim in &mut self.request.claims {
                claim.lock_id = LockId::generate()?;
            }
        }
        self.attempts += 1;
        let limit_ms = self.retry.attempt_timeout_ms(self.elapsed_ms());
        let call = CallOptions {
            timeout: Duration::try_from_secs_f64(limit_ms / 1000.0).ok(),
            ..CallOptions::default()
        };
        let asked = clock::now();
        let attempt = operation::acquire(
            &self.backend,
            self.request.clone(),
            call,
            std::future::pending(),
        );
        // Boxed, so that whoever waits keeps no memory for an attempt.
        let (attempt, obstacle) = match Box::pin(attempt).await {
            Ok(AcquireOutcome::Acquired(grants)) => {
                return Ok(AttemptOutcome::Granted(Granted { grants, asked }));
            }
            Ok(AcquireOutcome::Done(_)) => return Err(no_period()),
            Ok(AcquireOutcome::Locked {
                claim,
                free_in,
                labels,
                is_shared,
            }) => {
                let labels = labels.to_texts();
                let busy = Busy {
                    key: None,
                    free_in,
                    labels,
                };
                let claim_in_the_way = self.request.claims.get(claim);
                let said = (Instant::now(), busy);
                self.obstacles.said(claim_in_the_way, said);
                self.contended += 1;
                self.gathering.was_refused();
                self.gathering.by_readers = is_shared;
                (FailedAttempt::Locked, Some((claim, free_in)))
            }
            Err(error) => {
                let kind = error.kind();
                if self.failure.is_none() || !self.retry.is_cut(kind, self.elapsed_ms()) {
                    self.failure = Some(error);
                }
                (FailedAttempt::Error(kind), None)
            }
        };
        self.learns();
        let ends = |free_in| self.last_known.checked_add(free_in);
        let obstacle = obstacle.map(|(claim, free_in)| (claim, free_in.and_then(ends)));
        Ok(AttemptOutcome::NotYet { attempt, obstacle })
    }

    /// Sets when the next retry is due, or fails with the error of the whole wait.
    fn decide(&mut self, attempt: FailedAttempt, is_hinted: bool) -> Result<(), Error> {
        let (elapsed_ms, random) = (self.elapsed_ms(), random::unit()?);
        let step = match is_hinted {
            true => self.retry.after_hint(attempt, elapsed_ms, random),
            false => self.retry.after(attempt, elapsed_ms, random),
        };
        match step {
            NextStep::Wait { delay_ms } => {
                self.retry_at = Instant::now() + Duration::from_secs_f64(delay_ms / 1000.0);
                Ok(())
            }
            NextStep::GiveUp(end) => Err(self.error(end)),
        }
    }

    fn error(&mut self, end: GiveUp) -> Error {
        match end {
            GiveUp::Contention(error) => match self.obstacles.longest() {
                Some(busy) => error.with_busy(busy),
                None => error,
            },
            GiveUp::Failed { effort } => {
                let failure = self.failure.take();
                let failure = failure
                    .unwrap_or_else(|| Error::new(ErrorKind::Internal, "no attempt has failed"));
                failure.after(&effort)
            }
        }
    }

    fn elapsed_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1000.0
    }
}

fn no_period() -> Error {
    Error::invalid("due cannot be waited for: ask once")
}

/// When a lock that was just granted will have ended, even by a store's clock that runs a little late.
fn ends_by(ttl: Ttl) -> Instant {
    let ms = ttl.as_millis().saturating_add(TIME_TOLERANCE_MS);
    Instant::now() + Duration::from_millis(ms.unsigned_abs())
}

#[cfg(test)]
mod tests;
