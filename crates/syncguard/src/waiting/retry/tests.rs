use super::*;
use proptest::prelude::*;

const LOCKED: FailedAttempt = FailedAttempt::Locked;

fn policy(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
    RetryPolicy {
        backoff,
        jitter,
        ..RetryPolicy::default()
    }
}

fn waits(policy: RetryPolicy, random: f64, count: usize) -> Vec<f64> {
    let mut state = RetryState::new(policy).unwrap();
    (0..count)
        .map(|_| match state.after(LOCKED, 0.0, random) {
            NextStep::Wait { delay_ms } => delay_ms,
            NextStep::GiveUp(_) => panic!("gave up"),
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
fn delays_grow_up_to_their_limit() {
    let mut capped = policy(Backoff::Exponential, Jitter::None);
    capped.max_retry_delay_ms = 500.0;
    assert_eq!(waits(capped, 0.7, 5), [100.0, 200.0, 400.0, 500.0, 500.0]);
    // It limits the growth, and not the delay that was asked for.
    capped.retry_delay_ms = 700.0;
    assert_eq!(waits(capped, 0.7, 2), [700.0, 700.0]);
    capped.retry_delay_ms = 100.0;
    capped.jitter = Jitter::Equal;
    assert_eq!(waits(capped, 0.5, 4)[3], 375.0);
}

/// The same table as in `__test__/unit/pace.test.ts`.
#[test]
fn the_pace_is_that_of_one_who_asks_by_itself() {
    let exponential = policy(Backoff::Exponential, Jitter::None);
    for (elapsed_ms, pace_ms) in [
        (-1.0, 100.0),
        (0.0, 100.0),
        (99.0, 100.0),
        (100.0, 200.0),
        (299.0, 200.0),
        (300.0, 400.0),
        (6300.0, 5000.0),
        (1e12, 5000.0),
    ] {
        assert_eq!(exponential.pace_ms(elapsed_ms, 0.5), pace_ms);
    }
    let mut fixed = policy(Backoff::Fixed, Jitter::Equal);
    fixed.max_retries = 3.0;
    for (elapsed_ms, pace_ms) in [(0.0, 75.0), (299.0, 75.0), (300.0, f64::INFINITY)] {
        assert_eq!(fixed.pace_ms(elapsed_ms, 0.5), pace_ms);
    }
    fixed.retry_delay_ms = 0.0;
    assert_eq!(fixed.pace_ms(0.0, 0.5), 10.0);
    assert_eq!(fixed.pace_ms(1.0, 0.5), f64::INFINITY);
    fixed.max_retries = f64::INFINITY;
    assert_eq!(fixed.pace_ms(1.0, 0.5), 10.0);
    fixed.backoff = Backoff::Exponential;
    assert_eq!(fixed.pace_ms(1.0, 0.5), 10.0);
}

#[test]
fn retries_are_counted() {
    let mut state = RetryState::new(RetryPolicy {
        max_retries: 1.0,
        ..RetryPolicy::default()
    })
    .unwrap();
    assert!(matches!(
        state.after(LOCKED, 0.0, 0.0),
        NextStep::Wait { .. }
    ));
    let NextStep::GiveUp(GiveUp::Contention(error)) = state.after(LOCKED, 70.2, 0.0) else {
        panic!("expected contention");
    };
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert_eq!(
        error.message(),
        "Failed to acquire lock after 70 ms and 2 attempts: maxRetries allows no more attempts, and somebody \
         holds the lock"
    );
}

#[test]
fn an_attempt_after_a_hint_is_no_retry() {
    let policy = RetryPolicy {
        max_retries: 1.0,
        jitter: Jitter::None,
        ..RetryPolicy::default()
    };
    let mut state = RetryState::new(policy).unwrap();
    assert!(matches!(
        state.after(LOCKED, 10.0, 0.0),
        NextStep::Wait { delay_ms: 100.0 }
    ));
    for (elapsed, left) in [(20.0, 90.0), (50.0, 60.0), (109.0, 1.0)] {
        let NextStep::Wait { delay_ms } = state.after_hint(LOCKED, elapsed, 0.0) else {
            panic!("gave up");
        };
        assert_eq!(delay_ms, left);
    }
    // The time of the retry has come, and it was the last.
    assert!(matches!(
        state.after_hint(LOCKED, 110.0, 0.0),
        NextStep::GiveUp(_)
    ));
    // Nor is it one if the store failed, unless that does not pass.
    let mut state = RetryState::new(policy).unwrap();
    state.after(LOCKED, 10.0, 0.0);
    let failed = FailedAttempt::Error;
    assert!(matches!(
        state.after_hint(failed(ErrorKind::ServiceUnavailable), 20.0, 0.0),
        NextStep::Wait { delay_ms: 90.0 }
    ));
    assert!(matches!(
        state.after_hint(failed(ErrorKind::AuthFailed), 20.0, 0.0),
        NextStep::GiveUp(_)
    ));
}

#[test]
fn time_runs_out() {
    let mut state = RetryState::new(RetryPolicy::default()).unwrap();
    let NextStep::Wait { delay_ms } = state.after(LOCKED, 4990.0, 0.0) else {
        panic!("expected a wait");
    };
    assert_eq!(delay_ms, 10.0);
    let NextStep::GiveUp(GiveUp::Contention(error)) = state.after(LOCKED, 5000.4, 0.0) else {
        panic!("expected contention");
    };
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert_eq!(
        error.message(),
        "Timeout reached before next retry (5000 ms elapsed): timeoutMs is over, and somebody holds the lock"
    );
}

#[test]
fn passing_failures_are_retried_and_the_effort_is_told() {
    for kind in [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout] {
        let mut state = RetryState::new(RetryPolicy::default()).unwrap();
        let failed = FailedAttempt::Error(kind);
        assert!(matches!(
            state.after(failed, 0.0, 0.0),
            NextStep::Wait { .. }
        ));
        let NextStep::GiveUp(GiveUp::Failed { effort }) = state.after(failed, 5012.0, 0.0) else {
            panic!("expected a failure");
        };
        assert_eq!(effort, "gave up after 5012 ms and 2 attempts: ");
    }
    for kind in [
        ErrorKind::AuthFailed,
        ErrorKind::Internal,
        ErrorKind::Aborted,
    ] {
        let mut state = RetryState::new(RetryPolicy::default()).unwrap();
        let NextStep::GiveUp(GiveUp::Failed { effort }) =
            state.after(FailedAttempt::Error(kind), 0.0, 0.0)
        else {
            panic!("expected a failure");
        };
        assert_eq!(effort, "");
    }
}

#[test]
fn an_attempt_cut_short_hides_nothing() {
    let refused = FailedAttempt::Error(ErrorKind::ServiceUnavailable);
    let timed_out = FailedAttempt::Error(ErrorKind::NetworkTimeout);
    // What came before, and whether the end is contention.
    for (before, is_contention) in [
        (vec![], false),
        (vec![LOCKED], true),
        (vec![refused], false),
        (vec![LOCKED, refused], false),
        (vec![refused, LOCKED], true),
        (vec![timed_out], false),
    ] {
        let mut state = RetryState::new(RetryPolicy::default()).unwrap();
        for attempt in &before {
            assert_eq!(state.attempt_timeout_ms(1000.0), 4000.0);
            state.after(*attempt, 1000.0, 0.0);
        }
        assert_eq!(state.attempt_timeout_ms(4950.0), 100.0);
        assert!(state.is_cut(ErrorKind::NetworkTimeout, 5049.5));
        assert!(!state.is_cut(ErrorKind::NetworkTimeout, 5000.0));
        assert!(!state.is_cut(ErrorKind::ServiceUnavailable, 5051.0));
        let NextStep::GiveUp(end) = state.after(timed_out, 5050.0, 0.0) else {
            panic!("expected an end");
        };
        assert_eq!(
            matches!(end, GiveUp::Contention(_)),
            is_contention,
            "{before:?}"
        );
    }
    // The first attempt has a limit that nobody need ask for.
    let state = RetryState::new(RetryPolicy::default()).unwrap();
    assert!(state.is_cut(ErrorKind::NetworkTimeout, 5000.0));
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
        let error = RetryState::new(policy).unwrap_err();
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
        let mut state = RetryState {
            policy: RetryPolicy {
                max_retries: f64::INFINITY,
                timeout_ms: timeout,
                ..RetryPolicy::default()
            },
            retries,
            attempt_ends_ms: 0.0,
            grace_ms: 100.0,
            retry_at_ms: 0.0,
            last_seen: LastSeen::Nothing,
        };
        match state.after(LOCKED, elapsed, random) {
            NextStep::Wait { delay_ms } => {
                prop_assert!((0.0..=LONGEST_WAIT_MS).contains(&delay_ms));
                prop_assert!(elapsed + delay_ms <= timeout + 1e-9);
            }
            NextStep::GiveUp(_) => prop_assert!(elapsed >= timeout),
        }
    }
}

/// One step of a case: an attempt, and what follows from it. `null` stands for infinity.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expectation {
    failed_with: Option<String>,
    elapsed_ms: f64,
    random: f64,
    is_hinted: bool,
    limit_ms: Option<f64>,
    is_cut: bool,
    wait_ms: Option<f64>,
    gives_up: Option<String>,
    contention: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct VectorPolicy {
    max_retries: Option<f64>,
    retry_delay_ms: f64,
    backoff: String,
    jitter: String,
    timeout_ms: Option<f64>,
    max_retry_delay_ms: Option<f64>,
}

#[derive(serde::Deserialize)]
struct Case {
    policy: VectorPolicy,
    steps: Vec<Expectation>,
}

/// `__test__/unit/polling.test.ts` reads the same: the loop in JavaScript has the same rules.
#[test]
fn the_rules_are_those_of_the_vectors() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    assert!(cases.len() > 100);
    for (number, Case { policy, steps }) in cases.into_iter().enumerate() {
        let policy = RetryPolicy {
            max_retries: policy.max_retries.unwrap_or(f64::INFINITY),
            retry_delay_ms: policy.retry_delay_ms,
            backoff: match policy.backoff.as_str() {
                "fixed" => Backoff::Fixed,
                _ => Backoff::Exponential,
            },
            jitter: match policy.jitter.as_str() {
                "none" => Jitter::None,
                "full" => Jitter::Full,
                _ => Jitter::Equal,
            },
            timeout_ms: policy.timeout_ms.unwrap_or(f64::INFINITY),
            max_retry_delay_ms: policy.max_retry_delay_ms.unwrap_or(f64::INFINITY),
            wait: Wait::Notify,
        };
        let mut state = RetryState::new(policy).unwrap();
        let mut elapsed_ms = 0.0;
        for step in steps {
            let limit_ms = step.limit_ms.unwrap_or(f64::INFINITY);
            assert_eq!(state.attempt_timeout_ms(elapsed_ms), limit_ms, "{number}");
            elapsed_ms = step.elapsed_ms;
            let is_cut = state.is_cut(ErrorKind::NetworkTimeout, elapsed_ms);
            assert_eq!(is_cut, step.is_cut, "{number}");
            let attempt = match &step.failed_with {
                None => LOCKED,
                Some(code) => FailedAttempt::Error(ErrorKind::from_name(code).unwrap()),
            };
            let decision = match step.is_hinted {
                true => state.after_hint(attempt, elapsed_ms, step.random),
                false => state.after(attempt, elapsed_ms, step.random),
            };
            match decision {
                NextStep::Wait { delay_ms } => {
                    assert_eq!(Some(delay_ms), step.wait_ms, "{number}");
                    elapsed_ms += delay_ms.round();
                }
                NextStep::GiveUp(GiveUp::Failed { effort }) => {
                    assert_eq!(Some(effort), step.gives_up, "{number}");
                }
                NextStep::GiveUp(GiveUp::Contention(error)) => {
                    assert_eq!(
                        Some(error.message()),
                        step.contention.as_deref(),
                        "{number}"
                    );
                }
            }
        }
    }
}
