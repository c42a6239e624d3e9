//! Decides which waiter hears first of a release by this process.
//!
//! Where the store tells of releases, all processes hear of one at the same time, and the process that releases has no
//! advantage. But while no other process seems to want the lock, waiting for that message would be in vain: then the next
//! waiter of this process asks right behind the release. From time to time all have the same chance, to find out.

use std::time::Duration;

use tokio::time::Instant;

/// A lock may be handed over within this process for so long before all processes have the same chance again.
const LONGEST: Duration = Duration::from_millis(250);
/// For so long after another process had the lock, this one expects that it wants the lock again.
pub(super) const RIVALRY: Duration = Duration::from_secs(1);
/// After a hand-over, the message of the release may come so long after the next grant.
pub(crate) const LATE_MESSAGE: Duration = Duration::from_millis(10);

/// Keeps what is known of the holders of one lock, for as long as somebody in this process waits for it.
#[derive(Default)]
pub(super) struct HandOver {
    /// When a waiter of this process got the lock, if it still has it.
    held_since: Option<Instant>,
    /// Whether the last release went to the next waiter of this process.
    is_handed_over: bool,
    /// When all processes last had the same chance.
    opened: Option<Instant>,
    /// Until when another process is expected to want the lock.
    rivals_until: Option<Instant>,
    /// How many messages of slots that were handed over are still to come.
    late_messages: u64,
    /// When they come no more.
    late_until: Option<Instant>,
}

impl HandOver {
    /// Notes that a waiter of this process has got the lock.
    pub(super) fn granted(&mut self, now: Instant) {
        self.held_since = Some(now);
    }

    /// Notes that the lock was found held. If no waiter of this process has it, another process does; gives whether that is so.
    pub(super) fn found_held(&mut self, now: Instant) -> bool {
        let is_rival = self.held_since.is_none();
        if is_rival {
            self.rivals_until = Some(now + RIVALRY);
        }
        is_rival
    }

    /// Notes that this process releases the lock, on a store that tells of it. Gives whether the next waiter is to ask without waiting
    /// for that message.
    pub(super) fn releases(&mut self, now: Instant) -> bool {
        let has_rivals = self.rivals_until.is_some_and(|until| now < until);
        let was_open = self.opened.is_some_and(|opened| now - opened < LONGEST);
        self.is_handed_over = !has_rivals && was_open;
        if !self.is_handed_over {
            self.opened = Some(now);
        }
        self.is_handed_over
    }

    /// Notes that a slot was handed over, and that the store tells of its release.
    pub(super) fn slot_handed_over(&mut self, now: Instant) {
        self.forget_late_messages(now);
        self.late_messages += 1;
        self.late_until = Some(now + LATE_MESSAGE);
    }

    /// Takes so many messages, which come now. Gives how many of them are not about slots that were handed over.
    pub(super) fn news_of_slots(&mut self, messages: u64, now: Instant) -> u64 {
        self.forget_late_messages(now);
        let late = messages.min(self.late_messages);
        self.late_messages -= late;
        messages - late
    }

    fn forget_late_messages(&mut self, now: Instant) {
        if self.late_until.is_none_or(|until| until <= now) {
            self.late_messages = 0;
        }
    }

    /// Notes that no waiter of this process has the lock any more.
    pub(super) fn freed(&mut self) {
        self.held_since = None;
    }

    /// Whether a message that comes now tells of the release after which the lock was handed over, and so of nothing new.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let just_granted = |since| now - since < LATE_MESSAGE;
        self.is_handed_over && self.held_since.is_some_and(just_granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Lets the next waiter get the lock when the one before has released it. Gives whether it was handed over.
    fn goes_on(hand_over: &mut HandOver, now: Instant) -> bool {
        hand_over.freed();
        let is_handed_over = hand_over.releases(now);
        hand_over.granted(now);
        is_handed_over
    }

    #[test]
    fn all_hear_of_the_first_release_and_of_one_each_quarter_of_a_second() {
        let (start, mut hand_over) = (Instant::now(), HandOver::default());
        hand_over.granted(start);
        assert!(!goes_on(&mut hand_over, start));
        for ms in [0, 5, 10, 249] {
            assert!(goes_on(&mut hand_over, start + MS * ms), "{ms}");
        }
        assert!(!goes_on(&mut hand_over, start + MS * 250));
        assert!(goes_on(&mut hand_over, start + MS * 251));
    }

    #[test]
    fn while_another_process_wants_the_lock_it_is_never_handed_over() {
        let (start, mut hand_over) = (Instant::now(), HandOver::default());
        hand_over.found_held(start);
        hand_over.granted(start);
        for ms in [0, 5, 10, 999] {
            assert!(!goes_on(&mut hand_over, start + MS * ms), "{ms}");
        }
        // All have heard of the one at 999 ms.
        assert!(goes_on(&mut hand_over, start + MS * 1000));
    }

    #[test]
    fn a_lock_that_is_found_held_by_this_process_makes_no_rivals() {
        let (start, mut hand_over) = (Instant::now(), HandOver::default());
        hand_over.granted(start);
        hand_over.found_held(start);
        assert!(!goes_on(&mut hand_over, start));
        assert!(goes_on(&mut hand_over, start + MS));
    }

    #[test]
    fn the_message_of_a_release_comes_late_after_a_hand_over() {
        let (start, mut hand_over) = (Instant::now(), HandOver::default());
        hand_over.granted(start);
        goes_on(&mut hand_over, start);
        assert!(!hand_over.is_late(start), "all heard of that one");
        goes_on(&mut hand_over, start);
        assert!(hand_over.is_late(start + MS * 9));
        // A message that comes later is of something else, such as a forced release.
        assert!(!hand_over.is_late(start + MS * 10));
        hand_over.freed();
        assert!(!hand_over.is_late(start));
    }

    #[test]
    fn of_slots_as_many_messages_come_late_as_were_handed_over() {
        let (start, mut hand_over) = (Instant::now(), HandOver::default());
        assert_eq!(hand_over.news_of_slots(1, start), 1);
        for _ in 0..3 {
            hand_over.slot_handed_over(start);
        }
        assert_eq!(hand_over.news_of_slots(2, start + MS * 9), 0);
        assert_eq!(hand_over.news_of_slots(2, start + MS * 9), 1);
        hand_over.slot_handed_over(start);
        let too_late = start + MS * 10;
        assert_eq!(hand_over.news_of_slots(1, too_late), 1);
    }
}
