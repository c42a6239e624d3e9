//! A model of locks: their leases, fences and index entries, the undo of acquisitions that were given up, sets of keys and slots,
//! and the wake-up of those who wait. All states that a few clients can reach are visited, and what docs/concepts.md promises
//! holds in each.
//!
//! So that the model is known to find mistakes, some are put into it ([`Fault`]), and each must break the promise that is
//! about it.

mod clients;
mod properties;
mod readers;
mod state;
mod store;
mod system;
mod worlds;

use std::collections::BTreeSet;
use std::thread::available_parallelism;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use self::properties::{
    A_WAITER_GETS_ALL, AFTER_A_CRASH, AFTER_WAITING, ALL_OR_NOTHING, AT_MOST_N, FOUND_BY_ITS_ID,
    GROUP_LASTS, HELD_IN_PART, IN_VAIN, NOBODY_PASSES, PAST_READERS, PROMISED, TOGETHER,
    WAITS_EMPTY, WRITES_ALONE,
};
use self::worlds::{
    ALONE, BOTH, Fault, LATE_EXTENSION, NOTHING, OVERLAPPING, READ, READERS, READS, SAME, SLOTS,
    System, TWO, WRITERS, World, of_one_lock, of_readers, of_several_locks, system,
};

/// Visits the states of a world on all cores.
fn check(system: System, enough: HasDiscoveries) -> impl Checker<System> {
    let cores = available_parallelism().map_or(1, usize::from);
    let checker = system.checker().threads(cores).finish_when(enough);
    checker.spawn_bfs().join()
}

/// Visits all states of these worlds, in which every promise must hold, and gives what was seen that makes locks difficult.
fn visit<const N: usize>(worlds: [World; N]) -> BTreeSet<&'static str> {
    let (interesting, mut seen) = (interesting(), BTreeSet::new());
    for world in worlds {
        let checked = check(world.system, HasDiscoveries::AnyFailures);
        for (name, path) in checked.discoveries() {
            let is_example = interesting.contains(name);
            assert!(
                is_example,
                "{}: {name}: {:?}",
                world.name,
                path.into_actions()
            );
            seen.insert(name);
        }
        let counts = (checked.unique_state_count(), checked.state_count());
        assert_eq!(counts, (world.states, world.steps), "{}", world.name);
    }
    seen
}

/// What must be possible.
fn interesting() -> BTreeSet<&'static str> {
    let all = properties::all().into_iter();
    let interesting = all.filter(|it| matches!(it.expectation, Expectation::Sometimes));
    interesting.map(|property| property.name).collect()
}

#[test]
fn the_promises_hold_in_every_state_of_one_lock() {
    let mut wanted = interesting();
    wanted.remove(HELD_IN_PART);
    wanted.remove(PAST_READERS);
    assert_eq!(visit(of_one_lock()), wanted);
}

#[test]
fn the_promises_hold_in_every_state_of_sets_and_slots() {
    let wanted = [HELD_IN_PART, AFTER_WAITING, IN_VAIN, AFTER_A_CRASH];
    assert!(visit(of_several_locks()).is_superset(&wanted.into()));
}

#[test]
fn the_promises_hold_in_every_state_of_readers_and_writers() {
    let wanted = [PAST_READERS, AFTER_WAITING, IN_VAIN, AFTER_A_CRASH];
    assert!(visit(of_readers()).is_superset(&wanted.into()));
}

#[test]
fn each_mistake_breaks_the_promise_that_is_about_it() {
    let [one, larger, own, expired, nothing_left] = PROMISED;
    let (mut gives_up, mut slow, mut crash) = (NOTHING, NOTHING, NOTHING);
    let (mut forgets, mut extends, mut loses) = (NOTHING, NOTHING, NOTHING);
    gives_up.give_ups = 1;
    slow.delays = 2;
    crash.crashes = 1;
    forgets.forgets = 1;
    extends.extends = 1;
    loses.losses = 1;
    let late = LATE_EXTENSION;
    let waiter = A_WAITER_GETS_ALL;
    let found = FOUND_BY_ITS_ID;
    #[rustfmt::skip]
    let mistakes = [
        (Fault::UndoByKey, own, system(TWO, 3, gives_up)),
        (Fault::UndoOnce, nothing_left, system(TWO, 3, gives_up)),
        (Fault::ReleaseOnce, nothing_left, system(TWO, 3, loses)),
        (Fault::FenceAfterGrant, larger, system(TWO, 3, NOTHING)),
        (Fault::FenceWithoutTime, larger, system(TWO, 3, forgets)),
        (Fault::ReleaseUnchecked, own, system(TWO, 3, slow)),
        (Fault::ExtendExpired, expired, system(ALONE, 5, late)),
        (Fault::ExpiryIgnored, waiter, system(TWO, 4, crash)),
        (Fault::NoTolerance, one, system(TWO, 3, NOTHING)),
        (Fault::WakeWithoutTry, waiter, system(TWO, 3, NOTHING)),
        (Fault::NoIndexEntry, found, system(TWO, 3, NOTHING)),
        (Fault::GrantWithoutLast, one, system(OVERLAPPING, 2, NOTHING)),
        (Fault::GrantInPart, ALL_OR_NOTHING, system(OVERLAPPING, 2, NOTHING)),
        (Fault::OneSlotMore, AT_MOST_N, system(SLOTS, 2, NOTHING)),
        (Fault::HeldSlotIsFree, one, system(SLOTS, 2, NOTHING)),
        (Fault::ReleaseInPart, nothing_left, system(SAME, 2, NOTHING)),
        (Fault::UndoInPart, nothing_left, system(SAME, 3, gives_up)),
        (Fault::ExtendInPart, TOGETHER, system(SAME, 4, extends)),
        (Fault::FenceOfFirstSlot, larger, system(SLOTS, 3, NOTHING)),
        (Fault::KeepsWhileWaiting, WAITS_EMPTY, system(OVERLAPPING, 2, NOTHING)),
        (Fault::WakeOfOneSlot, waiter, system(SLOTS, 3, NOTHING)),
        (Fault::WriteBesideReaders, WRITES_ALONE, system(BOTH, 2, NOTHING)),
        (Fault::JoinEnded, expired, system(READ, 4, NOTHING)),
        (Fault::GroupEndsEarly, GROUP_LASTS, system(READERS, 3, NOTHING)),
        (Fault::GroupStays, GROUP_LASTS, system(READERS, 2, NOTHING)),
        (Fault::JoinPastGate, NOBODY_PASSES, system(READERS, 2, NOTHING)),
        (Fault::GateStays, nothing_left, system(BOTH, 2, NOTHING)),
        (Fault::GateIsNotTold, waiter, system(WRITERS, 3, NOTHING)),
        (Fault::ExtendExpired, expired, system(READS, 5, late)),
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

#[test]
fn the_promises_are_those_of_the_documents() {
    let concepts = include_str!("../../docs/concepts.md");
    let (_, invariants) = concepts.split_once("## What always holds").unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let invariants = words(invariants);
    for (number, promise) in PROMISED.iter().enumerate() {
        let line = format!("{}. {promise}", number + 1);
        assert!(invariants.contains(&line), "{line}");
    }
}
