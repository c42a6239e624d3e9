//! The pauses of a waiter between two questions.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{PauseEnd, Waiter};
use crate::waiting::retry::Wait;
use crate::waiting::ticket::Ticket;

impl Waiter {
    /// When the time of the waiter is over, if it has a limit.
    pub(super) fn limit(&self) -> Option<Instant> {
        let limit = Duration::try_from_secs_f64(self.policy.timeout_ms / 1000.0).ok()?;
        self.start.checked_add(limit)
    }

    /// Waits until something changes in the line, or the wait is over.
    pub(super) async fn wait_behind(&self, ticket: &mut Ticket) -> PauseEnd {
        let news = ticket.news();
        tokio::select! {
            biased;
            () = sleep_if(self.limit()) => PauseEnd::Over,
            () = self.backend.work().closing() => PauseEnd::Over,
            () = news.notified() => PauseEnd::Changed,
        }
    }

    /// Watches the lock that stood in the way until the next retry is due. Ends earlier if the lock ends by itself or may have been freed,
    /// if a waiter behind would have asked by now, were it alone, if something has changed in the line, or if the backend is being
    /// closed.
    pub(super) async fn pause(&self, ticket: &mut Ticket) -> PauseEnd {
        let claim = self.request.claims.get(ticket.obstacle());
        let watch = || self.backend.watch(claim?);
        let (news, watch) = (ticket.news(), ticket.listen(self.backend.lane(), watch));
        let free_at = ticket.free_at();
        let relies = self.policy.wait != Wait::Poll && free_at.is_some() && ticket.is_told();
        let early = [
            free_at,
            ticket.others_ask_at(relies),
            ticket.looks_again_at(),
        ];
        let early = early.into_iter().flatten().min();
        let (until, end) = match early.filter(|early| *early < self.retry_at) {
            Some(early) => (early, PauseEnd::Early),
            None => (self.retry_at, PauseEnd::Retry),
        };
        // A time that has passed is left out: a waiter with too little time left for the gate would look again and again.
        let gate_at = self.gathering.gate_at(self.start);
        let gate_at = gate_at.filter(|at| *at > Instant::now());
        let told = async {
            match &watch {
                Some(watch) => watch.freed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            times = told => match ticket.is_news(times) {
                true => {
                    if let Some(way) = ticket.gives_way() {
                        sleep_until(way.min(until)).await;
                    }
                    PauseEnd::Freed
                }
                false => PauseEnd::Changed,
            },
            () = sleep_if(gate_at) => PauseEnd::Changed,
            () = sleep_until(until) => end,
            () = self.backend.work().closing() => PauseEnd::Over,
            () = news.notified() => PauseEnd::Changed,
        }
    }
}

/// Completes at this time. Never completes if there is none.
pub(super) async fn sleep_if(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
