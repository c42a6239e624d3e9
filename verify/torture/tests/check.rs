//! The checker accepts what can be explained, and refuses what is wrong, in each way in which it can be. One long file, so that
//! a way that is missing is seen.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use proptest::prelude::*;
use torture::check::{Bounds, check};
use torture::history::{Call, Moment, Operation, Outcome};
use torture::lease::{State, TOLERANCE_MS, Window};

const BOUNDS: Bounds = Bounds {
    skew_ms: 0,
    late_ms: 5_000,
    cut_ms: 100,
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

#[test]
fn a_life_of_a_lock_is_fine() {
    assert_fine(vec![
        granted(0, 1, 1),
        refused(10, 2),
        ask(20, Call::IsLocked, Outcome::Yes),
        ask(30, Call::LookUpKey, found(1, TTL_MS)),
        extended(40, 1),
        ask(50, Call::LookUpLock { lock: 1 }, found(1, 40 + TTL_MS)),
        release(60, 1, Outcome::Released),
        ask(70, Call::IsLocked, Outcome::No),
        release(80, 1, Outcome::NotFound),
        granted(90, 3, 2),
        ask(100, Call::ForceRelease, Outcome::Yes),
        release(110, 3, Outcome::NotFound),
        granted(120, 4, 5),
        release(dead(120), 4, Outcome::Expired),
    ]);
}

#[test]
fn what_overlaps_may_happen_in_any_order() {
    let mut slow = refused(5, 2);
    slow.end = at(50);
    // Refused before the release, although it ended after the next grant.
    assert_fine(vec![
        granted(0, 1, 1),
        slow,
        release(10, 1, Outcome::Released),
        granted(20, 3, 2),
    ]);
    let mut late = release(10, 1, Outcome::Released);
    late.end = at(50);
    assert_fine(vec![granted(0, 1, 1), late, granted(30, 2, 2)]);
}

#[test]
fn keys_are_independent() {
    let mut other = granted(1, 2, 1);
    other.key = "other".to_owned();
    assert_fine(vec![granted(0, 1, 1), other]);
}

#[test]
fn an_unknown_outcome_may_be_either_and_comes_late() {
    let unknown = |start: i64| Operation {
        outcome: Outcome::Unknown,
        ..granted(start, 1, 0)
    };
    assert_fine(vec![unknown(0), granted(10, 2, 1)]);
    assert_fine(vec![unknown(0), refused(10, 2)]);
    // It was granted and undone, which used up a number.
    assert_fine(vec![unknown(0), refused(10, 2), granted(20, 2, 2)]);
    assert_fine(vec![unknown(0), refused(4000, 2)]);
    // Somebody must have it after all, or have had it in time.
    assert_wrong(vec![
        unknown(0),
        granted(10, 2, 1),
        refused(20, 3),
        release(30, 2, Outcome::NotFound),
    ]);
    assert_wrong(vec![unknown(0), refused(10, 2), granted(20, 2, 1)]);
    let lost = |start| release(start, 1, Outcome::Unknown);
    assert_fine(vec![
        granted(0, 1, 1),
        lost(10),
        refused(20, 2),
        granted(30, 3, 2),
    ]);
    assert_wrong(vec![
        granted(0, 1, 1),
        lost(10),
        granted(20, 2, 2),
        granted(30, 3, 3),
    ]);
}

#[test]
fn what_was_cut_off_may_have_had_an_effect_and_is_not_undone() {
    let cut = Operation {
        outcome: Outcome::Interrupted,
        ..granted(0, 1, 0)
    };
    assert_fine(vec![cut.clone(), granted(10, 2, 1)]);
    assert_fine(vec![cut.clone(), refused(10, 2), granted(dead(120), 2, 2)]);
    assert_wrong(vec![cut.clone(), refused(10, 2), granted(20, 2, 2)]);
    // Too late.
    let freed = release(200, 2, Outcome::Released);
    assert_wrong(vec![granted(0, 2, 1), freed, refused(300, 3)]);
    let freed = release(50, 2, Outcome::Released);
    assert_fine(vec![
        granted(0, 2, 1),
        cut.clone(),
        freed.clone(),
        refused(60, 3),
    ]);
    let late = ask(150, Call::IsLocked, Outcome::No);
    assert_wrong(vec![granted(0, 2, 1), cut, freed, late, refused(300, 3)]);
}

#[test]
fn a_lock_that_its_caller_has_not_seen_may_be_seen_by_others_and_freed() {
    let wait = |outcome| Operation {
        call: Call::AcquireUnseen {
            number: 1,
            ttl_ms: TTL_MS,
        },
        outcome,
        ..granted(0, 0, 0)
    };
    let seen = |start, lock| {
        let outcome = Outcome::Found {
            lock: Some(lock),
            fence: 1,
            expires_at_ms: TTL_MS,
        };
        ask(start, Call::LookUpKey, outcome)
    };
    let next = granted(20, 2, 2);
    assert_fine(vec![wait(Outcome::Unknown), seen(10, 7), next.clone()]);
    assert_fine(vec![wait(Outcome::Interrupted), seen(10, 7), seen(20, 7)]);
    assert_wrong(vec![wait(Outcome::Interrupted), seen(10, 7), next.clone()]);
    // It is one lock.
    assert_wrong(vec![wait(Outcome::Unknown), seen(10, 7), seen(20, 8)]);
    // It is freed once.
    let other = Operation {
        outcome: Outcome::Found {
            lock: Some(7),
            fence: 2,
            expires_at_ms: 30 + TTL_MS,
        },
        ..ask(40, Call::LookUpKey, Outcome::NotFound)
    };
    assert_wrong(vec![wait(Outcome::Unknown), seen(10, 7), next, other]);
}

#[test]
fn two_holders_are_wrong() {
    assert_wrong(vec![granted(0, 1, 1), granted(10, 2, 2)]);
    // Also within the tolerance.
    assert_wrong(vec![granted(0, 1, 1), granted(dead(0) - 1, 2, 2)]);
    assert_fine(vec![granted(0, 1, 1), granted(dead(0), 2, 2)]);
}

#[test]
fn an_extended_lock_that_is_granted_to_others_is_wrong() {
    let at_first_end = dead(0);
    assert_wrong(vec![
        granted(0, 1, 1),
        extended(5000, 1),
        granted(at_first_end, 2, 2),
    ]);
}

#[test]
fn fences_that_do_not_rise_are_wrong() {
    for fence in [0, 1, 2] {
        assert_wrong(vec![
            granted(0, 1, 2),
            release(10, 1, Outcome::Released),
            granted(20, 2, fence),
        ]);
    }
}

#[test]
fn a_lock_that_is_released_twice_is_wrong() {
    let twice = [10, 20].map(|ms| release(ms, 1, Outcome::Released));
    assert_wrong([vec![granted(0, 1, 1)], twice.to_vec()].concat());
}

#[test]
fn a_release_of_anothers_lock_is_wrong() {
    assert_wrong(vec![granted(0, 1, 1), release(10, 2, Outcome::Released)]);
    assert_wrong(vec![
        granted(0, 1, 1),
        granted(dead(0), 2, 2),
        release(dead(0) + 10, 1, Outcome::Released),
    ]);
}

#[test]
fn a_release_that_did_not_free_is_wrong() {
    assert_wrong(vec![
        granted(0, 1, 1),
        release(10, 1, Outcome::Released),
        refused(20, 2),
    ]);
    assert_wrong(vec![
        granted(0, 1, 1),
        ask(10, Call::ForceRelease, Outcome::Yes),
        ask(20, Call::IsLocked, Outcome::Yes),
    ]);
}

#[test]
fn a_dead_lock_that_comes_back_is_wrong() {
    assert_wrong(vec![granted(0, 1, 1), extended(dead(0), 1)]);
    assert_wrong(vec![
        granted(0, 1, 1),
        release(10, 1, Outcome::Released),
        extended(20, 1),
    ]);
    assert_wrong(vec![granted(0, 1, 1), refused(dead(0), 2)]);
    assert_wrong(vec![
        granted(0, 1, 1),
        release(dead(0), 1, Outcome::Released),
    ]);
}

#[test]
fn a_live_lock_that_is_not_seen_is_wrong() {
    for (call, outcome) in [
        (Call::IsLocked, Outcome::No),
        (Call::LookUpKey, Outcome::NotFound),
        (Call::LookUpLock { lock: 1 }, Outcome::NotFound),
        (Call::Release { lock: 1 }, Outcome::NotFound),
        (Call::Release { lock: 1 }, Outcome::Expired),
        (Call::ForceRelease, Outcome::No),
    ] {
        assert_wrong(vec![granted(0, 1, 1), ask(10, call, outcome)]);
        let late = ask(dead(0), call, outcome);
        assert_fine(vec![granted(0, 1, 1), late]);
    }
}

#[test]
fn a_lock_that_nobody_has_is_wrong() {
    assert_wrong(vec![refused(0, 1)]);
    assert_wrong(vec![ask(0, Call::IsLocked, Outcome::Yes)]);
    assert_wrong(vec![ask(0, Call::LookUpKey, found(1, 5))]);
}

#[test]
fn what_a_look_up_says_must_be_true() {
    for outcome in [found(2, TTL_MS), found(1, TTL_MS + 1)] {
        assert_wrong(vec![granted(0, 1, 1), ask(10, Call::LookUpKey, outcome)]);
    }
    let of_another = ask(10, Call::LookUpLock { lock: 2 }, found(1, TTL_MS));
    assert_wrong(vec![granted(0, 1, 1), of_another]);
}

#[test]
fn a_lock_that_ends_at_another_time_than_was_asked_is_wrong() {
    for wrong_ms in [-1000, 1000] {
        let mut grant = granted(5000, 1, 1);
        grant.outcome = Outcome::Acquired {
            fence: 1,
            expires_at_ms: 5000 + TTL_MS + wrong_ms,
        };
        assert_wrong(vec![grant]);
    }
}

fn calls() -> impl Strategy<Value = Call> {
    let lock = 1..3_u64;
    prop_oneof![
        lock.clone().prop_map(|lock| Call::Acquire {
            lock,
            ttl_ms: TTL_MS
        }),
        lock.clone().prop_map(|lock| Call::Release { lock }),
        lock.clone().prop_map(|lock| Call::Extend {
            lock,
            ttl_ms: TTL_MS
        }),
        lock.clone().prop_map(|number| Call::AcquireUnseen {
            number,
            ttl_ms: TTL_MS
        }),
        Just(Call::ForceRelease),
        Just(Call::IsLocked),
        Just(Call::LookUpKey),
        lock.prop_map(|lock| Call::LookUpLock { lock }),
    ]
}

/// What a call of that kind may be told, in a history that lasts for some milliseconds or until locks are dead.
fn outcomes(call: Call, start: i64, fence: u64) -> Vec<Outcome> {
    let expires_at_ms = start + TTL_MS;
    let found = found(fence, TTL_MS);
    match call {
        Call::Acquire { .. } => vec![
            Outcome::Acquired {
                fence,
                expires_at_ms,
            },
            Outcome::Locked,
            Outcome::Unknown,
        ],
        Call::Release { .. } => vec![
            Outcome::Released,
            Outcome::Expired,
            Outcome::NotFound,
            Outcome::Unknown,
        ],
        Call::Extend { .. } => vec![
            Outcome::Extended { expires_at_ms },
            Outcome::NotFound,
            Outcome::Unknown,
        ],
        Call::ForceRelease => vec![Outcome::Yes, Outcome::No, Outcome::Unknown],
        Call::IsLocked => vec![Outcome::Yes, Outcome::No],
        Call::LookUpKey | Call::LookUpLock { .. } | Call::LookUpUndone { .. } => {
            vec![found, Outcome::NotFound]
        }
        Call::AcquireUnseen { .. } | Call::ReleaseUnseen { .. } => vec![Outcome::Unknown],
        // Nobody calls these.
        Call::Forget | Call::Sweep => vec![Outcome::Yes],
    }
}

prop_compose! {
    fn any_operation()(
        call in calls(),
        start in prop_oneof![0..12_i64, dead(0)..dead(0) + 12],
        length in 1..8_i64,
        fence in 1..4_u64,
        choice in any::<prop::sample::Index>(),
    ) -> Operation {
        let outcomes = outcomes(call, start, fence);
        operation(start, start + length, call, outcomes[choice.index(outcomes.len())])
    }
}

/// Tries all orders.
fn explains(history: &[Operation], left: &[usize], state: State) -> bool {
    let late_us = |number: usize| {
        let is_unknown = history[number].outcome == Outcome::Unknown;
        u64::try_from(if is_unknown { BOUNDS.late_ms } else { 0 }).unwrap() * 1000
    };
    let end = |number: usize| history[number].end.order_us + late_us(number);
    if left
        .iter()
        .all(|number| history[*number].outcome == Outcome::Unknown)
    {
        return true;
    }
    left.iter().any(|&first| {
        let operation = &history[first];
        let is_first = left
            .iter()
            .all(|&other| end(other) >= operation.start.order_us);
        let rest: Vec<_> = left
            .iter()
            .copied()
            .filter(|other| *other != first)
            .collect();
        let window = Window {
            from_ms: operation.start.wall_ms,
            to_ms: i64::try_from(end(first) / 1000).unwrap(),
        };
        let has_effect = state
            .after(operation.call, operation.outcome, window)
            .is_some_and(|after| explains(history, &rest, after));
        let is_unknown = operation.outcome == Outcome::Unknown;
        is_first && (has_effect || (is_unknown && explains(history, &rest, state)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The walk decides as a search through all orders does.
    #[test]
    fn it_decides_as_all_orders_do(history in prop::collection::vec(any_operation(), 1..6)) {
        let mut whole = history.clone();
        for operation in &history {
            let undo = match operation.call {
                Call::Acquire { lock, .. } => Call::Release { lock },
                Call::AcquireUnseen { number, .. } => Call::ReleaseUnseen { number },
                _ => continue,
            };
            if operation.outcome == Outcome::Unknown {
                whole.push(Operation { call: undo, ..operation.clone() });
            }
        }
        let all: Vec<_> = (0..whole.len()).collect();
        let expected = explains(&whole, &all, State::default());
        prop_assert_eq!(check(history, BOUNDS).is_ok(), expected);
    }
}

/// A lock that keeps its promises, driven at random: what it gives is always fine.
#[test]
fn histories_of_a_sound_lock_are_fine() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now: i64 = 0;
        let (mut held, mut fence, mut next_lock) = (None, 0, 0);
        let mut history = Vec::new();
        for _ in 0..200 {
            now += random.i64(1..4);
            if random.u8(..) < 3 {
                now += TTL_MS + TOLERANCE_MS;
            }
            let live = held.filter(|(_, ends): &(u64, i64)| now < ends + TOLERANCE_MS);
            let (call, outcome) = match random.u8(0..4) {
                0 => {
                    next_lock += 1;
                    let call = Call::Acquire {
                        lock: next_lock,
                        ttl_ms: TTL_MS,
                    };
                    if live.is_some() {
                        (call, Outcome::Locked)
                    } else {
                        fence += 1;
                        held = Some((next_lock, now + TTL_MS));
                        (
                            call,
                            Outcome::Acquired {
                                fence,
                                expires_at_ms: now + TTL_MS,
                            },
                        )
                    }
                }
                1 => match (held, live) {
                    (Some((lock, _)), live) => {
                        held = None;
                        let outcome = if live.is_some() {
                            Outcome::Released
                        } else {
                            Outcome::Expired
                        };
                        (Call::Release { lock }, outcome)
                    }
                    (None, _) => (Call::Release { lock: next_lock }, Outcome::NotFound),
                },
                2 => match live {
                    Some((lock, _)) => {
                        held = Some((lock, now + TTL_MS));
                        let expires_at_ms = now + TTL_MS;
                        (
                            Call::Extend {
                                lock,
                                ttl_ms: TTL_MS,
                            },
                            Outcome::Extended { expires_at_ms },
                        )
                    }
                    None => (Call::IsLocked, Outcome::No),
                },
                _ => match live {
                    Some((_, ends)) => (Call::LookUpKey, found(fence, ends)),
                    None => (Call::LookUpKey, Outcome::NotFound),
                },
            };
            // As wide as several processes would see it.
            let (before, after) = (random.i64(0..20).min(now), random.i64(0..20));
            history.push(operation(now - before, now + after, call, outcome));
        }
        assert_fine(history);
    }
}

#[test]
fn a_cancelled_acquisition_must_be_undone() {
    let cancelled = |start| {
        let call = Call::Acquire {
            lock: 1,
            ttl_ms: TTL_MS,
        };
        operation(start, start + 2, call, Outcome::Unknown)
    };
    let look_up = |outcome| ask(6_000, Call::LookUpUndone { lock: 1 }, outcome);
    assert!(check(vec![cancelled(0), look_up(Outcome::NotFound)], BOUNDS).is_ok());
    assert!(check(vec![cancelled(0), look_up(found(1, TTL_MS))], BOUNDS).is_err());
    // Nobody has released it, and it is not dead yet.
    let left = ask(100, Call::LookUpUndone { lock: 1 }, Outcome::NotFound);
    assert!(check(vec![granted(0, 1, 1), left], BOUNDS).is_err());
}

#[test]
fn a_set_that_was_refused_may_have_been_granted_in_part_and_is_gone() {
    let call = Call::Acquire {
        lock: 1,
        ttl_ms: TTL_MS,
    };
    let set = operation(0, 10, call, Outcome::Undone);
    // Others see it until the answer comes, and get what it has left; or it was never there.
    assert_fine(vec![set.clone(), refused(4, 2), granted(12, 3, 9)]);
    assert_fine(vec![set.clone(), granted(4, 2, 9)]);
    // Afterwards, there is nothing of it.
    assert_wrong(vec![set.clone(), refused(12, 2)]);
    let found = found(1, 5 + TTL_MS);
    assert_fine(vec![
        set.clone(),
        ask(6, Call::LookUpLock { lock: 1 }, found),
    ]);
    assert_wrong(vec![set, ask(12, Call::LookUpLock { lock: 1 }, found)]);
}

#[test]
fn locks_that_are_extended_in_several_places_end_each_in_its_own_time() {
    let call = Call::Extend {
        lock: 1,
        ttl_ms: TTL_MS,
    };
    let earliest_ms = 21 + TTL_MS;
    let extended = operation(20, 26, call, Outcome::ExtendedTogether { earliest_ms });
    let seen = |expires_at_ms| {
        let call = Call::LookUpLock { lock: 1 };
        let seen = ask(30, call, found(1, expires_at_ms));
        vec![granted(0, 1, 1), extended.clone(), seen]
    };
    assert_fine(seen(earliest_ms));
    assert_fine(seen(earliest_ms + 4));
    assert_wrong(seen(earliest_ms - 1));
    assert_wrong(seen(27 + TTL_MS));
    assert_wrong(vec![extended]);
}

#[test]
fn more_orders_than_can_be_tried_are_told() {
    let call = |number| Call::AcquireUnseen {
        number,
        ttl_ms: TTL_MS,
    };
    let unknown = |number| operation(0, 10, call(number), Outcome::Unknown);
    let violations = check((0..200).map(unknown).collect(), BOUNDS).unwrap_err();
    assert!(violations[0].is_undecided);
    assert!(violations[0].to_string().contains("too many orders"));
}

#[test]
fn who_waits_takes_a_released_lock_over_in_time() {
    let history = |key: &str, between: Option<Operation>, granted_ms| {
        let mut history = vec![
            granted(0, 1, 7),
            release(100, 1, Outcome::Released),
            operation(
                50,
                granted_ms + 2,
                Call::Acquire {
                    lock: 2,
                    ttl_ms: TTL_MS,
                },
                Outcome::Acquired {
                    fence: 9,
                    expires_at_ms: granted_ms + TTL_MS,
                },
            ),
        ];
        history.extend(between);
        for operation in &mut history {
            key.clone_into(&mut operation.key);
        }
        history
    };
    let slow = |key, between, granted_ms| {
        let history = history(key, between, granted_ms);
        let found = torture::takeover::slow(&history, 4_000, 1_000);
        found.iter().map(|slow| slow.free_ms).collect::<Vec<_>>()
    };
    assert_eq!(slow("wait:0", None, 110), Vec::<i64>::new());
    assert_eq!(slow("wait:0", None, 9_102), [9_000]);
    // Somebody else had it in between, or nobody waited.
    let other = Some(granted(5_000, 3, 8));
    assert_eq!(slow("wait:0", other, 9_102), Vec::<i64>::new());
    assert_eq!(slow("key:0", None, 9_102), Vec::<i64>::new());
    // Somebody may have had it.
    let call = Call::Acquire {
        lock: 3,
        ttl_ms: TTL_MS,
    };
    let unknown = |start| Some(operation(start, start + 2, call, Outcome::Unknown));
    assert_eq!(slow("wait:0", unknown(5_000), 9_102), Vec::<i64>::new());
    assert_eq!(slow("wait:0", unknown(9_103), 9_102), [9_000]);
    // Its effect may come late, but not so late.
    let late = |late_ms| {
        let history = history("wait:0", unknown(10), 9_102);
        torture::takeover::slow(&history, 4_000, late_ms).len()
    };
    assert_eq!((late(90), late(89)), (0, 1));
}
