//! The checker accepts what can be explained, and refuses what is wrong, in each way in which it can be.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use torture::bounds::Bounds;
use torture::check::check;
use torture::history::{Call, Moment, Operation, Outcome};
use torture::lease::TOLERANCE_MS;

mod crowds;
mod leases;
mod orders;
mod readers;
mod takeover;

const BOUNDS: Bounds = Bounds {
    skew_ms: 0,
    late_ms: 5_000,
    cut_ms: 100,
    is_steady: true,
    is_spread: false,
    group_ms: 0,
    is_left_in_steps: false,
};
const TTL_MS: i64 = 10_000;

fn at(ms: i64) -> Moment {
    Moment {
        order_us: u64::try_from(ms).unwrap() * 1000,
        wall_ms: ms,
    }
}

/// From `start` to `end`, in milliseconds.
fn operation(start: i64, end: i64, call: Call, outcome: Outcome) -> Operation {
    Operation {
        process: 0,
        key: "k".to_owned(),
        call,
        start: at(start),
        end: at(end),
        outcome,
    }
}

/// Granted in the millisecond in which it starts.
fn granted(start: i64, lock: u64, fence: u64) -> Operation {
    let call = Call::Acquire {
        lock,
        ttl_ms: TTL_MS,
    };
    let expires_at_ms = start + TTL_MS;
    operation(
        start,
        start + 2,
        call,
        Outcome::Acquired {
            fence,
            expires_at_ms,
        },
    )
}

fn refused(start: i64, lock: u64) -> Operation {
    let call = Call::Acquire {
        lock,
        ttl_ms: TTL_MS,
    };
    operation(start, start + 2, call, Outcome::Locked)
}

fn release(start: i64, lock: u64, outcome: Outcome) -> Operation {
    operation(start, start + 2, Call::Release { lock }, outcome)
}

fn extended(start: i64, lock: u64) -> Operation {
    let call = Call::Extend {
        lock,
        ttl_ms: TTL_MS,
    };
    let expires_at_ms = start + TTL_MS;
    operation(start, start + 2, call, Outcome::Extended { expires_at_ms })
}

fn ask(start: i64, call: Call, outcome: Outcome) -> Operation {
    operation(start, start + 2, call, outcome)
}

fn found(fence: u64, expires_at_ms: i64) -> Outcome {
    Outcome::Found {
        lock: None,
        fence,
        expires_at_ms,
    }
}

#[track_caller]
fn assert_fine(history: Vec<Operation>) {
    let count = history.len();
    match check(history, BOUNDS) {
        Ok(checked) => assert_eq!(checked, count),
        Err(violations) => panic!("{}", violations[0]),
    }
}

#[track_caller]
fn assert_wrong(history: Vec<Operation>) {
    assert!(check(history, BOUNDS).is_err());
}

/// When a lock that was granted or extended at `ms` is dead.
const fn dead(ms: i64) -> i64 {
    ms + TTL_MS + TOLERANCE_MS
}
