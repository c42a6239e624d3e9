//! When an acquisition is sent: whoever gives up one that was not has nothing to undo.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::mutex::lock;

tokio::task_local! {
    static SENDING: Sending;
}

/// When an acquisition is sent, as far as its backend says so. Without that it is taken to be sent at once.
#[derive(Clone, Default)]
pub(crate) struct Sending(Arc<Mutex<SendingState>>);

#[derive(Clone, Copy, Default)]
enum SendingState {
    #[default]
    Unknown,
    Waiting,
    Sent(Instant),
}

impl Sending {
    /// Lets what `acquisition` says by [`before_sending`] and [`sending_now`] be seen here.
    pub(crate) fn of<F: Future>(&self, acquisition: F) -> impl Future<Output = F::Output> + use<F> {
        SENDING.scope(self.clone(), acquisition)
    }

    /// Whether nothing was sent yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*lock(&self.0), SendingState::Waiting)
    }

    /// When it was sent last, if that is known.
    pub(crate) fn sent(&self) -> Option<Instant> {
        match *lock(&self.0) {
            SendingState::Sent(at) => Some(at),
            _ => None,
        }
    }
}

/// Waits for `ready`, which an operation needs before it is sent: a connection, or a permit. What the operation has sent
/// before, if anything, must have been refused.
pub(crate) async fn before_sending<T>(ready: impl Future<Output = T>) -> T {
    note(SendingState::Waiting);
    let value = ready.await;
    sending_now();
    value
}

/// The lock of an acquisition lasts from now on, if it is granted.
pub(crate) fn sending_now() {
    note(SendingState::Sent(Instant::now()));
}

/// Other operations are not undone, and run outside of it.
fn note(state: SendingState) {
    let _ = SENDING.try_with(|sending| *lock(&sending.0) = state);
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn it_is_seen_while_nothing_was_sent() {
        let sending = Sending::default();
        let connection = tokio::sync::Notify::new();
        let answer = tokio::sync::Notify::new();
        let mut acquisition = Box::pin(sending.of(async {
            before_sending(connection.notified()).await;
            answer.notified().await;
        }));
        assert!(!sending.is_waiting());
        assert!(acquisition.as_mut().now_or_never().is_none());
        assert!(sending.is_waiting());
        connection.notify_one();
        assert!(acquisition.as_mut().now_or_never().is_none());
        assert!(!sending.is_waiting());
        assert!(sending.sent().is_some());
        answer.notify_one();
        acquisition.await;
        // Outside of an acquisition, it is as if it were not there.
        assert_eq!(before_sending(async { 1 }).await, 1);
    }
}
