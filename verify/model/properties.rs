//! What must be true always, and what must be possible. The names of the first are those of docs/concepts.md, "What always holds".

use std::collections::BTreeMap;

use stateright::Property;

use super::state::{Id, Lock, Message, POLL, Phase, State, TOLERANCE};
use super::worlds::{KEY, OWN, System, Wants};

/// The properties that are promised there, under its own words.
pub(crate) const PROMISED: [&str; 5] = [
    "A key has at most one live lock",
    "Each acquisition of a key gets a larger fence than all before it",
    "Only the lock id releases or extends a lock",
    "An expired lock is never revived",
    "After a failed or cancelled acquisition, and after a failed release, nothing stays held beyond a background release or the TTL",
];
pub(crate) const A_WAITER_GETS_ALL: &str = "A waiter gets all that it wants";
pub(crate) const FOUND_BY_ITS_ID: &str = "A live lock is found by its lock id";
pub(crate) const TOLD: &str = "Whoever runs is told of the loss before another gets the lock";
pub(crate) const AT_MOST_N: &str = "A key with slots has at most so many live locks";
pub(crate) const ALL_OR_NOTHING: &str = "Whoever was granted a set has all of it";
pub(crate) const TOGETHER: &str = "All locks of a set end at the same time";
pub(crate) const WAITS_EMPTY: &str = "Whoever waits holds nothing";

pub(crate) const WRITES_ALONE: &str = "Nobody reads while another writes";
pub(crate) const GROUP_LASTS: &str = "A group lasts as long as the last of its readers";
pub(crate) const NOBODY_PASSES: &str = "No reader passes a writer who has the gate";

pub(crate) const HELD_IN_PART: &str = "one waits for a part of what it wants";
pub(crate) const AFTER_WAITING: &str = "a waiter gets the lock after waiting";
pub(crate) const IN_VAIN: &str = "a lock is granted after it was given up";
pub(crate) const AFTER_A_CRASH: &str = "a holder crashes and another gets the lock";
pub(crate) const PAST_READERS: &str = "a writer gets the key by its gate";

pub(crate) fn all() -> Vec<Property<System>> {
    let mut all = always();
    all.extend(sometimes());
    all
}

fn always() -> Vec<Property<System>> {
    let [one, larger, own, expired, nothing_left] = PROMISED;
    vec![
        Property::always(one, |_, state: &State| {
            (0..state.locks.len()).all(|place| state.granted_at(place) <= 1)
        }),
        Property::always(larger, |_, state: &State| {
            !state.seen.fence_not_larger && stale_locks(state).all(|is_smaller| is_smaller)
        }),
        Property::always(own, |_, state: &State| !state.seen.foreign_change),
        Property::always(expired, |_, state: &State| !state.seen.revived),
        Property::always(nothing_left, |_, state: &State| {
            !state.live().any(|lock| is_left_behind(state, lock.id))
        }),
        Property::always(A_WAITER_GETS_ALL, |system, state: &State| {
            let longest = match state.seen.was_disturbed {
                true => POLL + system.budget.delays,
                false => 0,
            };
            state.seen.waits_in_vain <= longest
        }),
        Property::always(FOUND_BY_ITS_ID, |_, state: &State| {
            state.live().all(|lock| state.index.contains(&lock.id))
        }),
        Property::always(TOLD, |_, state: &State| {
            let is_excused = state.seen.was_forced || state.seen.was_paused;
            is_excused || stale_locks(state).count() == 0
        }),
        Property::always(AT_MOST_N, |system, state: &State| match system.wants {
            Wants::Keys(_) | Wants::Shared(_) => true,
            Wants::Slots { count, .. } => {
                let all = (0..state.locks.len()).map(|place| state.granted_at(place));
                all.sum::<usize>() <= usize::from(count)
            }
        }),
        Property::always(ALL_OR_NOTHING, |system, state: &State| {
            let mut clients = state.clients.iter().enumerate();
            clients.all(|(number, client)| match &client.phase {
                Phase::Holding { fences, .. } => fences.len() == system.size_of(number),
                _ => true,
            })
        }),
        Property::always(TOGETHER, |_, state: &State| {
            let mut ends = BTreeMap::new();
            let mut locks = state.locks.iter().flatten();
            locks.all(|lock| *ends.entry(lock.id).or_insert(lock.ends) == lock.ends)
        }),
        Property::always(WAITS_EMPTY, |_, state: &State| !waits_with_some(state)),
        Property::always(WRITES_ALONE, |system, state: &State| {
            let mut readers = OWN..state.locks.len();
            let reads = |place| state.granted_at(place) > 0;
            !system.is_shared() || state.granted_at(KEY) == 0 || !readers.any(reads)
        }),
        Property::always(GROUP_LASTS, |system, state: &State| {
            let group = state.group().map(|group| (group.ends, group.fence));
            let last = state.readers().map(|reader| (reader.ends, reader.fence));
            !system.is_shared() || group == last.max()
        }),
        Property::always(NOBODY_PASSES, |_, state: &State| !state.seen.passed_gate),
    ]
}

fn sometimes() -> Vec<Property<System>> {
    vec![
        Property::sometimes("a stale holder exists", |_, state: &State| {
            stale_locks(state).count() > 0
        }),
        Property::sometimes("an undo races a new grant", |_, state: &State| {
            state.seen.undo_met_new_grant
        }),
        Property::sometimes(AFTER_WAITING, |_, state: &State| {
            state.seen.got_after_waiting
        }),
        Property::sometimes(IN_VAIN, |_, state: &State| {
            let given_up = |lock: &Lock| state.seen.given_up.get(&lock.id);
            let mut live = state.live();
            // Both say when they began by when they end.
            live.any(|lock| given_up(&lock).is_some_and(|until| *until < lock.ends + TOLERANCE))
        }),
        Property::sometimes(AFTER_A_CRASH, |_, state: &State| {
            let crashed = |id: Id| {
                let client = state.clients.get(usize::from(id.client));
                client.is_some_and(|client| client.phase == Phase::Crashed)
            };
            let mut granted = state.seen.granted.iter();
            granted.any(|(place, id, ends)| {
                let has_ended = crashed(*id) && !state.counts_as_held(*ends);
                has_ended && state.locks[*place].is_some_and(|lock| !crashed(lock.id))
            })
        }),
        Property::sometimes("an old index entry stays", |_, state: &State| {
            let mut index = state.index.iter();
            index.any(|id| state.owned(*id).is_empty())
        }),
        Property::sometimes(PAST_READERS, |_, state: &State| state.seen.got_past_readers),
        Property::sometimes(HELD_IN_PART, |_, state: &State| state.seen.was_held_in_part),
    ]
}

/// Locks that their holders believe to hold while the store has given them to others; whether the holder's fence is smaller.
fn stale_locks(state: &State) -> impl Iterator<Item = bool> {
    let holders = state
        .clients
        .iter()
        .filter_map(|client| match &client.phase {
            Phase::Holding { id, fences, .. } => Some((*id, fences)),
            _ => None,
        });
    holders.flat_map(move |(id, fences)| {
        fences.iter().filter_map(move |(place, fence)| {
            let is_own = |lock: &Lock| lock.id == id || lock.is_group() && lock.fence == *fence;
            let lock = state.live_at(*place).filter(|lock| !is_own(lock))?;
            Some(*fence < lock.fence)
        })
    })
}

/// Whether a lock that is held was given up or released, although its client lives and does not release it any more.
fn is_left_behind(state: &State, id: Id) -> bool {
    let Some(client) = state.clients.get(usize::from(id.client)) else {
        return false;
    };
    let release = |is_undo| Message::Release { id, is_undo };
    let is_undone = client.undoing.contains_key(&id)
        || state.messages.contains(&release(true))
        || state.messages.contains(&release(false));
    // A client that has a lock and is idle has given it up or released it: it does not ask again.
    client.phase == Phase::Idle && !is_undone
}

/// Whether somebody who waits has a part of what it last asked for.
fn waits_with_some(state: &State) -> bool {
    state.live().any(|lock| {
        let client = state.clients.get(usize::from(lock.id.client));
        client.is_some_and(|client| {
            let is_waiting = matches!(client.phase, Phase::Waiting { .. });
            is_waiting && lock.id.number + 1 == client.asked
        })
    })
}
