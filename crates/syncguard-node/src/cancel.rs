//! Cancellation of operations by their numbers.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// The operations of one environment that can be cancelled.
#[derive(Default)]
pub(crate) struct Cancels(Mutex<HashMap<u32, oneshot::Sender<()>>>);

impl Cancels {
    /// Makes `operation` cancellable: the future completes when it is cancelled, and never otherwise.
    pub(crate) fn register(&self, operation: u32) -> impl Future<Output = ()> + use<> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(operation, sender);
        async move {
            if receiver.await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Forgets `operation`, which has ended.
    pub(crate) fn forget(&self, operation: u32) {
        self.lock().remove(&operation);
    }

    /// Cancels `operation` if it has not ended.
    pub(crate) fn cancel(&self, operation: u32) {
        if let Some(sender) = self.lock().remove(&operation) {
            // The operation may have ended at this very moment; then nobody listens.
            let _ = sender.send(());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, oneshot::Sender<()>>> {
        // No code that can panic runs while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
