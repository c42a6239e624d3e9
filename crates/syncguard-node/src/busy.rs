//! Which backends do something in the background that an environment must live for.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syncguard::Backend;

/// The backends of one environment that release locks in the background, by their addresses.
#[derive(Default)]
pub(crate) struct BusyBackends(Mutex<HashSet<usize>>);

impl BusyBackends {
    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Whether `backend` is new among them.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) -> bool {
        self.lock().insert(address(backend))
    }

    pub(crate) fn remove(&self, backend: &Arc<dyn Backend>) {
        self.lock().remove(&address(backend));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<usize>> {
        // No code that can panic runs while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(backend: &Arc<dyn Backend>) -> usize {
    Arc::as_ptr(backend).cast::<()>() as usize
}
