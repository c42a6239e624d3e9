//! What must be true always, and what must be possible. The names of the first are those of docs/concepts.md, "What always holds".

use stateright::Property;

use super::state::{Message, POLL, Phase, State};
use super::system::System;

/// The properties that are promised there, under its own words.
pub(crate) const PROMISED: [&str; 5] = [
    "A key has at most one live lock",
    "Each acquisition of a key gets a larger fence than all before it",
    "Only the lock id releases or extends a lock",
    "An expired lock is never revived",
    "After an error or a cancellation of an acquisition, and after a release that failed, nothing stays held beyond a background release or the TTL",
];
pub(crate) const A_WAITER_GETS_THE_LOCK: &str = "A waiter gets the lock";
pub(crate) const FOUND_BY_ITS_ID: &str = "A live lock is found by its lock id";

pub(crate) fn all() -> Vec<Property<System>> {
    let [one, larger, own, expired, nothing_left] = PROMISED;
    vec![
        Property::always(one, |_, state: &State| state.live_locks() <= 1),
        Property::always(larger, |_, state: &State| {
            !state.seen.fence_not_larger && stale_holders(state).all(|is_smaller| is_smaller)
        }),
        Property::always(own, |_, state: &State| !state.seen.foreign_change),
        Property::always(expired, |_, state: &State| !state.seen.revived),
        Property::always(nothing_left, |_, state: &State| !is_left_behind(state)),
        Property::always(A_WAITER_GETS_THE_LOCK, |system, state: &State| {
            let longest = match state.seen.was_disturbed {
                true => POLL + system.budget.delays,
                false => 0,
            };
            state.seen.waits_in_vain <= longest
        }),
        Property::always(FOUND_BY_ITS_ID, |_, state: &State| {
            let lock = state.lock.filter(|lock| state.counts_as_held(lock.ends));
            lock.is_none_or(|lock| state.index.contains(&lock.id))
        }),
        Property::always(
            "Whoever runs is told of the loss before another gets the lock",
            |_, state: &State| {
                let is_excused = state.seen.was_forced || state.seen.was_paused;
                is_excused || stale_holders(state).count() == 0
            },
        ),
        Property::sometimes("a stale holder exists", |_, state: &State| {
            stale_holders(state).count() > 0
        }),
        Property::sometimes("an undo races a new grant", |_, state: &State| {
            state.seen.undo_met_new_grant
        }),
        Property::sometimes(
            "a waiter gets the lock after waiting",
            |_, state: &State| state.seen.got_after_waiting,
        ),
        Property::sometimes(
            "a lock is granted after it was given up",
            |_, state: &State| {
                let lock = state.lock.filter(|lock| state.counts_as_held(lock.ends));
                lock.is_some_and(|lock| state.given_up_until(lock.id).is_some())
            },
        ),
        Property::sometimes(
            "a holder crashes and another gets the lock",
            |_, state: &State| {
                let crashed =
                    |client: u8| state.clients[usize::from(client)].phase == Phase::Crashed;
                let ended = state
                    .seen
                    .granted
                    .iter()
                    .any(|(id, ends)| crashed(id.client) && !state.counts_as_held(*ends));
                ended && state.lock.is_some_and(|lock| !crashed(lock.id.client))
            },
        ),
        Property::sometimes("an old index entry stays", |_, state: &State| {
            state.index.len() > 1
        }),
    ]
}

/// Those who believe to hold the lock while the store has given it to another; whether their fence is smaller.
fn stale_holders(state: &State) -> impl Iterator<Item = bool> {
    let lock = state.lock.filter(|lock| state.counts_as_held(lock.ends));
    let believed = state
        .clients
        .iter()
        .filter_map(|client| match client.phase {
            Phase::Holding { id, fence, .. } => Some((id, fence)),
            _ => None,
        });
    believed.filter_map(move |(id, fence)| {
        let lock = lock.filter(|lock| lock.id != id)?;
        Some(fence < lock.fence)
    })
}

/// Whether a lock is held that was given up, and that its client, which lives, does not release any more.
fn is_left_behind(state: &State) -> bool {
    let Some(lock) = state.lock.filter(|lock| state.counts_as_held(lock.ends)) else {
        return false;
    };
    let client = &state.clients[usize::from(lock.id.client)];
    let is_undone = client.undoing.iter().any(|undo| undo.id == lock.id)
        || state.messages.contains(&Message::Release {
            id: lock.id,
            is_undo: true,
        });
    let is_due = state
        .given_up_until(lock.id)
        .is_some_and(|until| state.now < until);
    is_due && !is_undone && client.phase != Phase::Crashed
}

impl State {
    fn given_up_until(&self, id: super::state::Id) -> Option<u8> {
        let mut given_up = self.seen.given_up.iter();
        given_up
            .find(|(other, _)| *other == id)
            .map(|(_, until)| *until)
    }
}
