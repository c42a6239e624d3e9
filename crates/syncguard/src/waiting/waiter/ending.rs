//! How the wait of one ends whose time is over while it stands in line.

use tokio::time::{Instant, sleep_until};

use super::gathered::SHORTEST_CALL;
use super::{Turn, Waiter};
use crate::operation;
use crate::text::error::Error;
use crate::waiting::retry::FailedAttempt;
use crate::waiting::ticket::{LastTurn, Ticket};

impl Waiter {
    /// Asks for the last time. Of all in one line, one does at a time, however many there are: the others hear its answer, and end with
    /// that.
    pub(super) async fn ends(&mut self, ticket: &mut Ticket) -> Result<Turn, Error> {
        let now = Instant::now();
        let over = self.limit().filter(|limit| *limit <= now);
        let (news, mut has_waited) = (ticket.news(), false);
        loop {
            match ticket.asks_at_last(over, has_waited)? {
                LastTurn::Asks => {
                    self.hears_last_word(ticket);
                    return Ok(Turn::Asks { is_hinted: false });
                }
                LastTurn::Knows => break,
                LastTurn::Hears => tokio::select! {
                    biased;
                    () = news.notified() => has_waited = true,
                    () = sleep_until(now + SHORTEST_CALL) => break,
                },
            }
        }
        let attempt = self.hears_last_word(ticket).unwrap_or_else(|| {
            let silence = operation::timed_out(self.backend.as_ref(), SHORTEST_CALL);
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
