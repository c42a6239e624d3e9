//! Locks on their way to JavaScript.

use std::sync::Arc;

use syncguard::{Backend, Batch, Claim, Grant, Key, LockId, Ttl, operation};

use crate::io_thread;

/// Locks that were granted and not yet delivered. If they are dropped before that, they are released: the environment that
/// asked for them has ended, and nobody else knows their lock ids.
pub(crate) struct Granted {
    grants: Batch<Grant>,
    /// What was asked for, where that is more than one key itself.
    claims: Vec<Claim>,
    ttl: Ttl,
    backend: Arc<dyn Backend>,
    is_delivered: bool,
}

impl Granted {
    pub(crate) fn new(
        grants: Batch<Grant>,
        claims: Vec<Claim>,
        ttl: Ttl,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self {
            grants,
            claims,
            ttl,
            backend,
            is_delivered: false,
        }
    }

    /// Hands the locks over to JavaScript, which is going to release them.
    pub(crate) fn deliver(&mut self) -> &[Grant] {
        self.is_delivered = true;
        &self.grants
    }

    /// The keys of the locks where they are several, or slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().map(|claim| &claim.key)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if self.is_delivered {
            return;
        }
        // Without the I/O thread nothing can be sent, and the locks end with their TTL.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        let _on_it = runtime.enter();
        let lock_ids: Vec<LockId> = self
            .grants
            .iter()
            .map(|grant| grant.lock_id.clone())
            .collect();
        operation::release_in_background(&self.backend, &lock_ids, self.ttl);
    }
}
