//! Gathers several locks for a waiter who has waited for them in vain.
//!
//! The waiter takes them one after another, in the order that all claims have, as ordinary locks that last for a window. It waits for
//! each as if it wanted nothing else. When it has all of them, one extension gives them the TTL that was asked for, and only then are
//! they granted. If the window is over before, the waiter gives back what it has, and leaves the locks alone for three times as long.
//!
//! Two waiters that gather never wait for each other in a circle, because both take locks in the same order. But each could have some of
//! the slots of one key that both need. So whoever takes more than one slot of a key first takes its *gate*: the lock on slot 0, which is
//! no slot.
//!
//! Readers of a key could pass a waiter for the whole key for ever, too. So it takes the gate, which no new reader passes, and then waits for
//! the key.

use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::gathered::{Gathered, PART_TTL, SHORTEST_CALL};
use super::pausing::sleep_if;
use super::{Granted, Waiter};
use crate::asking::request::AcquireRequest;
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;
use crate::waiting::retry::{FailedAttempt, RetryPolicy};

/// While a waiter gathers, it counts one retry in this time at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Gives the claims in the order in which they are taken. A gate comes before several slots of a key, and before a single claim, whose waiter
/// gathers only to get past readers.
fn with_gates(claims: &[Claim]) -> Result<Vec<Claim>, Error> {
    let mut all = Vec::with_capacity(claims.len());
    for same in claims.chunk_by(|one, other| one.key == other.key) {
        if let [first, ..] = same
            && (same.len() > 1 || claims.len() == 1)
        {
            all.push(Claim::new(first.key.gate())?);
        }
        all.extend_from_slice(same);
    }
    Ok(all)
}

impl Waiter {
    /// How long to gather, if it is time to do so.
    pub(super) fn gathers_for(&self) -> Option<Duration> {
        let left = self
            .limit()
            .map(|limit| limit.saturating_duration_since(Instant::now()));
        let has_time = left.is_none_or(|left| left > 2 * SHORTEST_CALL);
        let is_last = self.retry.is_last(self.elapsed_ms());
        let window = self.gathering.window(self.start.elapsed());
        window.filter(|_| has_time && !is_last)
    }

    /// Takes all locks of the request, one after another. `None` if it did not get all of them within the window; then it keeps none.
    pub(super) async fn gather(&mut self, window: Duration) -> Option<Granted> {
        let mut parts = Gathered::new(&self.backend, self.request.ttl, self.limit());
        let granted = match self.take_all(&mut parts, window).await {
            Some(()) => parts.confirm(&self.request).await,
            None => None,
        };
        // After the grant nothing may be awaited any more: a caller that is cancelled here would not know of its locks.
        if granted.is_none() {
            self.gathering.was_in_vain(parts.had_for());
            parts.give_back().await;
        }
        granted
    }

    async fn take_all(&mut self, parts: &mut Gathered, window: Duration) -> Option<()> {
        let longest_ttl = Ttl::from_duration(PART_TTL).ok()?;
        let mut ttl = Ttl::from_duration(window).ok()?.min(longest_ttl);
        // The gathering ends before the waiter's own time does, so that this is enough for a last attempt.
        let limit = self.limit();
        let limit = limit.and_then(|limit| limit.checked_sub(SHORTEST_CALL));
        let mut over = limit;
        let claims = with_gates(&self.request.claims).ok()?;
        let mut left = u32::try_from(claims.len()).ok()?;
        for claim in claims {
            let since = Instant::now();
            let granted = self.take(claim.clone(), ttl, parts, over).await?;
            left -= 1;
            parts.add(&claim, granted, ttl);
            let (waited, had_for) = (since.elapsed(), parts.had_for());
            let lasts = self.gathering.has_got_one(waited, had_for, window, left);
            if lasts > window {
                ttl = longest_ttl;
            }
            let until = Instant::now() + lasts.saturating_sub(had_for);
            over = Some(limit.map_or(until, |limit| limit.min(until)));
        }
        Some(())
    }

    /// Waits for one of the locks, and extends the parts meanwhile. `None` if the time is over before.
    async fn take(
        &mut self,
        claim: Claim,
        ttl: Ttl,
        parts: &mut Gathered,
        over: Option<Instant>,
    ) -> Option<Granted> {
        let since = Instant::now();
        let mut part = self.part(&claim, ttl).ok()?;
        let granted = {
            let mut waiting = part.waits();
            loop {
                let extended_at = parts.extended_at(ttl);
                let retry_at = self.retry_at.max(Instant::now() + SHORTEST_PAUSE);
                tokio::select! {
                    biased;
                    outcome = &mut waiting => break outcome.ok(),
                    () = sleep_if(over) => break None,
                    // Counts a retry of the whole request, which is not made while this gathers. The last one ends the gathering.
                    () = sleep_until(retry_at) => {
                        let is_last = self.retry.is_last(self.elapsed_ms());
                        if is_last || self.decide(FailedAttempt::Locked, false).is_err() {
                            break None;
                        }
                    }
                    () = sleep_if(extended_at) => {
                        if !parts.keep(ttl).await {
                            break None;
                        }
                    }
                }
            }
        };
        self.attempts += part.attempts;
        self.contended += part.contended;
        self.wakeups += part.wakeups;
        self.obstacles.stood(Some(&claim), since);
        if let Some(said) = part.obstacles.last_said() {
            self.obstacles.said(Some(&claim), said);
        }
        granted
    }

    /// Makes a waiter for this claim alone. It has the age of this one, and so the same place in the queues.
    fn part(&self, claim: &Claim, ttl: Ttl) -> Result<Self, Error> {
        let mut request = AcquireRequest::of(
            [Claim {
                lock_id: LockId::generate()?,
                ..claim.clone()
            }],
            ttl,
        )?;
        request.labels = self.request.labels.clone();
        let policy = RetryPolicy {
            max_retries: f64::INFINITY,
            timeout_ms: f64::INFINITY,
            ..self.policy
        };
        let mut part = Self::new(&self.backend, request, policy)?;
        part.number = self.number;
        part.gathering = self.gathering.of_part(&part.request.claims, part.start);
        Ok(part)
    }

    /// Boxed, because a waiter that gathers waits by means of other waiters.
    fn waits(&mut self) -> BoxFuture<'_, Result<Granted, Error>> {
        Box::pin(self.until_granted())
    }
}
