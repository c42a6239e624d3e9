//! The walk decides as a search through all orders does.

use proptest::prelude::*;
use torture::lease::{State, Window};

use super::*;

/// A lock with this TTL is dead before what comes late must have come.
const SHORT_MS: i64 = 50;

fn calls() -> impl Strategy<Value = Call> {
    let lock = 1..4_u64;
    let timed = (lock.clone(), prop_oneof![Just(TTL_MS), Just(SHORT_MS)]);
    prop_oneof![
        timed
            .clone()
            .prop_map(|(lock, ttl_ms)| match is_reader(lock) {
                true => Call::Join { lock, ttl_ms },
                false => Call::Acquire { lock, ttl_ms },
            }),
        lock.clone().prop_map(|lock| Call::Release { lock }),
        timed
            .clone()
            .prop_map(|(lock, ttl_ms)| Call::Extend { lock, ttl_ms }),
        timed.prop_map(|(number, ttl_ms)| Call::AcquireUnseen { number, ttl_ms }),
        Just(Call::ForceRelease),
        Just(Call::IsLocked),
        Just(Call::LookUpKey),
        lock.prop_map(|lock| Call::LookUpLock { lock }),
    ]
}

fn is_reader(lock: u64) -> bool {
    lock > 1
}

/// What a call of that kind may be told, in a history that lasts for some milliseconds or until locks are dead.
fn outcomes(call: Call, start: i64, fence: u64) -> Vec<Outcome> {
    let found = found(fence, TTL_MS);
    match call {
        Call::Acquire { ttl_ms, .. } => vec![
            Outcome::Acquired {
                fence,
                expires_at_ms: start + ttl_ms,
            },
            Outcome::Locked,
            Outcome::LockedByReaders,
            Outcome::Unknown,
        ],
        Call::Join { ttl_ms, .. } => vec![
            Outcome::Acquired {
                fence,
                expires_at_ms: start + ttl_ms,
            },
            Outcome::Locked,
        ],
        // Of readers, what is unknown is not searched through.
        Call::Release { lock } if is_reader(lock) => vec![Outcome::Released, Outcome::NotFound],
        Call::Release { .. } => vec![
            Outcome::Released,
            Outcome::Expired,
            Outcome::NotFound,
            Outcome::Unknown,
        ],
        Call::Extend { lock, ttl_ms } => {
            let extended = Outcome::Extended {
                expires_at_ms: start + ttl_ms,
            };
            match is_reader(lock) {
                true => vec![extended, Outcome::NotFound],
                false => vec![extended, Outcome::NotFound, Outcome::Unknown],
            }
        }
        Call::ForceRelease => vec![Outcome::Yes, Outcome::No, Outcome::Unknown],
        Call::IsLocked => vec![Outcome::Yes, Outcome::No],
        Call::LookUpKey | Call::LookUpLock { .. } | Call::LookUpUndone { .. } => {
            vec![found, Outcome::NotFound]
        }
        Call::AcquireUnseen { .. } | Call::ReleaseUnseen { .. } => vec![Outcome::Unknown],
        // Nobody calls these.
        Call::Lose { .. } | Call::Forget | Call::Sweep => vec![Outcome::Yes],
    }
}

prop_compose! {
    fn any_operation()(
        call in calls(),
        start in prop_oneof![
            0..12_i64,
            SHORT_MS + TOLERANCE_MS..SHORT_MS + TOLERANCE_MS + 12,
            dead(0)..dead(0) + 12,
        ],
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
            readers_ms: None,
            group_ms: 0,
            is_left_in_steps: false,
        };
        let has_effect = state
            .clone()
            .after(operation.call, operation.outcome, window)
            .is_some_and(|after| explains(history, &rest, after));
        let is_unknown = operation.outcome == Outcome::Unknown;
        is_first && (has_effect || (is_unknown && explains(history, &rest, state.clone())))
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
        let shares = history.iter().any(|one| matches!(one.call, Call::Join { .. }));
        let is_fine = check(history, BOUNDS).is_ok();
        // What readers do does not move the clock of the walk.
        prop_assert!(is_fine == expected || is_fine && shares);
    }
}
