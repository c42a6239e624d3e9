//! Notes when an operation is sent. Whoever gives up an acquisition that was never sent has nothing to undo.

use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::clock;
use crate::mutex::lock;

/// A note of when an operation is sent. It goes down with the request to whatever sends that. If a backend writes nothing into it, the
/// operation counts as sent at once. By default nobody reads the note.
#[derive(Debug, Clone, Default)]
pub struct Sending(Option<Arc<Mutex<SendingState>>>);

#[derive(Debug, Clone, Copy, Default)]
enum SendingState {
    #[default]
    Unknown,
    Waiting,
    Sent(Instant),
}

impl Sending {
    /// A note that somebody reads.
    pub(crate) fn noted() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits for `ready`, which the operation needs before it can be sent, such as a connection or a permit. If the operation was
    /// sent before, that must have been refused.
    pub async fn before<T>(&self, ready: impl Future<Output = T>) -> T {
        self.note(SendingState::Waiting);
        let value = ready.await;
        self.now();
        value
    }

    /// Notes that the operation is sent now. If it is an acquisition, the TTL of its lock begins now.
    pub fn now(&self) {
        if self.0.is_some() {
            self.note(SendingState::Sent(clock::now()));
        }
    }

    /// Whether nothing was sent yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state(), SendingState::Waiting)
    }

    /// When the operation was sent last, if that is known.
    pub(crate) fn sent(&self) -> Option<Instant> {
        match self.state() {
            SendingState::Sent(at) => Some(at),
            _ => None,
        }
    }

    fn state(&self) -> SendingState {
        let noted = self.0.as_ref().map(|state| *lock(state));
        noted.unwrap_or_default()
    }

    fn note(&self, state: SendingState) {
        if let Some(noted) = &self.0 {
            *lock(noted) = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn it_is_seen_while_nothing_was_sent() {
        let sending = Sending::noted();
        let passed_on = sending.clone();
        let connection = tokio::sync::Notify::new();
        let answer = tokio::sync::Notify::new();
        let mut acquisition = Box::pin(async {
            passed_on.before(connection.notified()).await;
            answer.notified().await;
        });
        assert!(!sending.is_waiting());
        assert!(acquisition.as_mut().now_or_never().is_none());
        assert!(sending.is_waiting());
        connection.notify_one();
        assert!(acquisition.as_mut().now_or_never().is_none());
        assert!(!sending.is_waiting());
        assert!(sending.sent().is_some());
        answer.notify_one();
        acquisition.await;
    }

    #[tokio::test]
    async fn what_nobody_reads_is_not_written_down() {
        let unread = Sending::default();
        assert_eq!(unread.before(async { 1 }).await, 1);
        assert!(unread.sent().is_none() && !unread.is_waiting());
    }
}
