//! The backends that do something in the background for which an environment must be kept alive.

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

    /// Adds `backend`. Returns whether it is new.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) -> bool {
        self.lock().insert(address(backend))
    }

    pub(crate) fn remove(&self, backend: &Arc<dyn Backend>) {
        self.lock().remove(&address(backend));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<usize>> {
        // Nothing can panic while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(backend: &Arc<dyn Backend>) -> usize {
    Arc::as_ptr(backend).cast::<()>() as usize
}
