//! Passes the answer of an extension on to the locks that it is about.

use std::sync::Arc;

use tokio::time::Instant;

use super::locks::Shared;
use super::members::Members;
use crate::asking::outcome::ExtendOutcome;
use crate::clock;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// An extension on its way. If this is dropped without an answer, nobody knows what became of it.
pub(crate) struct Extending {
    shared: Arc<Shared>,
    /// The leads of the grants that it is about.
    leads: Batch<LockId>,
    /// The locks that it extends.
    lock_ids: Batch<LockId>,
    ttl: Ttl,
    sent: Instant,
    is_done: bool,
}

impl Extending {
    pub(super) fn new(
        shared: &Arc<Shared>,
        leads: Batch<LockId>,
        lock_ids: Batch<LockId>,
        ttl: Ttl,
        sent: Instant,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            leads,
            lock_ids,
            ttl,
            sent,
            is_done: false,
        }
    }

    /// Notes the answer, and tells the holders.
    pub(crate) fn done(mut self, answer: &Result<ExtendOutcome, Error>) {
        self.is_done = true;
        self.note(Some(answer));
    }

    fn note(&self, answer: Option<&Result<ExtendOutcome, Error>>) {
        for lead in &self.leads {
            let finished = self.shared.lock().change(lead, |entry| {
                let answer = answer.and_then(|answer| self.answer_for(&entry.members, answer));
                let (ttl, sent, now) = (self.ttl, self.sent, clock::now());
                let loss = entry.heartbeat.finish(ttl, sent, answer, now);
                let extended = match answer {
                    Some(Ok(ExtendOutcome::Extended { expires_at_ms })) => Some(expires_at_ms),
                    _ => None,
                };
                (loss, extended, Arc::clone(&entry.heartbeat.holder))
            });
            let Some((loss, extended, holder)) = finished else {
                continue;
            };
            self.shared.changed.notify_one();
            if let Some(loss) = loss {
                self.shared.lose(lead, loss);
            } else if let Some(expires_at_ms) = extended {
                holder.extended(expires_at_ms);
            }
        }
    }

    /// What the answer means for one grant. `None` if only some of its locks were extended, or if the lock that is gone does not
    /// belong to it any more.
    fn answer_for<'a>(
        &self,
        members: &Members,
        answer: &'a Result<ExtendOutcome, Error>,
    ) -> Option<Result<ExtendOutcome, &'a Error>> {
        match answer {
            Ok(ExtendOutcome::Absent { lock, absence }) => {
                let lock = members.place(self.lock_ids.get(*lock)?)?;
                let absence = *absence;
                Some(Ok(ExtendOutcome::Absent { lock, absence }))
            }
            Ok(extended) => members.are_among(&self.lock_ids).then_some(Ok(*extended)),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for Extending {
    fn drop(&mut self) {
        if !self.is_done {
            self.note(None);
        }
    }
}
