//! Lets other processes take a lock before this one takes it again.
//!
//! A process that releases a lock and asks for it again is a little faster than those that have to be told of the release. That wins nearly
//! every time, so one loop could keep a lock from all other processes. Therefore a process that got a lock from others, and has had it
//! for a while, leaves a few milliseconds before it asks again.
//!
//! All who wait hear of a release at the same time, and who asks first is chance: of five processes, one was passed thirty times in a row. So
//! where several hold a lock for long, each leaves it to others for a moment, the shorter, the longer ago it had the lock itself. Nobody does
//! so while a lock goes to and fro between two.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::hand_over::RIVALRY;
use crate::values::key::Key;

/// So long a process may take a lock again and again.
const TURN: Duration = Duration::from_millis(20);
/// So long it leaves the lock to others then: they hear of a release within a millisecond.
const PAUSE: Duration = Duration::from_millis(3);
/// A process that has had the lock in the last turn leaves it to others for that share of the time for which it was held, and for so long at
/// most.
const SHARE_OF_HOLD: u32 = 100;
pub(crate) const LONGEST_WAY: Duration = Duration::from_millis(40);
/// Timers have a resolution of a millisecond.
const SHORTEST_WAY: Duration = Duration::from_millis(1);
/// For each turn of another since this process had the lock, the way is shorter by an eighth.
const TURNS_OF_WAY: f64 = 8.0;
/// A lock that is held for less counts for no turn: whoever begins to listen is told at once, too.
const SHORTEST_TURN: Duration = Duration::from_millis(100);
/// A process gives way for so many turns after it was passed.
const TURNS_AFTER: u32 = 32;
/// With so many turns, those that are over are forgotten.
const MANY: usize = 100;
/// Those in which this process was passed are kept for so long.
const KEPT: Duration = Duration::from_secs(60);

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
    /// How often others have released the lock since this process had it.
    told: u32,
    /// When this process last got the lock.
    had: Option<Instant>,
    /// When this process last released it.
    released: Option<Instant>,
    /// When this process last heard that another had got the lock for which it had waited, too.
    passed: Option<Instant>,
}

impl OwnTurn {
    /// How long this process leaves to others a lock that was held for that long.
    fn way(&self, held: Duration, now: Instant) -> Duration {
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        let was_passed = since(self.passed).is_some_and(|passed| passed < TURNS_AFTER * held);
        let Some(had) = since(self.had).filter(|_| was_passed) else {
            return Duration::ZERO;
        };
        let turns = had.div_duration_f64(held);
        longest_way(held).mul_f64((1.0 - turns / TURNS_OF_WAY).max(0.0))
    }
}

fn longest_way(held: Duration) -> Duration {
    LONGEST_WAY.min(held / SHARE_OF_HOLD)
}

impl Turns {
    /// Notes that another process has a lock of this key.
    pub(super) fn found_held(&mut self, key: &Key, now: Instant) {
        if self.by_key.len() >= self.many.max(MANY) {
            let was_passed = |turn: &OwnTurn| turn.passed.is_some_and(|at| now < at + KEPT);
            self.by_key
                .retain(|_, turn| turn.rivals_until > now || was_passed(turn));
            self.many = 2 * self.by_key.len();
        }
        let rivals_until = now + RIVALRY;
        let new = || OwnTurn {
            since: None,
            rivals_until,
            told: 0,
            had: None,
            released: None,
            passed: None,
        };
        let turn = self.by_key.entry(key.clone()).or_insert_with(new);
        (turn.since, turn.rivals_until) = (None, rivals_until);
    }

    /// Notes that this process has got one.
    pub(super) fn granted(&mut self, key: &Key, now: Instant) {
        if !self.by_key.is_empty()
            && let Some(turn) = self.by_key.get_mut(key)
        {
            if turn.since.is_none() {
                (turn.since, turn.rivals_until) = (Some(now), now + RIVALRY);
            }
            (turn.had, turn.told) = (Some(now), 0);
        }
    }

    /// Notes that this process releases one.
    pub(super) fn released(&mut self, key: &Key, now: Instant) {
        if !self.by_key.is_empty()
            && let Some(turn) = self.by_key.get_mut(key)
        {
            turn.released = Some(now);
        }
    }

    /// Notes that the store tells of the release of a lock that was held for that long. Gives until when this process leaves it to others.
    pub(super) fn gives_way(&mut self, key: &Key, held: Duration, now: Instant) -> Option<Instant> {
        if self.by_key.is_empty() {
            return None;
        }
        let turn = self.by_key.get_mut(key)?;
        if turn.since.is_none() && held >= SHORTEST_TURN {
            turn.told = turn.told.saturating_add(1);
        }
        if turn.told > 1 {
            turn.passed = Some(now);
        }
        let way = turn.way(held, now);
        (way >= SHORTEST_WAY).then(|| now + way)
    }

    /// Gives until when those who come now leave the lock to others, and begins another turn behind that if this one is over.
    pub(super) fn pause_until(&mut self, key: &Key, now: Instant) -> Option<Instant> {
        if self.by_key.is_empty() {
            return None;
        }
        let turn = self.by_key.get_mut(key)?;
        let since = turn.since?;
        if since > turn.rivals_until {
            // Of those who hold it for long, it stays known who had it when.
            if turn.passed.is_none() {
                self.by_key.remove(key);
            }
            return None;
        }
        if now.saturating_duration_since(since) >= TURN {
            // Who comes back later than that does not take it from anybody who has waited.
            let released = turn.released.filter(|released| now < *released + RIVALRY);
            let held = released.map(|released| released.saturating_duration_since(since));
            turn.since = Some(now + PAUSE.max(longest_way(held.unwrap_or_default())));
        }
        turn.since.filter(|since| *since > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

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
        turns.released(&key(), end);
        assert_eq!(turns.pause_until(&key(), end), Some(end + LONGEST_WAY));
    }

    /// The turns of a process that has got the lock after so many others had it.
    fn given_after(others: u32, now: Instant) -> Turns {
        let mut turns = Turns::default();
        turns.found_held(&key(), now);
        for _ in 0..others {
            assert_eq!(turns.gives_way(&key(), S, now), None, "it never had it");
        }
        turns.granted(&key(), now);
        turns
    }

    #[test]
    fn of_several_processes_each_gives_way_for_as_long_as_it_had_the_lock_lately() {
        let start = Instant::now();
        let (mut turns, mut now) = (given_after(2, start), start);
        for eighths in (1..8).rev() {
            now += S;
            turns.found_held(&key(), now);
            let until = turns.gives_way(&key(), S, now);
            assert_eq!(until, Some(now + S / 100 * eighths / 8));
        }
        assert_eq!(turns.gives_way(&key(), S, now + S), None);
    }

    #[test]
    fn whoever_has_just_had_it_pauses_longer_than_all_who_give_way() {
        let start = Instant::now();
        let (mut turns, now) = (given_after(2, start), start + S);
        turns.released(&key(), now);
        assert_eq!(turns.pause_until(&key(), now), Some(now + S / 100));
        let way = given_after(2, start).gives_way(&key(), S, now).unwrap();
        assert!(way < now + S / 100);
    }

    #[test]
    fn who_comes_back_later_pauses_for_a_moment() {
        let start = Instant::now();
        let (mut turns, end) = (given(start), start + 10 * S);
        turns.released(&key(), start + 5 * S);
        assert_eq!(turns.pause_until(&key(), end), Some(end + PAUSE));
    }

    #[test]
    fn those_who_come_while_it_is_held_do_not_make_it_forget() {
        let start = Instant::now();
        let mut turns = given_after(2, start);
        for ms in [1200, 1300, 1400, 1900] {
            turns.pause_until(&key(), start + ms * MS);
        }
        let end = start + 2 * S;
        turns.released(&key(), end);
        let way = turns.gives_way(&key(), 2 * S, end);
        assert_eq!(way, Some(end + S / 50 * 7 / 8));
    }

    #[test]
    fn nobody_gives_way_for_a_lock_that_goes_to_and_fro_between_two() {
        let start = Instant::now();
        let mut turns = given_after(1, start);
        assert_eq!(turns.gives_way(&key(), S, start + 2 * S), None);
    }

    #[test]
    fn a_lock_that_is_held_for_moments_goes_to_whoever_asks_first() {
        let start = Instant::now();
        let mut turns = given_after(2, start);
        assert_eq!(turns.gives_way(&key(), 5 * MS, start + 10 * MS), None);
        assert_eq!(turns.gives_way(&key(), 90 * MS, start + 180 * MS), None);
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
