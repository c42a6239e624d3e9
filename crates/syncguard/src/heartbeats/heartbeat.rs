//! A lock that extends itself, or several that were granted together: when it ends, and what is to be done next. Pure: the time is given.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::asking::hold::{Extender, Hold, Holder};
use crate::asking::outcome::{Absence, ExtendOutcome};
use crate::random;
use crate::text::error::{Error, ErrorKind};
use crate::values::time::{TIME_TOLERANCE_MS, TimeAuthority};
use crate::values::ttl::Ttl;

/// How long after a lock's end the answer to an extension may come that was sent before it. Half of the tolerance:
/// the other half is for the holder, who has to stop if it does not come.
const GRACE: Duration = Duration::from_millis(TIME_TOLERANCE_MS.unsigned_abs() / 2);

/// A try is this part of the time that is left after the one before. So there are some ten of them in any TTL, and
/// most of them near the end.
const RETRIES: u32 = 4;
/// After another server has become the one that keeps the locks, so long tries follow each other quickly, and how quickly.
const HURRY: Duration = Duration::from_secs(3);
const HURRIED_PAUSE: Duration = Duration::from_millis(200);
/// The shortest pause between two tries.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Longer than anybody waits, and short enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A lock that extends itself.
pub(super) struct Heartbeat {
    pub(super) extender: Arc<dyn Extender>,
    pub(super) holder: Arc<dyn Holder>,
    ttl: Ttl,
    every: Duration,
    /// Until when it may be held.
    limit: Option<Instant>,
    end: Instant,
    /// When to look at it again.
    next: Instant,
    /// Whether it lasts until `limit` already.
    is_final: bool,
    /// Extensions on their way, also those that the holder has asked for.
    calls: u32,
    /// Whether there was more than one at a time. The store may have carried them out in either order.
    overlapped: bool,
    /// Whether the last answer came after the end that it brought: then one more extension may follow at once.
    is_late: bool,
    /// Since when another server keeps the lock, until that one has extended it.
    hurried: Option<Instant>,
    /// What the last heartbeat failed with.
    failure: Option<Error>,
}

/// Why a lock is lost.
pub(super) struct Loss {
    pub(super) error: Error,
    /// Which of those that were granted together is gone, if the store has said so.
    pub(super) place: Option<usize>,
}

/// What is to be done for a lock.
pub(super) enum Step {
    /// Extend it by this TTL.
    Extend(Ttl),
    /// Nothing before [`Heartbeat::next`].
    Wait,
    /// Tell its holder that it is lost.
    Lose(Loss),
}

impl Heartbeat {
    /// A lock whose acquisition was sent at the time `sent`.
    pub(super) fn new(extender: Arc<dyn Extender>, hold: &Hold, ttl: Ttl, sent: Instant) -> Self {
        let limit = hold.auto_extend.max.map(|max| sent + max.min(LONGEST));
        let mut heartbeat = Self {
            extender,
            holder: Arc::clone(&hold.holder),
            ttl,
            every: hold.auto_extend.every.unwrap_or(ttl.as_duration() / 3),
            limit,
            end: sent,
            next: sent,
            is_final: false,
            calls: 0,
            overlapped: false,
            is_late: false,
            hurried: None,
            failure: None,
        };
        heartbeat.ends(end_of(sent, ttl));
        heartbeat
    }

    /// When to look at it again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether a heartbeat that is due at `next` may go with others at the time `now`.
    pub(super) fn is_due_soon(&self, now: Instant) -> bool {
        self.next <= now + self.every / 10 && self.next < self.end
    }

    /// When it ends, as far as is known.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Until when it is held, as things are: while a heartbeat is on its way, or when one more may follow at once, for a moment longer
    /// than until its end.
    pub(super) fn held_until(&self, is_beating: bool) -> Instant {
        match is_beating || self.is_late {
            true => self.answer_by(),
            false => self.end,
        }
    }

    /// Until when the answer to an extension may come that was sent before the end.
    pub(super) fn answer_by(&self) -> Instant {
        self.end + self.grace()
    }

    /// Another server keeps the lock from now on: what was sent before may be unknown to it.
    pub(super) fn hurry(&mut self, now: Instant) {
        if !self.is_final {
            self.hurried = Some(now);
            self.next = self.next.min(now);
        }
    }

    /// Decides at its time. It cannot be extended now if there is a `hindrance`.
    pub(super) fn step(&mut self, now: Instant, hindrance: Option<Error>) -> Step {
        let last = match take(&mut self.is_late) {
            true => self.answer_by(),
            false => self.end,
        };
        if now >= last {
            return Step::Lose(self.ended());
        }
        if self.is_final {
            self.next = self.end;
            return Step::Wait;
        }
        if let Some(reason) = hindrance {
            self.fail(now, now, reason);
            return Step::Wait;
        }
        let ttl = match self.limit {
            Some(limit) if limit <= end_of(now, self.ttl) => shorter(limit - now),
            _ => Some(self.ttl),
        };
        let Some(ttl) = ttl else {
            self.next = self.end;
            return Step::Wait;
        };
        Step::Extend(ttl)
    }

    /// An extension by `ttl` is about to be sent.
    pub(super) fn begin(&mut self, ttl: Ttl, sent: Instant) {
        self.calls += 1;
        self.overlapped |= self.calls > 1;
        // If it shortens the lock, the store may carry it out at any time from now on.
        let end = end_of(sent, ttl);
        if end < self.end {
            self.ends(end);
        }
    }

    /// What came of it; `None` if that is not known. Gives why the lock is lost, if it is.
    pub(super) fn finish(
        &mut self,
        ttl: Ttl,
        sent: Instant,
        answer: Option<Result<ExtendOutcome, &Error>>,
        now: Instant,
    ) -> Option<Loss> {
        match answer {
            Some(Ok(ExtendOutcome::Absent { lock, absence })) => {
                return Some(Loss {
                    error: gone(absence),
                    place: Some(lock),
                });
            }
            Some(Ok(ExtendOutcome::Extended { .. })) => {
                self.failure = None;
                let end = end_of(sent, ttl);
                self.ends(if self.overlapped {
                    end.min(self.end)
                } else {
                    end
                });
                self.is_late = self.calls == 1 && self.end <= now;
                if self.calls > 1 {
                    // It brought no later end, and neither does the next one before the other is answered.
                    self.next = self.next.max(self.retry_at(now, now));
                }
            }
            Some(Err(error)) => self.fail(sent, now, error.clone()),
            None => {}
        }
        self.calls -= 1;
        self.overlapped &= self.calls > 0;
        if let Some(since) = self.hurried {
            self.go_on_hurrying(since, sent, now, matches!(answer, Some(Ok(_))));
        }
        None
    }

    /// Sees to it that the server that keeps the lock since then is asked soon. The last extension was `sent` at that time.
    fn go_on_hurrying(&mut self, since: Instant, sent: Instant, now: Instant, is_done: bool) {
        let pause = match sent >= since {
            false => Duration::ZERO,
            true if is_done || now > since + HURRY => {
                self.hurried = None;
                return;
            }
            true => HURRIED_PAUSE,
        };
        if !self.is_final {
            self.next = self.next.min(now + pause);
        }
    }

    /// Sets the end, and with it the next heartbeat: as long before the end as after an extension by the TTL. A lock
    /// that its holder has extended for longer is left alone meanwhile.
    fn ends(&mut self, end: Instant) {
        // Only its first TTL can take it past the limit: then it is the holder's for less than the store keeps it.
        self.end = self.limit.map_or(end, |limit| end.min(limit));
        // TTLs are whole milliseconds.
        self.is_final = self
            .limit
            .is_some_and(|limit| limit - self.end < MILLISECOND);
        let lead = self
            .ttl
            .as_duration()
            .min(LONGEST)
            .saturating_sub(self.every);
        self.next = if self.is_final {
            self.end
        } else {
            self.end.checked_sub(lead).unwrap_or(self.end)
        };
    }

    /// Tries again after a while, at the latest at the end: then it is lost.
    fn fail(&mut self, tried: Instant, now: Instant, error: Error) {
        self.failure = Some(error);
        self.next = self.retry_at(tried, now);
    }

    /// When to try again what was tried at that time and has brought nothing. Waiting for an answer counts as a pause.
    fn retry_at(&self, tried: Instant, now: Instant) -> Instant {
        let left = self.end.saturating_duration_since(tried);
        // Without randomness the locks of many processes would be tried at the same times.
        let jitter = 0.75 + random::unit().unwrap_or(0.5) / 2.0;
        let next = tried + (left / RETRIES).mul_f64(jitter);
        self.end.min(next.max(now + SHORTEST_PAUSE))
    }

    fn grace(&self) -> Duration {
        match self.extender.time_authority() {
            TimeAuthority::Server => GRACE,
            // There the tolerance is for clocks that differ.
            TimeAuthority::Client => Duration::ZERO,
        }
    }

    fn ended(&self) -> Loss {
        let error = match &self.failure {
            Some(failure) => {
                let message = format!(
                    "the lock was lost: it could not be extended before its end: {}",
                    failure.message()
                );
                Error::new(ErrorKind::LockLost, message).with_source(failure.clone())
            }
            None if self.is_final => Error::new(
                ErrorKind::LockLost,
                "the lock was lost: it has been held for as long as autoExtend allows",
            ),
            None => Error::new(
                ErrorKind::LockLost,
                "the lock was lost: its end passed before it could be extended",
            ),
        };
        Loss { error, place: None }
    }
}

/// When a lock ends at the earliest that was granted or extended by a request sent at the time `sent`.
pub(crate) fn end_of(sent: Instant, ttl: Ttl) -> Instant {
    sent + ttl.as_duration().min(LONGEST)
}

fn shorter(left: Duration) -> Option<Ttl> {
    let ms = i64::try_from(left.as_millis()).ok()?;
    Ttl::from_millis(ms).ok()
}

fn gone(absence: Absence) -> Error {
    let message = match absence {
        Absence::Expired => "the lock was lost: it had expired when it was to be extended",
        Absence::NotFound => "the lock was lost: the store no longer has it",
    };
    Error::new(ErrorKind::LockLost, message)
}
