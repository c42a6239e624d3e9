//! Whether a session still gets answers: when something last arrived on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Why a session was ended from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It got no answer although the server could be reached.
    Silent,
    /// A reply was too large.
    Oversized,
}

/// What is known about one session. Times are milliseconds since one moment, which is the same for all sessions
/// of a pool.
pub(super) struct Liveness {
    start: Instant,
    /// When the current statement was sent; zero if there is none.
    busy_since: AtomicU64,
    /// When bytes last arrived.
    heard: AtomicU64,
    /// Bytes that have arrived of the current reply.
    received: AtomicUsize,
    end: AtomicU8,
    /// The server process of the session if the session is ours alone, else zero.
    process: AtomicI32,
    driver: OnceLock<AbortHandle>,
}

/// A statement without a complete answer, and how long nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) busy_since: u64,
    /// Since when nothing has arrived.
    pub(super) since: u64,
}

impl Liveness {
    pub(super) fn new(start: Instant) -> Self {
        let new = Self {
            start,
            busy_since: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            received: AtomicUsize::new(0),
            end: AtomicU8::new(0),
            process: AtomicI32::new(0),
            driver: OnceLock::new(),
        };
        new.hear();
        new
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Notes that the bytes from now on are another reply: something was sent, or a notification has arrived.
    pub(super) fn expect_reply(&self) {
        self.received.store(0, Relaxed);
    }

    /// Notes that bytes have arrived. Gives how many there are of the current reply.
    pub(super) fn receive(&self, count: usize) -> usize {
        self.hear();
        self.received.fetch_add(count, Relaxed) + count
    }

    fn hear(&self) {
        self.heard.store(self.now().max(1), Relaxed);
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// Notes that a statement is sent.
    pub(super) fn begin(&self) {
        self.busy_since.store(self.now().max(1), Relaxed);
    }

    /// Notes that its answer has arrived, or that nobody waits for it any more.
    pub(super) fn rest(&self) {
        self.busy_since.store(0, Relaxed);
    }

    /// The current statement, if there is one.
    pub(super) fn silence(&self) -> Option<Silence> {
        let busy_since = self.busy_since.load(Relaxed);
        (busy_since > 0).then(|| Silence {
            busy_since,
            since: busy_since.max(self.heard()),
        })
    }

    pub(super) fn know(&self, process: Option<i32>, driver: AbortHandle) {
        self.process.store(process.unwrap_or(0), Relaxed);
        let _ = self.driver.set(driver);
    }

    pub(super) fn process(&self) -> Option<i32> {
        Some(self.process.load(Relaxed)).filter(|process| *process != 0)
    }

    /// Notes why the session ends.
    pub(super) fn finish(&self, end: End) {
        self.end.store(end as u8 + 1, Relaxed);
    }

    /// Ends the session now. Whoever waits for an answer gets an error.
    pub(super) fn cut_off(&self) {
        self.finish(End::Silent);
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }

    pub(super) fn end(&self) -> Option<End> {
        [End::Silent, End::Oversized]
            .into_iter()
            .find(|end| *end as u8 + 1 == self.end.load(Relaxed))
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
