//! What comes and goes on a session, and why it was ended from this side.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use tokio::time::Instant;

use crate::mutex::lock;

/// Why a session was ended from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum SessionEnd {
    /// It got no answer although the server could be reached.
    Silent,
    /// A reply was too large.
    Oversized,
}

/// What has arrived on a session.
pub(in crate::postgres) struct Arrivals {
    last: Mutex<Instant>,
    /// Bytes that have arrived of the current reply.
    received: AtomicUsize,
    /// Somebody waits for the answer to a statement.
    asked: Mutex<Option<Asked>>,
    end: OnceLock<SessionEnd>,
}

/// What has become of a statement, and of its session.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Asked {
    /// Whether some of it was written.
    pub(super) is_written: bool,
    /// Whether the session was lost meanwhile.
    pub(super) is_lost: bool,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            received: AtomicUsize::new(0),
            asked: Mutex::new(None),
            end: OnceLock::new(),
        }
    }

    /// Notes that the bytes from now on are another reply: something was sent, or a notification has arrived.
    pub(in crate::postgres) fn expect_reply(&self) {
        self.received.store(0, Relaxed);
    }

    /// Notes that a statement is handed over, and that whoever waits for its answer notes the loss of the session until
    /// [`answered`](Self::answered): the answer may say more of it than the end that follows.
    pub(super) fn ask(&self) {
        *lock(&self.asked) = Some(Asked::default());
    }

    /// Whether nothing was written yet of a statement.
    pub(super) fn is_to_begin(&self) -> bool {
        lock(&self.asked).is_some_and(|asked| !asked.is_written)
    }

    /// Notes that bytes were written.
    pub(super) fn write(&self) {
        if let Some(asked) = &mut *lock(&self.asked) {
            asked.is_written = true;
        }
    }

    /// What has become of the statement so far.
    pub(super) fn asked(&self) -> Asked {
        lock(&self.asked).unwrap_or_default()
    }

    /// Notes that nobody waits for the answer any more. Gives whether the session was lost meanwhile.
    pub(super) fn answered(&self) -> bool {
        lock(&self.asked).take().unwrap_or_default().is_lost
    }

    /// Notes that the session is lost. Gives whether nobody else will note that.
    pub(super) fn lose(&self) -> bool {
        match &mut *lock(&self.asked) {
            Some(asked) => {
                asked.is_lost = true;
                false
            }
            None => true,
        }
    }

    /// Notes that bytes have arrived. Gives how many there are of the current reply.
    pub(super) fn receive(&self, count: usize) -> usize {
        *lock(&self.last) = Instant::now();
        self.received.fetch_add(count, Relaxed) + count
    }

    /// When bytes last arrived.
    pub(super) fn last(&self) -> Instant {
        *lock(&self.last)
    }

    /// Notes why the session ends.
    pub(super) fn finish(&self, end: SessionEnd) {
        let _ = self.end.set(end);
    }

    pub(in crate::postgres) fn end(&self) -> Option<SessionEnd> {
        self.end.get().copied()
    }
}
