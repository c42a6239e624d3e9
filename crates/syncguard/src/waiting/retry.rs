//! Decides when to try again.
//!
//! [`RetryState`] only decides. It has no clock, no random numbers and no timer: the loop that waits passes them in.

use std::time::Duration;

use crate::text::error::{Error, ErrorKind};

/// The longest wait that every timer supports, in milliseconds: 2³¹ - 1.
const LONGEST_WAIT_MS: f64 = 2_147_483_647.0;

/// However impatient those in a queue are, they let the store rest for so many milliseconds between two attempts.
const SHORTEST_PACE_MS: f64 = 10.0;

/// How the wait between two attempts changes from one to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// It doubles each time.
    Exponential,
    /// It stays the same.
    Fixed,
}

/// How much of a wait is random, so that waiters do not all try again at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Half of it.
    Equal,
    /// All of it.
    Full,
    /// Nothing.
    None,
}

/// Says how long and how often to try, as the option `acquisition` does in JavaScript. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Attempts after the first; infinity for no limit.
    pub max_retries: f64,
    /// The wait before the first retry.
    pub retry_delay_ms: f64,
    /// How the wait grows.
    pub backoff: Backoff,
    /// The longest wait between two attempts; infinity for no limit.
    pub max_retry_delay_ms: f64,
    /// How much of the wait is random.
    pub jitter: Jitter,
    /// How long to wait in all; infinity for no limit.
    pub timeout_ms: f64,
    /// What ends the wait between two attempts.
    pub wait: Wait,
}

/// What ends the wait between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A message of the store that the lock was freed, and in any case the next retry's time. While the store tells of
    /// releases, retries ask less and less often until the lock would end by itself, at least once in half a minute
    /// (docs/waiting.md, "While the store tells").
    Notify,
    /// The next retry's time.
    Poll,
    /// As `Notify`, but retries ask only when the lock would end by itself, however long it lasts: for stores that bill by command.
    NotifyOnly,
}

/// Waits for five seconds, however many attempts that takes.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: f64::INFINITY,
            retry_delay_ms: 100.0,
            backoff: Backoff::Exponential,
            max_retry_delay_ms: 5000.0,
            jitter: Jitter::Equal,
            timeout_ms: 5000.0,
            wait: Wait::Notify,
        }
    }
}

impl RetryPolicy {
    /// How often `lock()` of SyncGuard for TypeScript 2.x tries by default, which that of 3.x keeps: ten retries, with a
    /// wait that grows without a limit.
    #[must_use]
    pub fn of_typescript_2() -> Self {
        Self {
            max_retries: 10.0,
            max_retry_delay_ms: f64::INFINITY,
            ..Self::default()
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field.
    pub fn validate(&self) -> Result<(), Error> {
        let whole = self.max_retries.is_infinite() || self.max_retries.fract() == 0.0;
        if !(self.max_retries >= 0.0 && whole) {
            return Err(Error::invalid("maxRetries must be a non-negative integer"));
        }
        if !(self.retry_delay_ms >= 0.0 && self.retry_delay_ms.is_finite()) {
            return Err(Error::invalid("retryDelayMs must be a non-negative number"));
        }
        if self.max_retry_delay_ms.is_nan() || self.max_retry_delay_ms <= 0.0 {
            return Err(Error::invalid("maxRetryDelayMs must be a positive number"));
        }
        if self.timeout_ms.is_nan() || self.timeout_ms < 0.0 {
            return Err(Error::invalid("timeoutMs must be a non-negative number"));
        }
        Ok(())
    }

    /// Whether it waits at all, and does not only try once.
    pub fn waits(&self) -> bool {
        self.max_retries > 0.0 && self.timeout_ms > 0.0
    }

    /// Gives the pause before the next attempt of a waiter who has asked by itself for `elapsed_ms`, with `random` from [0, 1) for the jitter.
    /// The pause is infinite once the retries would be used up. The first of a queue asks at the pace of the most eager one behind it.
    pub(crate) fn pace_ms(&self, elapsed_ms: f64, random: f64) -> f64 {
        let passed = match elapsed_ms > 0.0 {
            true => elapsed_ms / self.retry_delay_ms,
            false => 0.0,
        };
        let retries = match self.backoff {
            Backoff::Fixed => passed.floor(),
            // Before retry n, the waits add up to 2ⁿ⁻¹ - 1 times the first.
            Backoff::Exponential => (passed + 1.0).log2().floor(),
        };
        if self.max_retries.is_finite() && retries >= self.max_retries {
            return f64::INFINITY;
        }
        // It saturates where the delay has long been the longest.
        self.delay_ms((retries as u32).saturating_add(1), random)
            .max(SHORTEST_PACE_MS)
    }

    /// The wait before retry `number` (from 1), with `random` from [0, 1) for the jitter.
    fn delay_ms(&self, number: u32, random: f64) -> f64 {
        let delay = match self.backoff {
            Backoff::Fixed => self.retry_delay_ms,
            // Long before the exponent's limit the delay is the longest, or it is zero and must stay so.
            Backoff::Exponential => self.retry_delay_ms * f64::from((number - 1).min(1000)).exp2(),
        }
        .min(self.max_retry_delay_ms.max(self.retry_delay_ms));
        match self.jitter {
            Jitter::None => delay,
            Jitter::Full => random * delay,
            Jitter::Equal => delay / 2.0 + random * delay / 2.0,
        }
    }
}

/// Why an attempt gave no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedAttempt {
    /// Somebody holds it.
    Locked,
    /// The store failed with an error of this kind.
    Error(ErrorKind),
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Wait that long, or until a hint that the lock may be free, then try again.
    Wait {
        /// Milliseconds.
        delay_ms: f64,
    },
    /// Stop trying: it is pointless, or takes too long.
    GiveUp(GiveUp),
}

/// Why to stop waiting.
#[derive(Debug)]
pub(crate) enum GiveUp {
    /// Others held the lock for too long: report this error.
    Contention(Error),
    /// The store failed: report the last failure that was not [cut short](RetryState::is_cut).
    Failed {
        /// What to put before its message: for how long and how often it was tried. Empty after a single
        /// attempt, and after an error that is not worth a retry.
        effort: String,
    },
}

/// A wait may go on for so long past its time, for one last answer.
pub(crate) const GRACE: Duration = Duration::from_millis(100);

/// Counts the attempts for one lock: at most `max_retries` retries within `timeout_ms`.
///
/// The first attempt is made at once. After each attempt that gave no lock, [`after`](Self::after) says
/// whether to wait and for how long. The next attempt follows the wait, or ends it early if something hints
/// that the lock may be free. No wait goes past the time limit, and an attempt follows every wait.
#[derive(Debug)]
pub(crate) struct RetryState {
    policy: RetryPolicy,
    retries: u32,
    /// When the current attempt reaches its own time limit, in milliseconds after the start.
    attempt_ends_ms: f64,
    /// An attempt may take so long, even if the time of the wait is over: a nearby store needs that to answer.
    grace_ms: f64,
    /// When the next retry is due, in milliseconds after the start.
    retry_at_ms: f64,
    last_seen: LastSeen,
}

/// What the last attempt that was not cut short has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastSeen {
    Nothing,
    Contention,
    Failure,
}

impl RetryState {
    /// The state before the first attempt.
    ///
    /// # Errors
    /// As [`RetryPolicy::validate`].
    pub(crate) fn new(policy: RetryPolicy) -> Result<Self, Error> {
        policy.validate()?;
        let mut state = Self {
            policy,
            retries: 0,
            attempt_ends_ms: 0.0,
            grace_ms: GRACE.as_secs_f64() * 1000.0,
            retry_at_ms: 0.0,
            last_seen: LastSeen::Nothing,
        };
        state.attempt_timeout_ms(0.0);
        Ok(state)
    }

    /// Decides after an attempt that gave no lock, `elapsed_ms` after the start, with `random` from [0, 1).
    ///
    /// After an error, it tries again only if the kind of error can pass by itself
    /// ([`ErrorKind::is_transient`]).
    pub(crate) fn after(
        &mut self,
        attempt: FailedAttempt,
        elapsed_ms: f64,
        random: f64,
    ) -> NextStep {
        self.see(attempt, elapsed_ms);
        if let FailedAttempt::Error(kind) = attempt
            && !kind.is_transient()
        {
            let effort = String::new();
            return NextStep::GiveUp(GiveUp::Failed { effort });
        }
        let left_ms = self.policy.timeout_ms - elapsed_ms;
        let is_last = f64::from(self.retries) >= self.policy.max_retries;
        if is_last || left_ms <= 0.0 {
            return NextStep::GiveUp(match self.last_seen {
                LastSeen::Contention if is_last => {
                    GiveUp::Contention(too_often(self.effort(elapsed_ms)))
                }
                LastSeen::Contention => GiveUp::Contention(too_late(elapsed_ms)),
                LastSeen::Failure | LastSeen::Nothing if self.retries == 0 => GiveUp::Failed {
                    effort: String::new(),
                },
                LastSeen::Failure | LastSeen::Nothing => GiveUp::Failed {
                    effort: format!("gave up after {}: ", self.effort(elapsed_ms)),
                },
            });
        }
        self.retries = self.retries.saturating_add(1);
        let delay_ms = self.policy.delay_ms(self.retries, random);
        let delay_ms = delay_ms.min(left_ms).clamp(0.0, LONGEST_WAIT_MS);
        self.retry_at_ms = elapsed_ms + delay_ms;
        NextStep::Wait { delay_ms }
    }

    /// As [`after`](Self::after), for an attempt that was made before the next retry was due, because something hinted that the lock may be
    /// free, or because waiters behind wanted to know. Such an attempt is no retry: if it gave no lock, the wait goes on that it has
    /// interrupted, unless the store failed in a way that does not pass.
    pub(crate) fn after_hint(
        &mut self,
        attempt: FailedAttempt,
        elapsed_ms: f64,
        random: f64,
    ) -> NextStep {
        let delay_ms = self.retry_at_ms - elapsed_ms;
        let passes = match attempt {
            FailedAttempt::Locked => true,
            FailedAttempt::Error(kind) => kind.is_transient(),
        };
        if passes && delay_ms > 0.0 {
            self.see(attempt, elapsed_ms);
            return NextStep::Wait { delay_ms };
        }
        self.after(attempt, elapsed_ms, random)
    }

    /// Whether the next attempt that finds the lock held is the last one, `elapsed_ms` after the start.
    pub(crate) fn is_last(&self, elapsed_ms: f64) -> bool {
        let is_over = elapsed_ms + 1.0 >= self.policy.timeout_ms;
        is_over || f64::from(self.retries) >= self.policy.max_retries
    }

    /// Notes what an attempt has shown.
    fn see(&mut self, attempt: FailedAttempt, elapsed_ms: f64) {
        match attempt {
            FailedAttempt::Error(kind) if self.is_cut(kind, elapsed_ms) => {}
            attempt => self.hears(attempt),
        }
    }

    /// Notes what the attempt of another has shown.
    pub(super) fn hears(&mut self, attempt: FailedAttempt) {
        self.last_seen = match attempt {
            FailedAttempt::Locked => LastSeen::Contention,
            FailedAttempt::Error(_) => LastSeen::Failure,
        };
    }

    /// How long the next attempt may take, `elapsed_ms` after the start: the time left, and never
    /// less than the grace.
    pub(crate) fn attempt_timeout_ms(&mut self, elapsed_ms: f64) -> f64 {
        let limit_ms = (self.policy.timeout_ms - elapsed_ms).max(self.grace_ms);
        self.attempt_ends_ms = elapsed_ms + limit_ms;
        limit_ms
    }

    /// Whether an attempt that failed with this kind of error, `elapsed_ms` after the start, was cut short
    /// by [its own time limit](Self::attempt_timeout_ms). Such a failure says nothing about the store, so
    /// callers report an earlier failure instead, if there was one.
    pub(crate) fn is_cut(&self, kind: ErrorKind, elapsed_ms: f64) -> bool {
        // Timers may fire a fraction of a millisecond early, and clocks in JavaScript show whole ones.
        kind == ErrorKind::NetworkTimeout && elapsed_ms + 1.0 >= self.attempt_ends_ms
    }

    /// Takes from the grace what a waiter has spent of it, after its time was over, on the answer to another.
    pub(crate) fn spend_grace(&mut self, spent: Duration) {
        self.grace_ms = GRACE.saturating_sub(spent).as_secs_f64() * 1000.0;
    }

    fn effort(&self, elapsed_ms: f64) -> String {
        let attempts = u64::from(self.retries) + 1;
        let s = if attempts == 1 { "" } else { "s" };
        format!("{elapsed_ms:.0} ms and {attempts} attempt{s}")
    }
}

fn too_often(effort: String) -> Error {
    Error::new(
        ErrorKind::AcquisitionTimeout,
        format!(
            "Failed to acquire lock after {effort}: maxRetries allows no more attempts, and somebody holds the lock"
        ),
    )
}

fn too_late(elapsed_ms: f64) -> Error {
    Error::new(
        ErrorKind::AcquisitionTimeout,
        format!(
            "Timeout reached before next retry ({elapsed_ms:.0} ms elapsed): timeoutMs is over, and somebody holds the lock"
        ),
    )
}

#[cfg(test)]
mod tests;
