//! What arrives on a session, and why it was ended from this side.

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
    end: OnceLock<SessionEnd>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            received: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    /// Notes that the bytes from now on are another reply: something was sent, or a notification has arrived.
    pub(in crate::postgres) fn expect_reply(&self) {
        self.received.store(0, Relaxed);
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
