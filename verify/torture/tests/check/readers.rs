//! What readers may do and may not do who share a lock, in short histories.

use fastrand::Rng;

use super::*;

fn joined(start: i64, lock: u64, fence: u64) -> Operation {
    let Call::Acquire { lock, ttl_ms } = granted(start, lock, fence).call else {
        unreachable!();
    };
    Operation {
        call: Call::Join { lock, ttl_ms },
        ..granted(start, lock, fence)
    }
}

fn told(start: i64, lock: u64, outcome: Outcome) -> Operation {
    Operation {
        outcome,
        ..joined(start, lock, 0)
    }
}

fn shut_out(start: i64, lock: u64) -> Operation {
    Operation {
        outcome: Outcome::LockedByReaders,
        ..refused(start, lock)
    }
}

fn left(start: i64, lock: u64) -> Operation {
    release(start, lock, Outcome::Released)
}

fn of_gate(operation: Operation) -> Operation {
    Operation {
        key: "k\u{37e}0".to_owned(),
        ..operation
    }
}

fn group(fence: u64, expires_at_ms: i64) -> Outcome {
    Outcome::FoundGroup {
        fence,
        expires_at_ms,
    }
}

#[test]
fn somebody_who_is_not_named_is_a_reader_or_a_writer() {
    let unnamed = |start, lock| Operation {
        outcome: Outcome::LockedBySomebody,
        ..refused(start, lock)
    };
    assert_fine(vec![joined(0, 1, 1), unnamed(10, 2), left(20, 1)]);
    assert_fine(vec![granted(0, 1, 1), unnamed(10, 2), left(20, 1)]);
    assert_wrong(vec![joined(0, 1, 1), left(20, 1), unnamed(30, 2)]);
}

#[test]
fn a_life_of_a_group_is_fine() {
    assert_fine(vec![
        granted(0, 1, 1),
        told(10, 2, Outcome::Locked),
        left(20, 1),
        joined(30, 3, 2),
        joined(40, 4, 2),
        shut_out(50, 5),
        ask(60, Call::LookUpKey, group(2, 40 + TTL_MS)),
        ask(70, Call::LookUpLock { lock: 3 }, found(2, 30 + TTL_MS)),
        extended(80, 3),
        left(90, 3),
        release(100, 3, Outcome::NotFound),
        ask(110, Call::IsLocked, Outcome::Yes),
        joined(120, 6, 2),
        left(130, 4),
        left(140, 6),
        ask(150, Call::LookUpKey, Outcome::NotFound),
        joined(160, 7, 3),
        // It dies, and so does its group.
        granted(dead(160), 8, 4),
        release(dead(160) + 10, 7, Outcome::Expired),
    ]);
}

#[test]
fn readers_and_writers_exclude_each_other() {
    let two = [joined(0, 1, 1), joined(10, 2, 1)];
    let with = |more: &[Operation]| [&two, more].concat();
    assert_wrong(with(&[granted(20, 3, 2)]));
    assert_wrong(with(&[left(20, 1), granted(30, 3, 2)]));
    assert_fine(with(&[left(20, 1), left(30, 2), granted(40, 3, 2)]));
    assert_wrong(with(&[refused(20, 3)]));
    assert_wrong(with(&[ask(20, Call::IsLocked, Outcome::No)]));
    assert_wrong(with(&[told(20, 3, Outcome::Locked)]));
    assert_wrong(with(&[left(20, 1), left(30, 2), shut_out(40, 3)]));
    assert_wrong(with(&[
        left(20, 1),
        left(30, 2),
        told(40, 3, Outcome::Locked),
    ]));
    assert_wrong(vec![granted(0, 1, 1), joined(10, 2, 2)]);
    assert_wrong(vec![granted(0, 1, 1), joined(10, 2, 1)]);
    assert_wrong(vec![granted(0, 1, 1), shut_out(10, 2)]);
    assert_fine(vec![granted(0, 1, 1), joined(dead(0), 2, 2)]);
}

#[test]
fn a_reader_keeps_its_lock_and_loses_it_with_its_group() {
    let two = [joined(0, 1, 1), joined(10, 2, 1)];
    let with = |more: &[Operation]| [&two, more].concat();
    for gone in [Outcome::NotFound, Outcome::Expired] {
        assert_wrong(with(&[release(20, 1, gone)]));
        assert_wrong(with(&[left(20, 2), release(30, 1, gone)]));
        assert_fine(with(&[release(dead(0), 1, gone), left(dead(0) + 5, 2)]));
        assert_wrong(with(&[release(dead(0), 2, gone)]));
    }
    assert_wrong(with(&[ask(
        20,
        Call::LookUpLock { lock: 1 },
        Outcome::NotFound,
    )]));
    // A group lasts no shorter than its readers.
    assert_wrong(with(&[extended(5_000, 1), granted(dead(10), 3, 2)]));
    let forced = ask(20, Call::ForceRelease, Outcome::Yes);
    let after = |more: &[Operation]| [&two, std::slice::from_ref(&forced), more].concat();
    assert_fine(after(&[release(30, 1, Outcome::NotFound)]));
    assert_wrong(after(&[left(30, 1)]));
    assert_wrong(after(&[extended(30, 1)]));
    assert_wrong(after(&[joined(30, 3, 1)]));
    assert_fine(after(&[joined(30, 3, 2), left(40, 3), granted(50, 4, 3)]));
    assert_wrong(after(&[joined(30, 3, 2), extended(40, 1)]));
}

#[test]
fn a_join_that_was_given_up_may_be_undone_before_it_is_granted() {
    let late = Operation {
        end: at(50),
        ..joined(0, 1, 1)
    };
    let undone = release(20, 1, Outcome::NotFound);
    assert_fine(vec![late.clone(), undone.clone(), left(60, 1)]);
    assert_wrong(vec![joined(0, 1, 1), undone, left(60, 1)]);
}

#[test]
fn readers_have_the_fence_of_their_group() {
    assert_wrong(vec![joined(0, 1, 1), joined(10, 2, 2)]);
    assert_wrong(vec![joined(0, 1, 2), joined(10, 2, 1)]);
    assert_wrong(vec![joined(0, 1, 1), left(10, 1), joined(20, 2, 1)]);
    assert_wrong(vec![granted(0, 1, 5), left(10, 1), joined(20, 2, 5)]);
    assert_wrong(vec![joined(0, 1, 5), left(10, 1), granted(20, 2, 5)]);
    assert_wrong(vec![
        joined(0, 1, 1),
        ask(10, Call::LookUpKey, group(2, TTL_MS)),
    ]);
    assert_wrong(vec![
        joined(0, 1, 1),
        ask(10, Call::LookUpKey, group(1, TTL_MS + 1)),
    ]);
}

#[test]
fn a_gate_keeps_readers_out() {
    let inside = joined(0, 1, 1);
    let gate = [of_gate(granted(10, 2, 1)), of_gate(left(100, 2))];
    let with = |one: Operation| {
        [
            std::slice::from_ref(&inside),
            &gate,
            std::slice::from_ref(&one),
        ]
        .concat()
    };
    assert_fine(with(told(50, 3, Outcome::Locked)));
    assert_wrong(with(joined(50, 3, 1)));
    assert_fine(with(joined(101, 3, 1)));
    assert_wrong(with(told(110, 3, Outcome::Locked)));
    assert_fine(with(extended(50, 1)));
    // Until it is dead, if nobody lets go of it.
    let forgotten = |at| {
        vec![
            inside.clone(),
            gate[0].clone(),
            told(at, 3, Outcome::Locked),
        ]
    };
    assert_fine(forgotten(dead(10) - 5));
    assert_wrong(forgotten(dead(10) + 5));
}

#[test]
fn a_gate_may_end_sooner_than_it_was_to() {
    let (lock, ttl_ms) = (2, 50);
    let outcome = Outcome::Extended { expires_at_ms: 70 };
    let sooner = operation(20, 22, Call::Extend { lock, ttl_ms }, outcome);
    let with = |one: Operation| {
        let gate = [granted(10, lock, 1), sooner.clone()].map(of_gate);
        let late = of_gate(release(3_000, lock, Outcome::Expired));
        [&[joined(0, 1, 1)], &gate[..], &[one, late]].concat()
    };
    assert_fine(with(joined(2_000, 3, 1)));
    assert_wrong(with(joined(40, 3, 1)));
}

#[test]
fn a_group_may_be_over_before_others_see_who_joins_it() {
    let over = dead(0);
    let joins = |end| Operation {
        end: at(end),
        ..joined(over - 5, 2, 1)
    };
    let nobody = ask(over + 5, Call::IsLocked, Outcome::No);
    let with = |end| vec![joined(0, 1, 1), joins(end), nobody.clone()];
    assert_fine(with(over + 20));
    assert_wrong(with(over + 4));
}

#[test]
fn a_group_may_stay_until_the_release_that_empties_it_has_ended() {
    let in_steps = |is_left_in_steps, more: &[Operation]| {
        let leaves = operation(10, 20, Call::Release { lock: 1 }, Outcome::Released);
        let history = [&[joined(0, 1, 1), leaves], more].concat();
        let bounds = Bounds {
            is_left_in_steps,
            ..BOUNDS
        };
        check(history, bounds).is_ok()
    };
    let forced = |start| ask(start, Call::ForceRelease, Outcome::Yes);
    let nobody = ask(12, Call::IsLocked, Outcome::No);
    let seen = [nobody.clone(), shut_out(15, 2)];
    let freed = [nobody, forced(15), joined(18, 2, 2)];
    for group_is_seen in [&seen[..], &freed] {
        assert!(in_steps(true, group_is_seen));
        assert!(!in_steps(false, group_is_seen));
    }
    assert!(in_steps(true, &[joined(25, 2, 2)]));
    for late in [shut_out(25, 2), forced(25), joined(25, 2, 1)] {
        assert!(!in_steps(true, &[late]));
    }
}

/// As that of a process that is stopped before it hears that it has left.
#[test]
fn a_reader_may_have_left_long_before_its_release_has_ended() {
    let release = Call::Release { lock: 1 };
    let long = operation(10, dead(3_000), release, Outcome::Released);
    let mut history = vec![
        joined(0, 1, 1),
        long,
        joined(9_000, 2, 1),
        joined(9_010, 3, 1),
    ];
    history.extend([
        left(dead(500), 3),
        left(dead(600), 2),
        granted(dead(700), 4, 2),
    ]);
    assert_fine(history);
}

#[test]
fn a_reader_of_whom_nobody_knows_may_keep_the_others() {
    let unknown = |one: Operation| Operation {
        outcome: Outcome::Unknown,
        ..one
    };
    let lost = unknown(joined(0, 1, 0));
    assert_fine(vec![lost.clone(), shut_out(10, 2)]);
    assert_fine(vec![lost.clone(), shut_out(10, 2), granted(20, 3, 2)]);
    assert_fine(vec![
        lost.clone(),
        joined(10, 2, 7),
        left(20, 2),
        joined(30, 3, 7),
    ]);
    // As long as it may be there, the group may last for it.
    let late = ask(20, Call::LookUpKey, group(7, 1_000 + TTL_MS));
    assert_fine(vec![lost.clone(), joined(10, 2, 7), late.clone()]);
    assert_wrong(vec![joined(10, 2, 7), late]);
    assert_wrong(vec![lost.clone(), refused(10, 2)]);
    let late = dead(BOUNDS.late_ms) + 10;
    assert_wrong(vec![lost, shut_out(late, 2)]);
    let leaving = [joined(0, 1, 1), joined(5, 2, 1), unknown(left(10, 1))];
    let with = |more: &[Operation]| [&leaving, more].concat();
    assert_fine(with(&[left(20, 2), granted(30, 3, 2)]));
    assert_fine(with(&[left(20, 2), shut_out(30, 3), granted(40, 4, 2)]));
    assert_wrong(with(&[granted(20, 3, 2)]));
}

/// Readers and writers of a lock that keeps its promises, at random: what they see is always fine, and that one of them has lost its lock
/// would not be.
#[test]
fn histories_of_a_sound_group_are_fine() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let mut history = sound(&mut random);
        assert_fine(history.clone());
        // What overlaps the grant could have been too early.
        let is_after = |one: &Operation, granted: &Operation| {
            let is_grant = matches!(granted.outcome, Outcome::Acquired { .. });
            is_grant && granted.call.lock() == one.call.lock() && granted.end < one.start
        };
        let freed: Vec<_> = (0..history.len())
            .filter(|at| history[*at].outcome == Outcome::Released)
            .filter(|at| history.iter().any(|one| is_after(&history[*at], one)))
            .collect();
        let at = freed[random.usize(..freed.len())];
        history[at].outcome = Outcome::NotFound;
        assert_wrong(history);
    }
}

fn sound(random: &mut Rng) -> Vec<Operation> {
    let (mut now, mut fence, mut next) = (0, 0, 0);
    let (mut writer, mut readers) = (None, Vec::new());
    let mut history = Vec::new();
    for _ in 0..200 {
        now += random.i64(1..4);
        next += 1;
        let expires_at_ms = now + TTL_MS;
        let timed = (next, TTL_MS);
        let (call, outcome) = match random.u8(..10) {
            0..4 => {
                let (lock, ttl_ms) = timed;
                let outcome = match writer {
                    Some(_) => Outcome::Locked,
                    None => {
                        fence += u64::from(readers.is_empty());
                        readers.push(lock);
                        Outcome::Acquired {
                            fence,
                            expires_at_ms,
                        }
                    }
                };
                (Call::Join { lock, ttl_ms }, outcome)
            }
            4 => {
                let (lock, ttl_ms) = timed;
                let outcome = match (writer, readers.is_empty()) {
                    (Some(_), _) => Outcome::Locked,
                    (None, false) => Outcome::LockedByReaders,
                    (None, true) => {
                        fence += 1;
                        writer = Some(lock);
                        Outcome::Acquired {
                            fence,
                            expires_at_ms,
                        }
                    }
                };
                (Call::Acquire { lock, ttl_ms }, outcome)
            }
            5..9 => match (writer.take(), readers.len()) {
                (Some(lock), _) => (Call::Release { lock }, Outcome::Released),
                (None, 0) => (Call::IsLocked, Outcome::No),
                (None, count) => {
                    let lock = readers.swap_remove(random.usize(..count));
                    (Call::Release { lock }, Outcome::Released)
                }
            },
            _ => match readers.first() {
                Some(&lock) => (
                    Call::Extend {
                        lock,
                        ttl_ms: TTL_MS,
                    },
                    Outcome::Extended { expires_at_ms },
                ),
                None => (Call::Release { lock: 0 }, Outcome::NotFound),
            },
        };
        // As wide as several processes would see it. What one of them does with its lock comes one after the other.
        let (before, after) = (random.i64(0..2).min(now), random.i64(0..2));
        history.push(operation(now - before, now + after, call, outcome));
    }
    history
}
