//! Ends the wait of a waiter whose time is over while it stands in line.

use tokio::time::{Instant, sleep_until};

use super::{Turn, Waiter};
use crate::operation;
use crate::text::error::Error;
use crate::waiting::retry::{FailedAttempt, GRACE};
use crate::waiting::ticket::{LastTurn, Ticket};

impl Waiter {
    /// Lets the waiter ask for the last time, or ends its wait. In each line one waiter asks at a time, and the others end with its answer, so
    /// that not each of them has to ask. Whoever has to ask all the same has the rest of the grace for it.
    pub(super) async fn ends(&mut self, ticket: &mut Ticket) -> Result<Turn, Error> {
        let now = Instant::now();
        let over = self.limit().filter(|limit| *limit <= now);
        let (news, mut waited) = (ticket.news(), None);
        loop {
            match ticket.asks_at_last(over, waited)? {
                LastTurn::Asks => {
                    self.retry.spend_grace(now.elapsed());
                    self.hears_last_word(ticket);
                    return Ok(Turn::Asks { is_hinted: false });
                }
                LastTurn::Knows => break,
                LastTurn::Hears => tokio::select! {
                    biased;
                    () = news.notified() => waited = Some(now.elapsed()),
                    () = sleep_until(now + GRACE) => break,
                },
            }
        }
        let attempt = self.hears_last_word(ticket).unwrap_or_else(|| {
            let silence = operation::timed_out(self.backend.as_ref(), GRACE);
            let kind = silence.kind();
            self.failure.get_or_insert(silence);
            FailedAttempt::Error(kind)
        });
        let elapsed_ms = self.elapsed_ms().max(self.policy.timeout_ms);
        Err(self.give_up(attempt, elapsed_ms))
    }

    /// Takes over what the line knows: the store's last answer, or its failure. `None` if nobody in the line has asked yet.
    pub(super) fn hears_last_word(&mut self, ticket: &Ticket) -> Option<FailedAttempt> {
        if let Some(said) = ticket.busy() {
            let claim = self.request.claims.get(ticket.obstacle());
            self.obstacles.said(claim, said);
        }
        let attempt = match ticket.heard()? {
            Ok(()) => FailedAttempt::Locked,
            Err(error) => FailedAttempt::Error(self.failure.insert(error).kind()),
        };
        self.retry.hears(attempt);
        Some(attempt)
    }
}
