//! Watches whether a connection still gets answers.
//!
//! If a server vanished without closing the connection, calls would wait until TCP gives up, which takes
//! many minutes.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Watches one connection while calls wait.
#[derive(Default)]
pub(super) struct Liveness {
    watched: AtomicBool,
    /// Wakes the watcher when calls begin to wait, or when one must be answered soon.
    wake: Notify,
    /// Whether a test waits for something to be heard.
    is_tested: AtomicBool,
    heard: Notify,
}

impl Liveness {
    /// Notes that a call waits from now on.
    pub(super) fn sent(&self, is_urgent: bool) {
        let is_new = !self.watched.load(SeqCst) && !self.watched.swap(true, SeqCst);
        if is_new || is_urgent {
            self.wake.notify_one();
        }
    }

    /// Notes that something was received.
    pub(super) fn heard(&self) {
        if self.is_tested.load(SeqCst) {
            self.heard.notify_one();
        }
    }

    /// Completes when `has_heard` is true. It is asked whenever something was received.
    pub(super) async fn hears(&self, has_heard: impl Fn() -> bool) {
        self.is_tested.store(true, SeqCst);
        let _tested = Tested(&self.is_tested);
        while !has_heard() {
            self.heard.notified().await;
        }
    }

    /// Completes when the connection is lost, with the reason that `test` gives. The connection is tested when the time has come that
    /// `suspect_at` gives. Before that, `look` reads what was received while the reader was busy, so that only real silence is
    /// tested. While no calls wait, this sleeps and costs nothing.
    pub(super) async fn stops<T, F: Future<Output = Option<T>>>(
        &self,
        suspect_at: impl Fn() -> Option<Instant>,
        look: impl Fn(),
        test: impl Fn() -> F,
    ) -> T {
        loop {
            let Some(at) = suspect_at() else {
                self.watched.store(false, SeqCst);
                // A call that was sent just before the store above has not notified anybody, so look again.
                if suspect_at().is_none() {
                    self.wake.notified().await;
                }
                self.watched.store(true, SeqCst);
                continue;
            };
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.wake.notified() => continue,
            }
            look();
            // A server may be slow, so silence alone proves nothing.
            if suspect_at().is_some_and(|at| at <= Instant::now())
                && let Some(lost) = test().await
            {
                return lost;
            }
        }
    }
}

struct Tested<'a>(&'a AtomicBool);

impl Drop for Tested<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A connection on which a call may wait.
    #[derive(Default)]
    struct Connection {
        liveness: Liveness,
        suspect_at: Mutex<Option<Instant>>,
        tests: Mutex<Vec<Instant>>,
    }

    impl Connection {
        fn waits_until(&self, at: Option<Instant>, is_urgent: bool) {
            *self.suspect_at.lock().unwrap() = at;
            if at.is_some() {
                self.liveness.sent(is_urgent);
            }
        }

        /// Whether it is lost within `limit`.
        async fn stops(&self, limit: Duration, lost: bool) -> bool {
            let test = || async {
                self.tests.lock().unwrap().push(Instant::now());
                sleep(PATIENCE).await;
                lost.then_some(())
            };
            let suspect_at = || *self.suspect_at.lock().unwrap();
            let stops = self.liveness.stops(suspect_at, || {}, test);
            timeout(limit, stops).await.is_ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_long_leads_to_a_test() {
        let (connection, start) = (Connection::default(), Instant::now());
        connection.waits_until(Some(start + PATIENCE), false);
        assert!(connection.stops(PATIENCE * 9, true).await);
        assert_eq!(*connection.tests.lock().unwrap(), [start + PATIENCE]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_call_waits_nothing_is_tested() {
        let connection = Connection::default();
        assert!(!connection.stops(PATIENCE * 9, true).await);
        connection.waits_until(Some(Instant::now() + PATIENCE), false);
        connection.waits_until(None, false);
        assert!(!connection.stops(PATIENCE * 9, true).await);
        assert!(connection.tests.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_slow_is_not_gone() {
        let connection = Connection::default();
        connection.waits_until(Some(Instant::now() + PATIENCE), false);
        assert!(!connection.stops(PATIENCE * 9, false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_needed_soon_is_not_waited_for_as_others_are() {
        let (connection, start) = (Connection::default(), Instant::now());
        connection.waits_until(Some(start + PATIENCE * 4), false);
        let urgent = async {
            sleep(PATIENCE).await;
            connection.waits_until(Some(start + PATIENCE * 2), true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            stopped = connection.stops(PATIENCE * 9, true) => assert!(stopped),
            () = urgent => {}
        }
        assert_eq!(*connection.tests.lock().unwrap(), [start + PATIENCE * 2]);
    }
}
