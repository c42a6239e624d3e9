//! A lock on its way to JavaScript.

use std::sync::Arc;

use syncguard::{Backend, Grant, Ttl, operation};

use crate::io_thread;

/// A lock that nobody has yet. Dropped before it is delivered, it is released: the environment that
/// asked for it has ended, and nobody else knows its lock id.
pub(crate) struct Granted {
    grant: Grant,
    ttl: Ttl,
    backend: Arc<dyn Backend>,
    is_delivered: bool,
}

impl Granted {
    pub(crate) fn new(grant: Grant, ttl: Ttl, backend: Arc<dyn Backend>) -> Self {
        Self {
            grant,
            ttl,
            backend,
            is_delivered: false,
        }
    }

    /// The lock, for whoever is going to release it.
    pub(crate) fn deliver(&mut self) -> &Grant {
        self.is_delivered = true;
        &self.grant
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if self.is_delivered {
            return;
        }
        // Without the thread that was granted the lock, nothing can be sent: it ends with its TTL.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        let _on_it = runtime.enter();
        operation::release_in_background(&self.backend, &self.grant.lock_id, self.ttl);
    }
}
