//! A lock that JavaScript watches.

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;

use crate::answers::completion::Completion;
use crate::calls::operations::Operations;

/// Tells when the lock on one key may have been freed, for as long as it lives.
#[napi]
pub struct NativeWatch {
    pub(crate) watch: Arc<syncguard::Watch>,
    pub(crate) operations: Operations,
}

#[napi]
impl NativeWatch {
    /// An operation that ends when the lock may have been freed since the last one did, or when it is cancelled.
    #[napi]
    pub fn freed(&self, env: Env, operation: u32) {
        let watch = Arc::clone(&self.watch);
        self.operations
            .spawn(&env, operation, true, |cancelled| async move {
                tokio::select! {
                    _ = watch.freed() => {}
                    () = cancelled => {}
                }
                Ok(Completion::Done)
            });
    }
}
