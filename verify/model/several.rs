//! A model of several locks: sets of keys that overlap, and the slots of one key. All or nothing, the undo of a whole set, and
//! the wait of those who want what others hold a part of.
//!
//! A lock in itself is what the rest of this model is about. Here it has a holder, an end and a fence, and no index entry.

mod clients;
mod state;
mod system;

use std::collections::BTreeSet;

use stateright::{Checker, Expectation, HasDiscoveries, Property};

use self::state::{Budget, Phase, State};
use self::system::{Fault, System, Wants};
use super::check;

const AT_MOST_ONE: &str = "A lock has at most one live holder";
const AT_MOST_N: &str = "A key with slots has at most so many live holders";
const ALL_OR_NOTHING: &str = "Whoever was granted a set has all of it";
const TOGETHER: &str = "All locks of a set end at the same time";
const LARGER: &str = "Each lock is granted with a larger fence than before";
const NOTHING_LEFT: &str = "Nothing stays held that was given up or released";
const WAITS_EMPTY: &str = "Whoever waits holds nothing";
const A_WAITER_GETS_ALL: &str = "A waiter gets all that it wants";

fn properties() -> Vec<Property<System>> {
    vec![
        Property::always(AT_MOST_ONE, |_, state: &State| {
            (0..state.locks.len()).all(|place| state.live_at(place) <= 1)
        }),
        Property::always(AT_MOST_N, |system, state: &State| match system.wants {
            Wants::Keys(_) => true,
            Wants::Slots { count, .. } => state.live_holders() <= usize::from(count),
        }),
        Property::always(ALL_OR_NOTHING, |system, state: &State| {
            state.is_whole(system)
        }),
        Property::always(TOGETHER, |_, state: &State| state.ends_together()),
        Property::always(LARGER, |_, state: &State| !state.seen.fence_not_larger),
        Property::always(NOTHING_LEFT, |_, state: &State| !state.is_left_behind()),
        Property::always(WAITS_EMPTY, |_, state: &State| !state.waits_with_some()),
        Property::always(A_WAITER_GETS_ALL, |system, state: &State| {
            state.seen.waits_in_vain <= system.longest_wait(state)
        }),
        Property::sometimes(
            "one waits for a part of what it wants",
            |_, state: &State| state.seen.was_held_in_part,
        ),
        Property::sometimes("a set is granted after waiting", |_, state: &State| {
            state.seen.got_after_waiting
        }),
        Property::sometimes(
            "a set is granted after it was given up",
            |_, state: &State| state.seen.granted_in_vain,
        ),
        Property::sometimes(
            "the locks of one who has crashed end",
            |_, state: &State| {
                let crashed =
                    |client: u8| state.clients[usize::from(client)].phase == Phase::Crashed;
                let mut locks = state.locks.iter().flatten();
                locks.any(|lock| crashed(lock.id.client) && !state.counts_as_held(lock.ends))
            },
        ),
    ]
}

/// What may happen besides asking, holding and releasing.
const NOTHING: Budget = Budget {
    losses: 0,
    delays: 0,
    give_ups: 0,
    extends: 0,
    crashes: 0,
};

/// Keys 0 and 1, 1 and 0 the other way round, 1 and 2: each with the next in its way.
const OVERLAPPING: Wants = Wants::Keys(&[&[0, 1], &[1, 2], &[0]]);
const OPPOSITE: Wants = Wants::Keys(&[&[0, 1], &[0, 1]]);
const SLOTS: Wants = Wants::Slots {
    count: 2,
    takes: &[1, 1, 1],
};
const TAKES: Wants = Wants::Slots {
    count: 2,
    takes: &[2, 1],
};

fn system(wants: Wants, ticks: u8, budget: Budget) -> System {
    System {
        wants,
        ticks,
        budget,
        fault: None,
    }
}

/// Small worlds. Together they have all that can go wrong, in the pairs that matter.
fn systems() -> Vec<System> {
    let undo = Budget {
        give_ups: 1,
        losses: 1,
        delays: 1,
        ..NOTHING
    };
    let crash = Budget {
        crashes: 1,
        extends: 1,
        ..NOTHING
    };
    vec![
        system(OVERLAPPING, 3, NOTHING),
        system(OPPOSITE, 4, undo),
        system(OPPOSITE, 5, crash),
        system(SLOTS, 3, NOTHING),
        system(TAKES, 4, undo),
        system(TAKES, 5, crash),
    ]
}

#[test]
fn sets_and_slots_keep_the_promises_in_every_state() {
    let (mut states, mut seen) = (0, BTreeSet::new());
    for system in systems() {
        let checked = check(system, HasDiscoveries::AnyFailures);
        states += checked.unique_state_count();
        for (name, path) in checked.discoveries() {
            let properties = properties();
            let property = properties.iter().find(|one| one.name == name).unwrap();
            let is_example = matches!(property.expectation, Expectation::Sometimes);
            assert!(is_example, "{name}: {:?}", path.into_actions());
            seen.insert(name);
        }
    }
    assert!(states > 500_000, "{states} states");
    let interesting = properties().into_iter();
    let interesting = interesting.filter(|it| matches!(it.expectation, Expectation::Sometimes));
    assert_eq!(seen, interesting.map(|property| property.name).collect());
}

#[test]
fn each_mistake_about_sets_and_slots_breaks_the_promise_that_is_about_it() {
    let (mut gives_up, mut extends) = (NOTHING, NOTHING);
    gives_up.give_ups = 1;
    extends.extends = 1;
    let mistakes = [
        (
            Fault::GrantWithoutLast,
            AT_MOST_ONE,
            system(OVERLAPPING, 2, NOTHING),
        ),
        (
            Fault::GrantInPart,
            ALL_OR_NOTHING,
            system(OVERLAPPING, 2, NOTHING),
        ),
        (Fault::OneSlotMore, AT_MOST_N, system(SLOTS, 2, NOTHING)),
        (
            Fault::HeldSlotIsFree,
            AT_MOST_ONE,
            system(SLOTS, 2, NOTHING),
        ),
        (
            Fault::ReleaseInPart,
            NOTHING_LEFT,
            system(OPPOSITE, 2, NOTHING),
        ),
        (
            Fault::UndoInPart,
            NOTHING_LEFT,
            system(OPPOSITE, 3, gives_up),
        ),
        (Fault::ExtendInPart, TOGETHER, system(OPPOSITE, 4, extends)),
        (Fault::FenceOfFirstSlot, LARGER, system(SLOTS, 3, NOTHING)),
        (
            Fault::KeepsWhileWaiting,
            WAITS_EMPTY,
            system(OVERLAPPING, 2, NOTHING),
        ),
        (
            Fault::WakeOfOneSlot,
            A_WAITER_GETS_ALL,
            system(SLOTS, 3, NOTHING),
        ),
    ];
    for (fault, broken, system) in mistakes {
        // Without the mistake, the same world keeps the promise.
        for fault in [None, Some(fault)] {
            let enough = HasDiscoveries::AnyOf([broken].into());
            let checked = check(System { fault, ..system }, enough);
            let is_broken = checked.discovery(broken).is_some();
            assert_eq!(is_broken, fault.is_some(), "{fault:?}: {broken}");
        }
    }
}
