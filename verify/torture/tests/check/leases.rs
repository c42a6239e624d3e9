//! What a lock may do and may not do, in short histories.

use super::*;

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
fn what_may_come_late_does_not_end_a_lock_before_its_time() {
    let short = |outcome| Operation {
        call: Call::Acquire {
            lock: 1,
            ttl_ms: 100,
        },
        outcome,
        ..granted(0, 1, 1)
    };
    let first = short(Outcome::Acquired {
        fence: 1,
        expires_at_ms: 100,
    });
    // It may take over the lock when that is dead, and be undone: then it is later than that.
    let late = Operation {
        outcome: Outcome::Unknown,
        ..granted(5, 9, 0)
    };
    let with = |next| vec![first.clone(), late.clone(), next];
    assert_fine(with(granted(100 + TOLERANCE_MS, 2, 9)));
    assert_wrong(with(granted(20, 2, 9)));
    assert_wrong(with(ask(20, Call::IsLocked, Outcome::No)));
    assert_wrong(with(release(20, 1, Outcome::NotFound)));
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
fn what_was_cut_off_on_several_servers_may_have_been_undone() {
    let cut = Operation {
        outcome: Outcome::Interrupted,
        ..granted(0, 1, 0)
    };
    let history = vec![cut, refused(10, 2), granted(20, 2, 2)];
    let spread = Bounds {
        is_spread: true,
        ..BOUNDS
    };
    assert!(check(history.clone(), spread).is_ok());
    assert_wrong(history);
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
