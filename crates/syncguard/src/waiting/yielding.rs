//! Lets other processes take a lock before this one takes it again.
//!
//! A process that releases a lock and asks for it again is a little faster than those that have to be told of the release. That wins nearly
//! every time, so one loop could keep a lock from all other processes. Therefore a process that got a lock from others, and has had it
//! for a while, leaves a few milliseconds before it asks again.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::hand_over::RIVALRY;
use crate::values::key::Key;

/// So long a process may take a lock again and again.
const TURN: Duration = Duration::from_millis(20);
/// So long it leaves the lock to others then: they hear of a release within a millisecond.
const PAUSE: Duration = Duration::from_millis(3);
/// With so many turns, those that are over are forgotten.
const MANY: usize = 100;

/// The turns that this process has with locks that other processes want, too.
#[derive(Default)]
pub(super) struct Turns {
    by_key: HashMap<Key, OwnTurn>,
    /// How many there are to be before those that are over are forgotten: twice as many as the last time were not.
    many: usize,
}

struct OwnTurn {
    /// When the turn begins; `None` while others have the lock.
    since: Option<Instant>,
    /// Until when others are taken to want the lock.
    rivals_until: Instant,
}

impl Turns {
    /// Notes that another process has a lock of this key.
    pub(super) fn found_held(&mut self, key: &Key, now: Instant) {
        if self.by_key.len() >= self.many.max(MANY) {
            self.by_key.retain(|_, turn| turn.rivals_until > now);
            self.many = 2 * self.by_key.len();
        }
        let turn = OwnTurn {
            since: None,
            rivals_until: now + RIVALRY,
        };
        self.by_key.insert(key.clone(), turn);
    }

    /// Notes that this process has got one.
    pub(super) fn granted(&mut self, key: &Key, now: Instant) {
        if !self.by_key.is_empty()
            && let Some(turn) = self.by_key.get_mut(key)
            && turn.since.is_none()
        {
            (turn.since, turn.rivals_until) = (Some(now), now + RIVALRY);
        }
    }

    /// Gives until when those who come now leave the lock to others, and begins another turn behind that if this one is over.
    pub(super) fn pause_until(&mut self, key: &Key, now: Instant) -> Option<Instant> {
        if self.by_key.is_empty() {
            return None;
        }
        let turn = self.by_key.get_mut(key)?;
        let since = turn.since?;
        if since > turn.rivals_until {
            self.by_key.remove(key);
            return None;
        }
        if now.saturating_duration_since(since) >= TURN {
            turn.since = Some(now + PAUSE);
        }
        turn.since.filter(|since| *since > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    /// The turns of a process that has just got the lock from another.
    fn given(now: Instant) -> Turns {
        let mut turns = Turns::default();
        turns.found_held(&key(), now);
        assert_eq!(turns.pause_until(&key(), now + RIVALRY), None);
        turns.granted(&key(), now);
        turns
    }

    #[test]
    fn nobody_pauses_for_a_lock_that_nobody_else_has_had() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        turns.granted(&key(), start);
        assert_eq!(turns.pause_until(&key(), start + TURN), None);
    }

    #[test]
    fn each_turn_ends_with_a_pause() {
        let (start, now) = (Instant::now(), Instant::now() + TURN);
        let mut turns = given(start);
        assert_eq!(turns.pause_until(&key(), start + TURN - MS), None);
        assert_eq!(turns.pause_until(&key(), now), Some(now + PAUSE));
        // All who come by then pause.
        assert_eq!(turns.pause_until(&key(), now + MS), Some(now + PAUSE));
        let now = now + PAUSE;
        turns.granted(&key(), now);
        assert_eq!(turns.pause_until(&key(), now + TURN - MS), None);
        let end = now + TURN;
        assert_eq!(turns.pause_until(&key(), end), Some(end + PAUSE));
    }

    #[test]
    fn one_who_holds_the_lock_for_long_pauses_as_well() {
        let start = Instant::now();
        let end = start + 10 * RIVALRY;
        let mut turns = given(start);
        assert_eq!(turns.pause_until(&key(), end), Some(end + PAUSE));
    }

    #[test]
    fn whoever_finds_the_lock_held_has_another_turn_later() {
        let start = Instant::now();
        let mut turns = given(start);
        turns.found_held(&key(), start + TURN);
        assert_eq!(turns.pause_until(&key(), start + TURN), None);
        turns.granted(&key(), start + 2 * TURN);
        assert_eq!(turns.pause_until(&key(), start + 2 * TURN), None);
    }

    #[test]
    fn others_who_do_not_take_the_lock_are_forgotten() {
        let start = Instant::now();
        let mut turns = given(start);
        let mut now = start;
        while now + PAUSE <= start + RIVALRY {
            now += TURN + PAUSE;
            assert!(turns.pause_until(&key(), now).is_some());
        }
        now += TURN + PAUSE;
        assert_eq!(turns.pause_until(&key(), now), None);
        assert!(turns.by_key.is_empty());
    }

    #[test]
    fn of_many_keys_those_are_kept_that_others_may_want() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        for number in 0..MANY {
            turns.found_held(&Key::new(&format!("k{number}")).unwrap(), start);
        }
        assert_eq!(turns.by_key.len(), MANY);
        turns.found_held(&key(), start);
        assert_eq!(turns.by_key.len(), MANY + 1);
        for number in 0..MANY {
            turns.found_held(
                &Key::new(&format!("later{number}")).unwrap(),
                start + RIVALRY,
            );
        }
        assert_eq!(turns.by_key.len(), MANY);
    }
}
