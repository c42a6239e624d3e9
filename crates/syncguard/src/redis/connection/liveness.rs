//! Whether a connection still gets answers.
//!
//! If a server vanished without closing the connection, calls would wait until TCP gives up, which takes
//! many minutes.

use std::future::Future;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// Counts the calls and the answers of one connection.
#[derive(Default)]
pub(super) struct Liveness {
    sent: AtomicU64,
    answered: AtomicU64,
    watched: AtomicBool,
    wake: Notify,
}

impl Liveness {
    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, SeqCst);
        if !self.watched.load(SeqCst) && !self.watched.swap(true, SeqCst) {
            self.wake.notify_one();
        }
    }

    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    /// How many calls were sent, and how many of them were answered.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.sent.load(SeqCst), self.answered.load(Relaxed))
    }

    /// Completes when the connection is lost: calls wait, no answer has come for `patience`, also not while whoever reads
    /// was busy (`look` reads), and `is_alive` says no as well. While nothing is sent, it sleeps and costs nothing.
    pub(super) async fn stops<F: Future<Output = bool>>(
        &self,
        patience: Duration,
        look: impl Fn(),
        is_alive: impl Fn() -> F,
    ) {
        loop {
            self.wake.notified().await;
            loop {
                let (sent, answered) = self.read();
                sleep(patience).await;
                if self.read().1 == answered {
                    look();
                }
                let now = self.read();
                // Calls whose callers gave up are never counted as answered, and a server may be slow, so
                // silence alone proves nothing: ask.
                if now.1 == answered
                    && sent > answered
                    && !is_alive().await
                    && self.read().1 == answered
                {
                    return;
                }
                if now == (sent, answered) {
                    self.watched.store(false, SeqCst);
                    // A call that was sent just before this line has not notified anybody.
                    if self.read().0 == sent {
                        break;
                    }
                    self.watched.store(true, SeqCst);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::time::{Instant, timeout};

    const PATIENCE: Duration = Duration::from_secs(1);

    async fn stops_within(liveness: &Liveness, limit: Duration, alive: bool) -> bool {
        let stops = liveness.stops(PATIENCE, || {}, || async move { alive });
        timeout(limit, stops).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_call_tells() {
        let liveness = Liveness::default();
        liveness.sent();
        let start = Instant::now();
        assert!(stops_within(&liveness, PATIENCE * 9, false).await);
        assert!(start.elapsed() <= PATIENCE * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_with_nothing_to_say_is_left_alone() {
        let liveness = Liveness::default();
        assert!(!stops_within(&liveness, PATIENCE * 9, false).await);
        liveness.sent();
        liveness.answered();
        assert!(!stops_within(&liveness, PATIENCE * 9, false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_when_asked_is_slow_and_not_gone() {
        let liveness = Liveness::default();
        liveness.sent();
        assert!(!stops_within(&liveness, PATIENCE * 9, true).await);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_after_many_answers_tells() {
        let liveness = Arc::new(Liveness::default());
        let busy = Arc::clone(&liveness);
        let load = tokio::spawn(async move {
            for _ in 0..50 {
                busy.sent();
                sleep(PATIENCE / 10).await;
                busy.answered();
            }
            // Given up by their callers, which is no answer.
            busy.sent();
        });
        let stops = liveness.stops(PATIENCE, || {}, || async { false });
        let start = Instant::now();
        timeout(PATIENCE * 20, stops).await.unwrap();
        let silent_for = start.elapsed() - PATIENCE * 5;
        assert!(silent_for <= PATIENCE * 2, "{silent_for:?}");
        load.await.unwrap();
    }
}
