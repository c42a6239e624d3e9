//! How the wait of one ends whose time is over while it stands in line.

use tokio::time::{Instant, sleep_until};

use super::{Turn, Waiter};
use crate::operation;
use crate::text::error::Error;
use crate::waiting::retry::{FailedAttempt, GRACE};
use crate::waiting::ticket::{LastTurn, Ticket};

impl Waiter {
    /// Asks for the last time. Of all in one line, one does at a time, however many there are: the others hear its answer, and end with
    /// that. Whoever has to ask itself after that has the rest of the grace.
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

    /// Notes what those in its line know of the store, if it has answered them, or failed.
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
