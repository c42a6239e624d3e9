//! When a waiter has to ask at the latest.

use std::time::Duration;

use tokio::time::Instant;

use super::{SLACK, Waiter};
use crate::waiting::retry::{Backoff, Wait};
use crate::waiting::waiter::LONGEST_TRUST;

impl Waiter {
    /// Whether some of its retries need not ask while it is told of releases.
    fn may_rely_on_messages(&self) -> bool {
        self.policy.wait != Wait::Poll && self.wants.iter().any(|want| want.slots == 0)
    }

    /// When it has to ask at the latest, having just learned that the lock ends at that time.
    pub(super) fn asks_by(&self, end: Instant) -> Instant {
        let now = Instant::now();
        let waits_for_slots = self.obstacle.is_some_and(|place| self.is_of_slots(place));
        let trusts = match self.may_rely_on_messages() && !waits_for_slots {
            true if self.policy.wait == Wait::NotifyOnly => return end,
            true => LONGEST_TRUST,
            false => Duration::ZERO,
        };
        end.min(now + trusts + self.longest_pause())
    }

    /// The longest pause that the rules for polling allow after so many attempts. Retries that have not asked have made it longer,
    /// too.
    pub(super) fn longest_pause(&self) -> Duration {
        match self.may_rely_on_messages() {
            true => self.pause_after(u32::MAX),
            false => self.pause_after(self.attempts + self.others.0),
        }
    }

    /// Whether it should have asked by now. If the machine stood still meanwhile, it may have given up an attempt after
    /// that, and then begun to wait.
    pub(super) fn is_late(
        &self,
        due: Instant,
        stalled: Instant,
        others_asked: Option<Instant>,
    ) -> bool {
        // What it asks then, and when, is between it and those who want the same.
        if self.may_gather() || self.shares_in_a_set() {
            return false;
        }
        let goes_on = |since: Instant| match since > self.asked_at {
            true if self.may_rely_on_messages() => since + self.longest_pause(),
            true => since + self.pause_after(self.attempts + self.others.0 + 1),
            false => since,
        };
        let others_asked = others_asked.map_or(due, goes_on);
        Instant::now() > due.max(goes_on(stalled)).max(others_asked) + SLACK
    }

    fn pause_after(&self, attempts: u32) -> Duration {
        let ms = match self.policy.backoff {
            Backoff::Fixed => self.policy.retry_delay_ms,
            Backoff::Exponential => self.policy.retry_delay_ms * f64::from(attempts.min(20)).exp2(),
        };
        let longest_ms = self
            .policy
            .max_retry_delay_ms
            .max(self.policy.retry_delay_ms);
        Duration::from_secs_f64(ms.min(longest_ms).min(1e7) / 1000.0)
    }
}
