//! When a lock has ended, as its holder can know.

use std::time::Duration;

use tokio::time::Instant;

use super::{Lock, Witness};
use crate::text::error::{Error, ErrorKind};
use crate::values::lock_id::LockId;

const GRACE: Duration = Duration::from_millis(500);

impl Lock {
    /// When its holder may say that it has ended, at the latest: by the last answer.
    pub(super) fn believed_end(&self) -> Instant {
        let answered = self.extensions.iter().filter(|call| call.was_answered);
        let last = answered.max_by_key(|call| call.done);
        let end = match last {
            Some(call) => call.sent + call.ttl.as_duration(),
            None => self.sent + self.ttl.as_duration(),
        };
        match self.held.as_ref().and_then(|(_, auto)| auto.as_ref()?.max) {
            Some(max) => end.min(self.sent + max),
            None => end,
        }
    }

    /// Whether its holder may say by now that it has ended: the store says so, its time is over, or may be, because of
    /// an extension that made it shorter and was not followed by another on its own.
    pub(super) fn may_be_lost(&self) -> bool {
        let now = Instant::now();
        let limit = self.held.as_ref().and_then(|(_, auto)| auto.as_ref()?.max);
        if self.absent.is_some() || limit.is_some_and(|max| self.sent + max <= now) {
            return true;
        }
        let mut ends = vec![self.sent + self.ttl.as_duration()];
        let mut busy_until: Option<Instant> = None;
        for (number, call) in self.extensions.iter().enumerate() {
            // What happens in one instant may overlap, and the order in which it was noted does not say.
            let is_alone = busy_until.is_none_or(|until| until < call.sent);
            let next = self.extensions.get(number + 1);
            let done = call.done.unwrap_or(now);
            let overlaps_next = next.is_some_and(|next| next.sent <= done);
            // A holder hears of a loss in a task of its own: the answer may have come in the same instant, after the loss.
            if is_alone && !overlaps_next && call.was_answered && done < now {
                ends.clear();
            }
            ends.push(call.sent + call.ttl.as_duration());
            busy_until = busy_until.max(Some(done));
        }
        ends.into_iter().any(|end| end <= now)
    }
}

impl Witness {
    /// Its holder lets go of all locks of the set: it releases them, drops them, or stops to care.
    pub(in crate::simulation) fn end(&mut self, lock_id: &LockId, is_dropped: bool) {
        for id in self.set(lock_id) {
            self.ends(id, is_dropped);
        }
    }

    fn ends(&mut self, id: usize, is_dropped: bool) {
        let now = Instant::now();
        let lock = &mut self.locks[id];
        lock.let_go = true;
        if is_dropped {
            lock.orphaned = Some(now);
        }
        if lock.ended.is_some() || lock.held.is_none() {
            return;
        }
        lock.ended = Some(now);
        if lock.told.is_none() {
            self.check_told_in_time(id);
        }
    }

    /// Its holder was told that it is lost, or another of the same set.
    pub(in crate::simulation) fn lost(&mut self, lock_id: &LockId, error: &Error) {
        let set = self.set(lock_id);
        if !set.iter().any(|id| self.locks[*id].may_be_lost()) {
            self.problem(format!(
                "the holder of {set:?} was told although it was extended in time"
            ));
        }
        let was_forced = set.iter().any(|id| self.locks[*id].forced);
        for id in set {
            self.is_lost(id, was_forced, error);
        }
    }

    fn is_lost(&mut self, id: usize, was_forced: bool, error: &Error) {
        let now = Instant::now();
        let is_calm = self.is_calm;
        let lock = &mut self.locks[id];
        if error.kind() != ErrorKind::LockLost {
            self.problem(format!("lock {id} was lost with an error of another kind"));
            return;
        }
        if lock.told.replace(now).is_some() {
            self.problem(format!("the holder of {id} was told twice"));
            return;
        }
        if lock.ended.is_some() {
            self.problem(format!("the holder of {id} was told after it had let go"));
            return;
        }
        let extends_itself = lock.held.as_ref().is_some_and(|(_, auto)| auto.is_some());
        let limit = lock.held.as_ref().and_then(|(_, auto)| auto.as_ref()?.max);
        if is_calm && extends_itself && limit.is_none() && !was_forced {
            self.problem(format!("lock {id} was lost although nothing was wrong"));
        }
        self.check_told_in_time(id);
    }

    fn check_told_in_time(&mut self, id: usize) {
        let lock = &self.locks[id];
        let mut due = lock.believed_end();
        let is_own = lock.held.as_ref().is_some_and(|(_, auto)| auto.is_none());
        if self.has_grace && !is_own {
            due += GRACE;
        }
        if let Some(absent) = lock.absent {
            due = due.min(absent);
        }
        let since = lock.held.as_ref().map_or(due, |(since, _)| *since);
        if self.is_late(due.max(since)) {
            let late = Instant::now() - due;
            self.problem(format!(
                "the holder of {id} was told {late:?} too late, or not at all"
            ));
        }
    }
}
