//! A lock on its way to JavaScript.

use std::sync::Arc;

use syncguard::{Backend, Grant, Ttl, operation};

use crate::io_thread;

/// A lock that was granted and not yet delivered. If it is dropped before that, it is released: the environment that
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

    /// Hands the lock over to JavaScript, which is going to release it.
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
        // Without the I/O thread nothing can be sent, and the lock ends with its TTL.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        let _on_it = runtime.enter();
        operation::release_in_background(&self.backend, &self.grant.lock_id, self.ttl);
    }
}
