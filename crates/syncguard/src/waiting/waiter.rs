//! One who wants a lock, and waits for it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::queue::{Place, QueueEntry, Turn};
use super::retry::{FailedAttempt, GiveUp, NextStep, RetryPolicy, RetryState, Wait};
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::asking::request::AcquireRequest;
use crate::background::backend::Backend;
use crate::operation::{self, CallOptions};
use crate::random;
use crate::text::error::{Busy, Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::values::ttl::Ttl;

/// Asks for a lock, or for several at once, until they are granted: see [`lock`](crate::lock), which gives a guard.
#[derive(Debug)]
pub struct Waiter {
    backend: Arc<dyn Backend>,
    request: AcquireRequest,
    policy: RetryPolicy,
    start: Instant,
    retry: RetryState,
    /// The last failure of the store that was more than an attempt cut short by its time limit.
    failure: Option<Error>,
    /// Which claim stood in the way when the store was last asked.
    obstacle: usize,
    /// When that was first known of the lock which it waits for, by an answer of the store or without one.
    first_known: Option<Instant>,
    /// When the store was last asked, or that was known without it.
    asked: Instant,
    /// When the lock ends of which retries have not asked since, because it was known to be held.
    unasked: Option<Instant>,
    /// What the store has said of it, and when.
    busy: Option<(Instant, Busy)>,
    attempts: u32,
    contended: u32,
    wakeups: u32,
}

/// However long a lock lasts, the store is asked again when as much time has passed as before, and at least once in this time: in case
/// somebody frees it without a message, such as other libraries, and people.
pub(crate) const LONGEST_TRUST: Duration = Duration::from_secs(30);

/// Locks that were waited for.
#[derive(Debug)]
pub struct Granted {
    /// What the store has granted, in the order of the claims.
    pub grants: Batch<Grant>,
    /// When it was asked for them: the locks' time has begun since.
    pub asked: Instant,
}

/// What an attempt has come to.
enum AttemptOutcome {
    Granted(Granted),
    NotYet {
        attempt: FailedAttempt,
        /// When the lock ends by itself, if that is known.
        free_at: Option<Instant>,
    },
}

/// What ended a pause.
enum PauseEnd {
    /// The lock may have been freed.
    Freed,
    /// An earlier reason to ask than the next retry's time: the lock ends by itself, or somebody behind would ask by now.
    Early,
    /// The next retry's time.
    Retry,
}

impl Waiter {
    /// One who is going to ask for what `request` says, and waits as `policy` says. Its time begins now.
    ///
    /// # Errors
    /// As [`RetryPolicy::validate`], and `InvalidArgument` for a period: for that, the store is asked once.
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
            request,
            policy,
            start,
            first_known: None,
            asked: start,
            unasked: None,
            retry: RetryState::new(policy)?,
            failure: None,
            obstacle: 0,
            busy: None,
            attempts: 0,
            contended: 0,
            wakeups: 0,
        })
    }

    /// What it asks for, in order.
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

    /// How many times somebody has told that the lock may have been freed.
    pub fn wakeups(&self) -> u32 {
        self.wakeups
    }

    /// Asks until the lock is granted. To be called once. When `cancelled` completes, or the future is dropped, what the store
    /// may have granted is released in the background.
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

    #[expect(
        clippy::cognitive_complexity,
        reason = "whoever waits looks at the clock, the answer and the queue in one loop"
    )]
    async fn until_granted(&mut self) -> Result<Granted, Error> {
        // Whoever does not wait does not queue either.
        if !self.policy.waits() {
            return match self.attempt().await? {
                AttemptOutcome::Granted(granted) => Ok(granted),
                AttemptOutcome::NotYet { attempt, .. } => Err(self.give_up(attempt)),
            };
        }
        let queues = self.backend.work().queues();
        let entered = queues.enter(&self.request.claims, &self.policy);
        let is_behind = |entered: &QueueEntry| matches!(entered, QueueEntry::Behind(_));
        // What is waited for is boxed, so that whoever gets a lock at once takes no room for it.
        let mut turns: Batch<Turn> = match entered.iter().any(is_behind) {
            true => Box::pin(self.turns(entered)).await?,
            false => entered.into_iter().filter_map(QueueEntry::first).collect(),
        };
        let mut found = self.at_turn(&mut turns).await?;
        let mut is_hinted = false;
        loop {
            let (attempt, free_at) = match found {
                AttemptOutcome::Granted(granted) => {
                    self.tell_granted(turns, &granted);
                    return Ok(granted);
                }
                AttemptOutcome::NotYet { attempt, free_at } => (attempt, free_at),
            };
            let retry_at = Instant::now() + self.decide(attempt, is_hinted)?;
            if turns.iter().all(Turn::has_others) {
                // Others may have asked at the same time, and came earlier.
                let entered: Batch<_> = turns.into_iter().map(Turn::give_way).collect();
                if entered.iter().any(is_behind) {
                    turns = Box::pin(self.turns(entered)).await?;
                    is_hinted = true;
                    found = Box::pin(self.at_turn(&mut turns)).await?;
                    continue;
                }
                turns = entered.into_iter().filter_map(QueueEntry::first).collect();
            }
            let end = Box::pin(self.pause(&turns, retry_at, free_at)).await;
            is_hinted = !matches!(end, PauseEnd::Retry);
            self.wakeups += u32::from(matches!(end, PauseEnd::Freed));
            found = match end {
                PauseEnd::Retry if self.relies_on_messages(&turns, free_at) => {
                    self.unasked = free_at;
                    AttemptOutcome::NotYet { attempt, free_at }
                }
                PauseEnd::Freed => {
                    self.unasked = None;
                    self.ask(&mut turns).await?
                }
                _ => self.ask(&mut turns).await?,
            };
        }
    }

    /// For how long its last answer is relied on.
    fn trust(&self) -> Duration {
        let known_for = self.first_known.map(|first| self.asked - first);
        known_for.unwrap_or_default().min(LONGEST_TRUST)
    }

    /// Notes that the store was asked now, or need not have been.
    fn knows(&mut self) {
        self.asked = Instant::now();
        self.first_known.get_or_insert(self.asked);
    }

    /// Whether the store need not be asked whether the lock is free that it has said to be held until `free_at`: it would have
    /// told. The last attempt asks in any case.
    fn relies_on_messages(&self, turns: &[Turn], free_at: Option<Instant>) -> bool {
        let now = Instant::now();
        let until = match self.policy.wait {
            Wait::Poll => None,
            Wait::Notify => free_at.map(|end| end.min(self.asked + self.trust())),
            Wait::NotifyOnly => free_at,
        };
        until.is_some_and(|until| now < until)
            && !self.retry.is_last(self.elapsed_ms())
            && self
                .turn_for(turns, self.obstacle)
                .is_some_and(Turn::is_told)
    }

    /// Asks, unless it is known already that somebody else has what it wants.
    async fn at_turn(&mut self, turns: &mut [Turn]) -> Result<AttemptOutcome, Error> {
        let taken = |claim| Some((claim, self.turn_for(turns, claim)?.taken()?));
        let Some((claim, free_at)) = (0..self.request.claims.len()).find_map(taken) else {
            return self.ask(turns).await;
        };
        self.obstacle = claim;
        self.knows();
        let attempt = FailedAttempt::Locked;
        Ok(AttemptOutcome::NotYet { attempt, free_at })
    }

    /// Waits until it is the first in all queues, at most for as long as the locks are waited for.
    async fn turns(&mut self, entered: Batch<QueueEntry>) -> Result<Batch<Turn>, Error> {
        let limit = Duration::try_from_secs_f64(self.policy.timeout_ms / 1000.0).ok();
        let until = limit.and_then(|limit| self.start.checked_add(limit));
        let mut turns = Batch::new();
        for entered in entered {
            let mut place = match entered {
                QueueEntry::First(turn) => {
                    turns.push(turn);
                    continue;
                }
                QueueEntry::Behind(place) => place,
            };
            turns.push(match until {
                None => place.turn().await?,
                Some(until) => match timeout_at(until, place.turn()).await {
                    Ok(turn) => turn?,
                    Err(_) => return Err(self.too_late(&place)),
                },
            });
        }
        Ok(turns)
    }

    /// Lets those behind know in each queue what was granted.
    fn tell_granted(&self, turns: Batch<Turn>, granted: &Granted) {
        let mut grants = granted.grants.iter();
        let keys = self
            .request
            .claims
            .chunk_by(|one, other| one.key == other.key);
        for (turn, claims) in turns.into_iter().zip(keys) {
            let slots = grants.by_ref().take(claims.len());
            turn.granted(
                ends_by(self.request.ttl),
                slots.filter_map(|grant| grant.slot),
            );
        }
    }

    /// The turn in the queue for a claim.
    fn turn_for<'a>(&self, turns: &'a [Turn], claim: usize) -> Option<&'a Turn> {
        let claims = self.request.claims.get(..=claim)?;
        let keys = claims.chunk_by(|one, other| one.key == other.key);
        turns.get(keys.count() - 1)
    }

    /// The error of one whose time is over before its turn.
    fn too_late(&mut self, place: &Place) -> Error {
        self.failure = place.failure();
        self.busy = place.busy();
        let attempt = match &self.failure {
            Some(error) => FailedAttempt::Error(error.kind()),
            None => FailedAttempt::Locked,
        };
        self.give_up(attempt)
    }

    /// The error of one whose last attempt this was.
    fn give_up(&mut self, attempt: FailedAttempt) -> Error {
        match self.decide(attempt, false) {
            Err(error) => error,
            Ok(_) => Error::new(ErrorKind::Internal, "a wait has ended early"),
        }
    }

    /// Asks the store, and lets those behind know how it has answered.
    async fn ask(&mut self, turns: &mut [Turn]) -> Result<AttemptOutcome, Error> {
        for turn in &mut *turns {
            turn.asks()?;
        }
        let asking = turns.first().and_then(Turn::asking);
        let found = self.attempt().await?;
        drop(asking);
        let unasked = self.unasked.take();
        let Some(turn) = self.turn_for(turns, self.obstacle) else {
            return Ok(found);
        };
        match &found {
            AttemptOutcome::Granted(granted) => {
                if unasked.is_some_and(|end| granted.asked < end) {
                    turn.was_not_told();
                }
            }
            AttemptOutcome::NotYet {
                attempt: FailedAttempt::Locked,
                free_at,
            } => {
                turn.found(None, *free_at);
                turn.tells(self.busy.clone());
            }
            AttemptOutcome::NotYet { free_at, .. } => {
                turn.found(self.failure.as_ref(), *free_at);
            }
        }
        Ok(found)
    }

    async fn attempt(&mut self) -> Result<AttemptOutcome, Error> {
        if self.attempts > 0 {
            // Each attempt has its own: what becomes of the one before may be unknown.
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
        let asked = Instant::now();
        let attempt = operation::acquire(
            &self.backend,
            self.request.clone(),
            call,
            std::future::pending(),
        );
        // Boxed, so that whoever waits takes no room for it.
        let (attempt, free_in) = match Box::pin(attempt).await {
            Ok(AcquireOutcome::Acquired(grants)) => {
                return Ok(AttemptOutcome::Granted(Granted { grants, asked }));
            }
            Ok(AcquireOutcome::Done(_)) => return Err(no_period()),
            Ok(AcquireOutcome::Locked {
                claim,
                free_in,
                labels,
            }) => {
                self.obstacle = claim;
                let labels = labels.to_texts();
                self.busy = Some((Instant::now(), Busy { free_in, labels }));
                self.contended += 1;
                (FailedAttempt::Locked, free_in)
            }
            Err(error) => {
                let kind = error.kind();
                if self.failure.is_none() || !self.retry.is_cut(kind, self.elapsed_ms()) {
                    self.failure = Some(error);
                }
                (FailedAttempt::Error(kind), None)
            }
        };
        self.knows();
        let free_at = free_in.and_then(|free_in| self.asked.checked_add(free_in));
        Ok(AttemptOutcome::NotYet { attempt, free_at })
    }

    /// How long to wait for the next retry, else the error to give up with.
    fn decide(&mut self, attempt: FailedAttempt, is_hinted: bool) -> Result<Duration, Error> {
        let (elapsed_ms, random) = (self.elapsed_ms(), random::unit()?);
        let step = match is_hinted {
            true => self.retry.after_hint(attempt, elapsed_ms, random),
            false => self.retry.after(attempt, elapsed_ms, random),
        };
        match step {
            NextStep::Wait { delay_ms } => Ok(Duration::from_secs_f64(delay_ms / 1000.0)),
            NextStep::GiveUp(GiveUp::Contention(error)) => Err(match self.busy.take() {
                Some((told, mut busy)) => {
                    // It goes on while it is waited for.
                    let gone = told.elapsed();
                    busy.free_in = busy.free_in.map(|free_in| free_in.saturating_sub(gone));
                    error.with_busy(busy)
                }
                None => error,
            }),
            NextStep::GiveUp(GiveUp::Failed { effort }) => {
                let failure = self.failure.take();
                let failure = failure
                    .unwrap_or_else(|| Error::new(ErrorKind::Internal, "no attempt has failed"));
                Err(failure.after(&effort))
            }
        }
    }

    /// Waits for what stood in the way until the next retry is due; shorter if the lock ends by itself at `free_at`, if it may have been freed, if
    /// somebody behind would ask by now, were it alone, or if nobody can get the lock any more because the backend is being
    /// closed.
    async fn pause(&self, turns: &[Turn], retry_at: Instant, free_at: Option<Instant>) -> PauseEnd {
        let asked = self.asked;
        let backend = &self.backend;
        let claim = self.request.claims.get(self.obstacle);
        let Some((claim, turn)) = claim.zip(self.turn_for(turns, self.obstacle)) else {
            sleep_until(retry_at).await;
            return PauseEnd::Retry;
        };
        loop {
            let listens = self.policy.wait != Wait::Poll;
            let watch = || backend.watch(claim);
            let (news, watch) = turn.listen(backend.lane(), listens, watch);
            if turn.is_freed() {
                return PauseEnd::Freed;
            }
            let relies = listens && free_at.is_some() && turn.is_told();
            let others = turn.others_ask_at(asked, relies);
            let early = [free_at, others, turn.looks_again_at()];
            let early = early.into_iter().flatten().min();
            let (until, end) = match early.filter(|early| *early < retry_at) {
                Some(early) => (early, PauseEnd::Early),
                None => (retry_at, PauseEnd::Retry),
            };
            let told = async {
                match &watch {
                    Some(watch) => watch.freed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                times = told => if turn.is_news(times) {
                    turn.may_be_free();
                    return PauseEnd::Freed;
                },
                () = sleep_until(until) => {
                    turn.may_be_free();
                    return end;
                }
                () = backend.work().closing() => return PauseEnd::Freed,
                () = news.notified() => {}
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

/// When a lock that was just granted has ended, also on a store whose clock lags a little.
fn ends_by(ttl: Ttl) -> Instant {
    let ms = ttl.as_millis().saturating_add(TIME_TOLERANCE_MS);
    Instant::now() + Duration::from_millis(ms.unsigned_abs())
}

#[cfg(test)]
mod tests;
