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

/// How long and how often to try, as the option `acquisition` in JavaScript. Times in milliseconds.
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

/// What an attempt came to, other than a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// Somebody holds it.
    Locked,
    /// The store failed.
    Failed(ErrorKind),
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Wait that long, or until something says that the lock may be free, then try again.
    Wait {
        /// Milliseconds.
        delay_ms: f64,
    },
    /// Stop: waiting on is pointless or takes too long.
    GiveUp(GiveUp),
}

/// Why to stop waiting.
#[derive(Debug)]
pub enum GiveUp {
    /// Others held the lock for too long: report this error.
    Contention(Error),
    /// The store failed: report the last failure that was [worth remembering](Acquisition::is_cut).
    Failed {
        /// What to put before its message: how long it was tried and how often. Empty when that says nothing.
        effort: String,
    },
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
    /// When the attempt under way is to end, at the latest.
    attempt_ends_ms: f64,
    known: Known,
}

/// What the last attempt that was not cut short showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Contention,
    Failure,
}

impl Acquisition {
    /// Starts one.
    ///
    /// # Errors
    /// As [`RetryPolicy::validate`].
    pub fn new(policy: RetryPolicy) -> Result<Self, Error> {
        policy.validate()?;
        let mut acquisition = Self {
            policy,
            retries: 0,
            attempt_ends_ms: 0.0,
            known: Known::Nothing,
        };
        acquisition.attempt_timeout_ms(0.0);
        Ok(acquisition)
    }

    /// Decides after an attempt that gave no lock, `elapsed_ms` after the start, with `random` from [0, 1).
    ///
    /// Only errors of kinds that can pass by themselves are worth another attempt
    /// ([`ErrorKind::is_transient`]).
    pub fn after(&mut self, setback: Setback, elapsed_ms: f64, random: f64) -> Step {
        self.known = match setback {
            Setback::Locked => Known::Contention,
            Setback::Failed(kind) if !self.is_cut(kind, elapsed_ms) => Known::Failure,
            Setback::Failed(_) => self.known,
        };
        if let Setback::Failed(kind) = setback
            && !kind.is_transient()
        {
            let effort = String::new();
            return Step::GiveUp(GiveUp::Failed { effort });
        }
        let left_ms = self.policy.timeout_ms - elapsed_ms;
        let is_last = f64::from(self.retries) >= self.policy.max_retries;
        if is_last || left_ms <= 0.0 {
            return Step::GiveUp(match self.known {
                Known::Contention if is_last => {
                    GiveUp::Contention(too_often(self.effort(elapsed_ms)))
                }
                Known::Contention => GiveUp::Contention(too_late(elapsed_ms)),
                Known::Failure | Known::Nothing if self.retries == 0 => GiveUp::Failed {
                    effort: String::new(),
                },
                Known::Failure | Known::Nothing => GiveUp::Failed {
                    effort: format!("gave up after {}: ", self.effort(elapsed_ms)),
                },
            });
        }
        self.retries = self.retries.saturating_add(1);
        let delay_ms = self.policy.delay_ms(self.retries, random);
        Step::Wait {
            delay_ms: delay_ms.min(left_ms).clamp(0.0, LONGEST_WAIT_MS),
        }
    }

    /// How long the next attempt may take, `elapsed_ms` after the start: the time left, and never
    /// less than it takes to ask a store that is near.
    pub fn attempt_timeout_ms(&mut self, elapsed_ms: f64) -> f64 {
        const SHORTEST_MS: f64 = 100.0;
        let limit_ms = (self.policy.timeout_ms - elapsed_ms).max(SHORTEST_MS);
        self.attempt_ends_ms = elapsed_ms + limit_ms;
        limit_ms
    }

    /// Whether an attempt that failed so, `elapsed_ms` after the start, was cut short by
    /// [its own limit](Self::attempt_timeout_ms). Such a failure says nothing of the store: whoever
    /// remembers one from before reports that.
    pub fn is_cut(&self, kind: ErrorKind, elapsed_ms: f64) -> bool {
        // Timers may be early by a part of a millisecond, and clocks show whole ones.
        kind == ErrorKind::NetworkTimeout && elapsed_ms + 1.0 >= self.attempt_ends_ms
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
        format!("Failed to acquire lock after {effort}"),
    )
}

fn too_late(elapsed_ms: f64) -> Error {
    Error::new(
        ErrorKind::AcquisitionTimeout,
        format!("Timeout reached before next retry ({elapsed_ms:.0} ms elapsed)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOCKED: Setback = Setback::Locked;

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
        let Step::GiveUp(GiveUp::Contention(error)) = acquisition.after(LOCKED, 5000.4, 0.0) else {
            panic!("expected contention");
        };
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
        assert_eq!(
            error.message(),
            "Timeout reached before next retry (5000 ms elapsed)"
        );
    }

    #[test]
    fn passing_failures_are_retried_and_the_effort_is_told() {
        for kind in [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout] {
            let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
            let failed = Setback::Failed(kind);
            assert!(matches!(
                acquisition.after(failed, 0.0, 0.0),
                Step::Wait { .. }
            ));
            let Step::GiveUp(GiveUp::Failed { effort }) = acquisition.after(failed, 5012.0, 0.0)
            else {
                panic!("expected a failure");
            };
            assert_eq!(effort, "gave up after 5012 ms and 2 attempts: ");
        }
        for kind in [
            ErrorKind::AuthFailed,
            ErrorKind::Internal,
            ErrorKind::Aborted,
        ] {
            let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
            let Step::GiveUp(GiveUp::Failed { effort }) =
                acquisition.after(Setback::Failed(kind), 0.0, 0.0)
            else {
                panic!("expected a failure");
            };
            assert_eq!(effort, "");
        }
    }

    #[test]
    fn an_attempt_cut_short_hides_nothing() {
        let refused = Setback::Failed(ErrorKind::ServiceUnavailable);
        let timed_out = Setback::Failed(ErrorKind::NetworkTimeout);
        // What came before, and whether the end is contention.
        for (before, is_contention) in [
            (vec![], false),
            (vec![LOCKED], true),
            (vec![refused], false),
            (vec![LOCKED, refused], false),
            (vec![refused, LOCKED], true),
            (vec![timed_out], false),
        ] {
            let mut acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
            for setback in &before {
                assert_eq!(acquisition.attempt_timeout_ms(1000.0), 4000.0);
                acquisition.after(*setback, 1000.0, 0.0);
            }
            assert_eq!(acquisition.attempt_timeout_ms(4950.0), 100.0);
            assert!(acquisition.is_cut(ErrorKind::NetworkTimeout, 5049.5));
            assert!(!acquisition.is_cut(ErrorKind::NetworkTimeout, 5000.0));
            assert!(!acquisition.is_cut(ErrorKind::ServiceUnavailable, 5051.0));
            let Step::GiveUp(end) = acquisition.after(timed_out, 5050.0, 0.0) else {
                panic!("expected an end");
            };
            assert_eq!(
                matches!(end, GiveUp::Contention(_)),
                is_contention,
                "{before:?}"
            );
        }
        // The first attempt has a limit that nobody need ask for.
        let acquisition = Acquisition::new(RetryPolicy::default()).unwrap();
        assert!(acquisition.is_cut(ErrorKind::NetworkTimeout, 5000.0));
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
                attempt_ends_ms: 0.0,
                known: Known::Nothing,
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
