//! When a lock has ended, as its holder can know.

use tokio::time::Instant;

use super::Lock;

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
