//! What a waiter wants, and what it may be doing for that.

use std::time::Duration;

use tokio::time::Instant;

use super::lines::Want;
use super::{SLACK, Waiter};
use crate::waiting::hand_over::LATE_MESSAGE;
use crate::waiting::yielding::LONGEST_WAY;

impl Waiter {
    /// Whether it may have begun to gather: it takes its place in other lines then, or in none.
    pub(super) fn may_gather(&self) -> bool {
        let may = |after| self.came + after <= Instant::now() + SLACK;
        self.policy.waits() && self.gathers_after.is_some_and(may)
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asks_until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether its time is over: it asks once more then, wherever it stands.
    pub(super) fn is_over(&self) -> bool {
        let time = Duration::try_from_secs_f64(self.policy.timeout_ms / 1000.0);
        time.is_ok_and(|time| Instant::now() + SLACK >= self.came + time)
    }

    /// Whether it may wait for what has that name.
    pub(super) fn may_wait_for(&self, name: &str) -> bool {
        match self.waits_for() {
            Some(want) => want.name == name,
            None => self.wants(name),
        }
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        self.wants.iter().any(|want| want.name == name)
    }

    pub(super) fn waits_for(&self) -> Option<&Want> {
        self.wants.get(self.obstacle?)
    }

    /// Whether it wants to share one of several keys. Others who share it may have asked because of the same message.
    pub(super) fn shares_in_a_set(&self) -> bool {
        self.wants.len() > 1 && self.wants.iter().any(Want::is_shared)
    }

    pub(super) fn is_of_slots(&self, place: usize) -> bool {
        self.wants[place].slots > 0
    }

    /// How late it may ask after the store has told it of a release: it may be taken for that of a slot which this process has handed over,
    /// and a key is left to other processes.
    pub(super) fn late_message(&self, place: usize) -> Duration {
        match self.is_of_slots(place) {
            true => LATE_MESSAGE,
            false => LONGEST_WAY,
        }
    }
}
