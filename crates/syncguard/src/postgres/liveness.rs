//! When a session was last heard of.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Why a session was ended from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It did not answer while the server was there.
    Silent,
    /// Its answer had no end.
    Oversized,
}

/// What is known of one session. Times are milliseconds since the same moment for all sessions.
pub(super) struct Liveness {
    start: Instant,
    /// Since when a statement is under way; zero if none is.
    busy_since: AtomicU64,
    /// When the last bytes came.
    heard: AtomicU64,
    end: AtomicU8,
    /// The server's process, where the session is one's own; zero where it is not.
    process: AtomicI32,
    driver: OnceLock<AbortHandle>,
}

/// A statement under way, as far as it has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) busy_since: u64,
    /// Since when nothing has come.
    pub(super) since: u64,
}

impl Liveness {
    pub(super) fn new(start: Instant) -> Self {
        let new = Self {
            start,
            busy_since: AtomicU64::new(0),
            heard: AtomicU64::new(0),
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

    /// Bytes have come.
    pub(super) fn hear(&self) {
        self.heard.store(self.now().max(1), Relaxed);
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// A statement goes out.
    pub(super) fn begin(&self) {
        self.busy_since.store(self.now().max(1), Relaxed);
    }

    /// Its answer is there, or nobody waits for it.
    pub(super) fn rest(&self) {
        self.busy_since.store(0, Relaxed);
    }

    /// The statement under way, if there is one.
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

    /// Ends the session now: whoever waits for an answer hears that there will be none.
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
