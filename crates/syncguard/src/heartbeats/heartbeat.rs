//! Decides for one grant when its lock ends and what to do next. This is pure: the time is given.

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

/// How long after a lock's end the answer may come to an extension that was sent before. This is half of the tolerance: the holder,
/// who has to stop if no answer comes, needs the other half.
const GRACE: Duration = Duration::from_millis(TIME_TOLERANCE_MS.unsigned_abs() / 2);

/// After a failure, the next try comes when this part of the time that is left has passed. So any TTL has some ten tries, and most of
/// them are near the end.
const RETRIES: u32 = 4;
/// For so long after another server has taken over, failed tries are repeated quickly.
const HURRY: Duration = Duration::from_secs(3);
/// The pause between such tries.
const HURRIED_PAUSE: Duration = Duration::from_millis(200);
/// The shortest pause between two tries.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Longer than anybody waits, and short enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The heartbeats of one lock, or of several that were granted together.
pub(super) struct Heartbeat {
    pub(super) extender: Arc<dyn Extender>,
    pub(super) holder: Arc<dyn Holder>,
    ttl: Ttl,
    every: Duration,
    /// The longest time until which the lock may be held.
    limit: Option<Instant>,
    end: Instant,
    /// When to look at the lock again.
    next: Instant,
    /// Whether the lock lasts until `limit` already.
    is_final: bool,
    /// How many extensions are on their way, with those that the holder has asked for.
    calls: u32,
    /// Whether extensions were on their way at the same time. The store may have carried them out in either order.
    overlapped: bool,
    /// Whether the last answer came only after the end that it brought. Then one more extension may follow at once.
    is_late: bool,
    /// When another server took over, until that one has extended the lock.
    hurried: Option<Instant>,
    /// The error of the last heartbeat, if it failed.
    failure: Option<Error>,
}

/// Why a lock is lost.
pub(super) struct Loss {
    pub(super) error: Error,
    /// Which of several locks is gone, if the store has said so.
    pub(super) place: Option<usize>,
}

/// What is to be done for a lock.
pub(super) enum Step {
    /// Extend the lock by this TTL.
    Extend(Ttl),
    /// Do nothing before [`Heartbeat::next`].
    Wait,
    /// Tell the holder that the lock is lost.
    Lose(Loss),
}

impl Heartbeat {
    /// Starts for a lock whose acquisition was sent at `sent`.
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

    /// When to look at the lock again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether the next heartbeat is due so soon after `now` that it may go with others.
    pub(super) fn is_due_soon(&self, now: Instant) -> bool {
        self.next <= now + self.every / 10 && self.next < self.end
    }

    /// When the lock ends, as far as is known.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Until when the lock counts as held. That is its end, and a moment longer while a heartbeat is on its way, or while one more may
    /// follow at once.
    pub(super) fn held_until(&self, is_beating: bool) -> Instant {
        match is_beating || self.is_late {
            true => self.answer_by(),
            false => self.end,
        }
    }

    /// Until when the answer may come to an extension that was sent before the end.
    pub(super) fn answer_by(&self) -> Instant {
        self.end + self.grace()
    }

    /// Makes the next heartbeat due at once, because another server may have taken over that does not know the last one.
    pub(super) fn hurry(&mut self, now: Instant) {
        if !self.is_final {
            self.hurried = Some(now);
            self.next = self.next.min(now);
        }
    }

    /// Decides what to do at `now`. If there is a `hindrance`, the lock cannot be extended now.
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
            Some(limit) if limit <= end_of(now, self.ttl) => Ttl::from_duration(limit - now).ok(),
            _ => Some(self.ttl),
        };
        let Some(ttl) = ttl else {
            self.next = self.end;
            return Step::Wait;
        };
        Step::Extend(ttl)
    }

    /// Notes that an extension by `ttl` is about to be sent.
    pub(super) fn begin(&mut self, ttl: Ttl, sent: Instant) {
        self.calls += 1;
        self.overlapped |= self.calls > 1;
        // The store may carry it out from now on, so a shorter end counts at once.
        let end = end_of(sent, ttl);
        if end < self.end {
            self.ends(end);
        }
    }

    /// Notes the answer to an extension, or `None` if nobody knows what became of it. Gives why the lock is lost, if it is.
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
                    // While another extension is on its way, this one brings no later end, and a further one would not either.
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

    /// Makes sure that the server that took over at `since` extends the lock soon. The last extension was sent at `sent`.
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

    /// Sets the end, and the next heartbeat as long before it as after any extension by the TTL. So a lock that its holder has extended
    /// for longer has no heartbeats for a while.
    fn ends(&mut self, end: Instant) {
        // Only the first TTL can go past the limit. Then the holder loses the lock before it ends in the store.
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

    /// Keeps the error, and sets the time of the next try. At the end at the latest, the lock is lost.
    fn fail(&mut self, tried: Instant, now: Instant, error: Error) {
        self.failure = Some(error);
        self.next = self.retry_at(tried, now);
    }

    /// When to try again after a try at `tried` that brought nothing. The time that it took counts as a part of the pause.
    fn retry_at(&self, tried: Instant, now: Instant) -> Instant {
        let left = self.end.saturating_duration_since(tried);
        // Without randomness, many processes would try at the same times.
        let jitter = 0.75 + random::unit().unwrap_or(0.5) / 2.0;
        let next = tried + (left / RETRIES).mul_f64(jitter);
        self.end.min(next.max(now + SHORTEST_PAUSE))
    }

    fn grace(&self) -> Duration {
        match self.extender.time_authority() {
            TimeAuthority::Server => GRACE,
            // On such a store, the tolerance is for clocks that differ.
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

/// The earliest time at which a lock can end that was granted or extended by a request sent at `sent`.
pub(crate) fn end_of(sent: Instant, ttl: Ttl) -> Instant {
    sent + ttl.as_duration().min(LONGEST)
}

fn gone(absence: Absence) -> Error {
    let message = match absence {
        Absence::Expired => "the lock was lost: it had expired when it was to be extended",
        Absence::NotFound => "the lock was lost: the store no longer has it",
    };
    Error::new(ErrorKind::LockLost, message)
}
