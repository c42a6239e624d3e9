//! Sees who waits for a lock, and says who was forgotten or overtaken.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::witness::SLACK;
use crate::error::Error;
use crate::lock::LockOptions;
use crate::outcome::AcquireOutcome;
use crate::waiting::retry::{Backoff, RetryPolicy, Wait};

/// An attempt may take so long, however little time is left.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);

/// Those who wait, and in which order they came.
pub(super) struct Waiters {
    all: Vec<Waiter>,
    /// By process and key.
    queues: BTreeMap<(usize, String), Vec<usize>>,
    operation_timeout: Duration,
}

struct Waiter {
    process: usize,
    key: String,
    policy: RetryPolicy,
    came: Instant,
    attempts: u32,
    /// When it asked last, or came.
    asked_at: Instant,
    is_asking: bool,
    /// It was told, while it was asking, that the lock may be free.
    is_hinted: bool,
    /// When it has to ask at the latest, once it is the first.
    due: Option<Instant>,
    /// The number of the lock that it last asked for, unless that is known not to have been granted.
    asked: Option<usize>,
    has_left: bool,
}

impl Waiters {
    pub(super) fn new(operation_timeout: Duration) -> Self {
        Self {
            all: Vec::new(),
            queues: BTreeMap::new(),
            operation_timeout,
        }
    }

    /// Somebody begins to wait, or to try once. Gives its number.
    pub(super) fn enter(&mut self, process: usize, key: &str, options: &LockOptions) -> usize {
        let now = Instant::now();
        let number = self.all.len();
        let queue = self.queues.entry((process, key.to_owned())).or_default();
        if options.retry.waits() {
            queue.push(number);
        }
        let is_first = queue.first() == Some(&number) || !options.retry.waits();
        self.all.push(Waiter {
            process,
            key: key.to_owned(),
            policy: options.retry,
            came: now,
            attempts: 0,
            asked_at: now,
            is_asking: false,
            is_hinted: false,
            due: is_first.then_some(now),
            asked: None,
            has_left: false,
        });
        number
    }

    /// Asks the store. Gives the lock that it had asked for before.
    pub(super) fn attempt(
        &mut self,
        number: usize,
        lock: usize,
        stalled: Instant,
    ) -> Result<Option<usize>, String> {
        let now = Instant::now();
        let timeout = self.operation_timeout;
        let (process, key) = (self.all[number].process, self.all[number].key.clone());
        let queue = self.queues.get(&(process, key));
        let first = queue.and_then(|queue| queue.first());
        let waiter = &mut self.all[number];
        let before = waiter.asked.replace(lock);
        waiter.attempts += 1;
        waiter.is_asking = true;
        waiter.is_hinted = false;
        let due = waiter.due.replace(now + timeout + waiter.longest_pause());
        let was_late = due.is_some_and(|due| waiter.is_late(due, stalled));
        waiter.asked_at = now;
        if waiter.has_left {
            return Err(format!("{number} asked the store after it had left"));
        }
        if waiter.policy.waits() && first != Some(&number) {
            return Err(format!("{number} asked the store before its turn"));
        }
        if was_late {
            return Err(format!("{number} was forgotten for a while"));
        }
        Ok(before)
    }

    /// The store has answered its last question, and it hears it.
    pub(super) fn answered(
        &mut self,
        number: usize,
        lock: usize,
        answer: &Result<AcquireOutcome, Error>,
    ) {
        let now = Instant::now();
        let waiter = &mut self.all[number];
        if waiter.has_left || waiter.asked != Some(lock) {
            return;
        }
        waiter.is_asking = false;
        let mut due = now + waiter.longest_pause();
        if let Ok(AcquireOutcome::Locked { claim: 0, free_in }) = answer {
            waiter.asked = None;
            due = free_in.map_or(due, |free_in| due.min(now + free_in));
        }
        if answer
            .as_ref()
            .is_err_and(|error| !error.is_outcome_unknown())
        {
            waiter.asked = None;
        }
        waiter.due = Some(if waiter.is_hinted { now } else { due });
    }

    /// A process was told that the lock may be free.
    pub(super) fn hinted(&mut self, process: usize, key: &str) {
        let queue = self.queues.get(&(process, key.to_owned()));
        let Some(first) = queue.and_then(|queue| queue.first()) else {
            return;
        };
        let waiter = &mut self.all[*first];
        if waiter.policy.wait == Wait::Poll {
            return;
        }
        let now = Instant::now();
        match waiter.is_asking {
            // With its first question, it may not have been listening yet.
            true => waiter.is_hinted = waiter.attempts > 1,
            false => waiter.due = Some(waiter.due.map_or(now, |due| due.min(now))),
        }
    }

    /// Waits no longer. Gives the lock that it may have been granted without knowing it.
    pub(super) fn leave(
        &mut self,
        number: usize,
        was_granted: bool,
        stalled: Instant,
    ) -> Result<Option<usize>, String> {
        let now = Instant::now();
        let waiter = &mut self.all[number];
        waiter.has_left = true;
        let is_forgotten = waiter.due.is_some_and(|due| waiter.is_late(due, stalled));
        let is_forgotten = is_forgotten && !was_granted && !waiter.is_asking;
        let asked = waiter.asked.take().filter(|_| !was_granted);
        let late = Duration::try_from_secs_f64(waiter.policy.timeout_ms / 1000.0)
            .ok()
            .map(|longest| longest + SHORTEST_ATTEMPT)
            .map(|longest| (waiter.came + longest).max(stalled + SHORTEST_ATTEMPT) + SLACK)
            .is_some_and(|limit| now > limit);
        let key = (waiter.process, waiter.key.clone());
        if let Some(queue) = self.queues.get_mut(&key) {
            let was_first = queue.first() == Some(&number);
            queue.retain(|other| *other != number);
            if let (true, Some(next)) = (was_first, queue.first()) {
                let next = &mut self.all[*next];
                // After a grant there is no need to ask at once.
                next.due = Some(match was_granted {
                    true => now + next.longest_pause(),
                    false => now,
                });
            }
        }
        match () {
            () if is_forgotten => Err(format!("{number} was forgotten until it left")),
            () if late => Err(format!("{number} waited for longer than it may")),
            () => Ok(asked),
        }
    }

    pub(super) fn check_end(&self) -> Option<String> {
        let left = self.all.iter().position(|waiter| !waiter.has_left)?;
        Some(format!("{left} waits for ever"))
    }
}

impl Waiter {
    /// The longest pause that the rules for polling allow after so many attempts.
    fn longest_pause(&self) -> Duration {
        self.pause_after(self.attempts)
    }

    /// Whether it should have asked by now. If the machine stood still meanwhile, it may have given up an attempt after
    /// that, and then begun to wait.
    fn is_late(&self, due: Instant, stalled: Instant) -> bool {
        let stalled = match stalled > self.asked_at {
            true => stalled + self.pause_after(self.attempts + 1),
            false => stalled,
        };
        Instant::now() > due.max(stalled) + SLACK
    }

    fn pause_after(&self, attempts: u32) -> Duration {
        let ms = match self.policy.backoff {
            Backoff::Fixed => self.policy.retry_delay_ms,
            Backoff::Exponential => self.policy.retry_delay_ms * f64::from(attempts.min(20)).exp2(),
        };
        Duration::from_secs_f64(ms.min(1e7) / 1000.0)
    }
}
