//! A model of one lock: its lease, its fence, its index entry, the undo of acquisitions that were given up, and the wake-up of
//! those who wait. All states that a few clients can reach are visited, and what docs/concepts.md promises holds in each.
//!
//! So that the model is known to find mistakes, some are put into it ([`Fault`]), and each must break the promise that is
//! about it.

mod clients;
mod properties;
mod several;
mod state;
mod system;

use std::collections::BTreeSet;
use std::hash::Hash;
use std::thread::available_parallelism;

use stateright::{Checker, DiscoveryClassification, Expectation, HasDiscoveries, Model};

use self::properties::{A_WAITER_GETS_THE_LOCK, FOUND_BY_ITS_ID, PROMISED};
use self::state::Budget;
use self::system::{Fault, System};

/// What may happen besides asking, holding and releasing.
const NOTHING: Budget = Budget {
    losses: 0,
    delays: 0,
    pauses: 0,
    crashes: 0,
    forces: 0,
    extends: 0,
    give_ups: 0,
    forgets: 0,
};

fn system(clients: u8, ticks: u8, budget: Budget) -> System {
    System {
        clients,
        ticks,
        budget,
        fault: None,
    }
}

/// Small worlds. Together they have all that can go wrong, in the pairs that matter.
fn systems() -> [System; 5] {
    let undo = Budget {
        delays: 1,
        give_ups: 1,
        losses: 1,
        ..NOTHING
    };
    let pause = Budget {
        pauses: 1,
        extends: 1,
        ..NOTHING
    };
    let force = Budget {
        crashes: 1,
        forces: 1,
        forgets: 1,
        ..NOTHING
    };
    [
        system(2, 5, undo),
        system(2, 5, pause),
        system(2, 5, force),
        system(3, 3, NOTHING),
        system(1, 5, LATE_EXTENSION),
    ]
}

/// Messages take long, and one of them may be an extension.
const LATE_EXTENSION: Budget = Budget {
    delays: 5,
    extends: 1,
    ..NOTHING
};

/// Visits the states of a model on all cores.
fn check<M>(model: M, enough: HasDiscoveries) -> impl Checker<M>
where
    M: Model<State: Clone + Hash + PartialEq + Send + Sync, Action: Clone + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let cores = available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(cores).finish_when(enough);
    checker.spawn_bfs().join()
}

#[test]
fn the_promises_hold_in_every_state() {
    let (mut states, mut seen) = (0, BTreeSet::new());
    for system in systems() {
        let checked = check(system, HasDiscoveries::AnyFailures);
        states += checked.unique_state_count();
        for (name, path) in checked.discoveries() {
            let class = checked.discovery_classification(name);
            let is_example = matches!(class, DiscoveryClassification::Example);
            assert!(is_example, "{name}: {:?}", path.into_actions());
            seen.insert(name);
        }
    }
    assert!(states > 200_000, "{states} states");
    // All that makes a lock difficult has happened.
    let properties = properties::all();
    let interesting = properties
        .iter()
        .filter(|property| matches!(property.expectation, Expectation::Sometimes));
    let interesting: BTreeSet<_> = interesting.map(|property| property.name).collect();
    assert_eq!(seen, interesting);
}

#[test]
fn each_mistake_breaks_the_promise_that_is_about_it() {
    let [one, larger, own, expired, nothing_left] = PROMISED;
    let (mut gives_up, mut slow, mut crash, mut forgets) = (NOTHING, NOTHING, NOTHING, NOTHING);
    gives_up.give_ups = 1;
    slow.delays = 2;
    crash.crashes = 1;
    forgets.forgets = 1;
    let mistakes = [
        (Fault::UndoByKey, own, system(2, 3, gives_up)),
        (Fault::UndoOnce, nothing_left, system(2, 3, gives_up)),
        (Fault::FenceAfterGrant, larger, system(2, 3, NOTHING)),
        (Fault::FenceWithoutTime, larger, system(2, 3, forgets)),
        (Fault::ReleaseUnchecked, own, system(2, 3, slow)),
        (Fault::ExtendExpired, expired, system(1, 5, LATE_EXTENSION)),
        (
            Fault::ExpiryIgnored,
            A_WAITER_GETS_THE_LOCK,
            system(2, 4, crash),
        ),
        (Fault::NoTolerance, one, system(2, 3, NOTHING)),
        (
            Fault::WakeWithoutTry,
            A_WAITER_GETS_THE_LOCK,
            system(2, 3, NOTHING),
        ),
        (Fault::NoIndexEntry, FOUND_BY_ITS_ID, system(2, 3, NOTHING)),
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
