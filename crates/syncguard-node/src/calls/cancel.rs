//! Cancellation of operations by their numbers.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::mutex::lock;

/// The operations of one environment that can be cancelled.
#[derive(Default)]
pub(crate) struct Cancels(Mutex<HashMap<u32, oneshot::Sender<()>>>);

impl Cancels {
    /// Makes `operation` cancellable until the returned future is dropped. The future completes when the operation is
    /// cancelled, and never otherwise.
    pub(crate) fn register(self: &Arc<Self>, operation: u32) -> impl Future<Output = ()> + use<> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).insert(operation, sender);
        let forget = Forget(Arc::clone(self), operation);
        async move {
            let _forget = forget;
            if receiver.await.is_err() {
                pending().await
            }
        }
    }

    /// Cancels `operation`, unless it has ended.
    pub(crate) fn cancel(&self, operation: u32) {
        if let Some(sender) = lock(&self.0).remove(&operation) {
            // Fails if the operation has ended at this moment, which does no harm.
            let _ = sender.send(());
        }
    }
}

struct Forget(Arc<Cancels>, u32);

impl Drop for Forget {
    fn drop(&mut self) {
        lock(&self.0.0).remove(&self.1);
    }
}
