//! When to try again: the one set of rules for waiting on a lock.
//!
//! [`Acquisition`] decides and does nothing else. It has no clock, no random numbers and no timer:
//! whoever drives it brings them, so that [`lock`](crate::lock) and a loop in another language follow
//! the same rules.

use crate::error::{Error, ErrorKind};

/// The longest wait that every timer can take, in milliseconds: 2³¹ - 1.
const LONGEST_WAIT_MS: f64 = 2_147_483_647.0;

/// How the wait between two attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// It doubles each time.
    Exponential,
    /// It stays.
    Fixed,
}

/// How much of a wait is left to chance, so that waiters do not come back all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Half of it.
    Equal,
    /// All of it.
    Full,
    /// Nothing.
    None,
}

/// How long and how often to try (api-reference.md, "AcquisitionOptions"). Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Attempts after the first; infinity for no limit.
    pub max_retries: f64,
    /// The wait before the first of them.
    pub retry_delay_ms: f64,
    /// How it grows.
    pub backoff: Backoff,
    /// How it scatters.
    pub jitter: Jitter,
    /// How long to wait in all; infinity for no limit.
    pub timeout_ms: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 10.0,
            retry_delay_ms: 100.0,
            backoff: Backoff::Exponential,
            jitter: Jitter::Equal,
            timeout_ms: 5000.0,
        }
    }
}

impl RetryPolicy {
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
        if self.timeout_ms.is_nan() || self.timeout_ms < 0.0 {
            return Err(Error::invalid("timeoutMs must be a non-negative number"));
        }
        Ok(())
    }

    /// The wait before retry `number` (from 1), scattered by `random` in [0, 1).
    fn delay_ms(&self, number: u32, random: f64) -> f64 {
        let delay = match self.backoff {
            Backoff::Fixed => self.retry_delay_ms,
            // Infinity after many retries is as good as any other wait past the time left.
            Backoff::Exponential => self.retry_delay_ms * f64::from(number - 1).exp2(),
        };
        match self.jitter {
            Jitter::None => delay,
            Jitter::Full => random * delay,
            Jitter::Equal => delay / 2.0 + random * delay / 2.0,
        }
    }
}

/// What an attempt came to, other than a lock. `E` is the driver's own form of a failure.
#[derive(Debug)]
pub enum Setback<E> {
    /// Somebody holds it.
    Locked,
    /// The store failed.
    Failed(ErrorKind, E),
}

/// What to do next.
#[derive(Debug)]
pub enum Step<E> {
    /// Wait that long, or until something says that the lock may be free, then try again.
    Wait {
        /// Milliseconds.
        delay_ms: f64,
    },
    /// Stop: waiting on is pointless or takes too long.
    GiveUp(GiveUp<E>),
}

/// Why to stop waiting.
#[derive(Debug)]
pub enum GiveUp<E> {
    /// Others held the lock for too long: report this error.
    Contention(Error),
    /// The last attempt failed: report what it failed with.
    Failed(E),
}

/// One acquisition: at most `max_retries` retries while `timeout_ms` lasts.
///
/// The first attempt is made at once. After each that gave no lock, [`after`](Self::after) says
/// whether to wait and for how long; after the wait, or when woken before, comes the next attempt.
/// A wait never reaches past the time limit, and an attempt follows each wait.
#[derive(Debug)]
pub struct Acquisition {
    policy: RetryPolicy,
    retries: u32,
}

impl Acquisition {
    /// Starts one.
    ///
    /// # Errors
    /// As [`RetryPolicy::validate`].
    pub fn new(policy: RetryPolicy) -> Result<Self, Error> {
        policy.validate()?;
        Ok(Self { policy, retries: 0 })
    }

    /// Decides after an attempt that gave no lock, `elapsed_ms` after the start, with `random` from [0, 1).
    ///
    /// Only errors of kinds that can pass by themselves are worth another attempt
    /// ([`ErrorKind::is_transient`]).
    pub fn after<E>(&mut self, setback: Setback<E>, elapsed_ms: f64, random: f64) -> Step<E> {
        let left_ms = self.policy.timeout_ms - elapsed_ms;
        let spent = f64::from(self.retries) >= self.policy.max_retries || left_ms <= 0.0;
        match setback {
            Setback::Failed(kind, failure) if spent || !kind.is_transient() => {
                return Step::GiveUp(GiveUp::Failed(failure));
            }
            Setback::Locked if spent => {
                return Step::GiveUp(GiveUp::Contention(self.timeout_error(elapsed_ms)));
            }
            _ => {}
        }
        self.retries = self.retries.saturating_add(1);
        let delay_ms = self.policy.delay_ms(self.retries, random);
        Step::Wait {
            delay_ms: delay_ms.min(left_ms).clamp(0.0, LONGEST_WAIT_MS),
        }
    }

    /// How long the next attempt may take, `elapsed_ms` after the start: the time left, and never
    /// less than it takes to ask a store that is near.
    pub fn attempt_timeout_ms(&self, elapsed_ms: f64) -> f64 {
        const SHORTEST_MS: f64 = 100.0;
        (self.policy.timeout_ms - elapsed_ms).max(SHORTEST_MS)
    }

    fn timeout_error(&self, elapsed_ms: f64) -> Error {
        let attempts = u64::from(self.retries) + 1;
        let s = if attempts == 1 { "" } else { "s" };
        Error::new(
            ErrorKind::AcquisitionTimeout,
            format!("Failed to acquire lock after {elapsed_ms:.0} ms and {attempts} attempt{s}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOCKED: Setback<ErrorKind> = Setback::Locked;

    fn policy(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
        RetryPolicy {
            backoff,
            jitter,
            ..RetryPolicy::default()
        }
    }

    fn waits(policy: RetryPolicy, random: f64, count: usize) -> Vec<f64> {
        let mut acquisition = Acquisition::new(policy).unwrap();
        (0..count)
            .map(|_| match acquisition.after(LOCKED, 0.0, random) {
                Step::Wait { delay_ms } => delay_ms,
                Step::GiveUp(_) => panic!("gave up"),
            })
            .collect()
    }

    #[test]
    fn delays_grow_and_scatter_as_the_policy_says() {
        use Backoff::*;
        assert_eq!(
            waits(policy(Exponential, Jitter::None), 0.7, 7),
            [100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 5000.0]
        );
        assert_eq!(waits(policy(Fixed, Jitter::None), 0.7, 3), [100.0; 3]);
        assert_eq!(
            waits(policy(Exponential, Jitter::Equal), 0.5, 3),
            [75.0, 150.0, 300.0]
        );
        assert_eq!(
            waits(policy(Exponential, Jitter::Full), 0.25, 3),
            [25.0, 50.0, 100.0]
        );
        assert_eq!(waits(policy(Fixed, Jitter::Full), 0.0, 2), [0.0, 0.0]);
    }

    #[test]
    fn retries_are_counted() {
        let mut acquisition = Acquisition::new(RetryPolicy {
            max_retries: 1.0,
            ..RetryPolicy::default()
        })
        .unwrap();
        assert!(matches!(
            acquisition.after(LOCKED, 0.0, 0.0),
            Step::Wait { .. }
        ));
        let Step::GiveUp(GiveUp::Contention(error)) = acquisition.after(LOCKED, 70.2, 0.0) else {
            panic!("expected contention");
        };
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
        assert_eq!(
            error.message(),
            "Failed to acquire lock after 70 ms and 2 attempts"
        );
    }

    #[test]
    fn time_runs_out() {
        let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
        let Step::Wait { delay_ms } = acquisition.after(LOCKED, 4990.0, 0.0) else {
            panic!("expected a wait");
        };
        assert_eq!(delay_ms, 10.0);
        assert!(matches!(
            acquisition.after(LOCKED, 5000.0, 0.0),
            Step::GiveUp(GiveUp::Contention(_))
        ));
    }

    #[test]
    fn passing_failures_are_retried_and_the_last_one_is_reported() {
        for kind in [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout] {
            let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
            assert!(matches!(
                acquisition.after(Setback::Failed(kind, kind), 0.0, 0.0),
                Step::Wait { .. }
            ));
            assert!(matches!(
                acquisition.after(Setback::Failed(kind, kind), 5000.0, 0.0),
                Step::GiveUp(GiveUp::Failed(_))
            ));
        }
        for kind in [
            ErrorKind::AuthFailed,
            ErrorKind::Internal,
            ErrorKind::Aborted,
        ] {
            let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
            assert!(matches!(
                acquisition.after(Setback::Failed(kind, kind), 0.0, 0.0),
                Step::GiveUp(GiveUp::Failed(_))
            ));
        }
    }

    #[test]
    fn bad_numbers_are_named() {
        let default = RetryPolicy::default();
        let bad = [
            (
                RetryPolicy {
                    max_retries: -1.0,
                    ..default
                },
                "maxRetries",
            ),
            (
                RetryPolicy {
                    max_retries: 0.5,
                    ..default
                },
                "maxRetries",
            ),
            (
                RetryPolicy {
                    max_retries: f64::NAN,
                    ..default
                },
                "maxRetries",
            ),
            (
                RetryPolicy {
                    retry_delay_ms: -1.0,
                    ..default
                },
                "retryDelayMs",
            ),
            (
                RetryPolicy {
                    retry_delay_ms: f64::INFINITY,
                    ..default
                },
                "retryDelayMs",
            ),
            (
                RetryPolicy {
                    timeout_ms: f64::NAN,
                    ..default
                },
                "timeoutMs",
            ),
            (
                RetryPolicy {
                    timeout_ms: -1.0,
                    ..default
                },
                "timeoutMs",
            ),
        ];
        for (policy, field) in bad {
            let error = Acquisition::new(policy).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(field), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_wait_never_reaches_past_the_limit(
            elapsed in 0.0..10_000.0f64,
            random in 0.0..1.0f64,
            retries in 0u32..2000,
            timeout in prop_oneof![0.0..10_000.0f64, Just(f64::INFINITY)],
        ) {
            let mut acquisition = Acquisition {
                policy: RetryPolicy {
                    max_retries: f64::INFINITY,
                    timeout_ms: timeout,
                    ..RetryPolicy::default()
                },
                retries,
            };
            match acquisition.after(LOCKED, elapsed, random) {
                Step::Wait { delay_ms } => {
                    prop_assert!((0.0..=LONGEST_WAIT_MS).contains(&delay_ms));
                    prop_assert!(elapsed + delay_ms <= timeout + 1e-9);
                }
                Step::GiveUp(_) => prop_assert!(elapsed >= timeout),
            }
        }
    }
}
