//! The backends that do something in the background for which an environment must be kept alive.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use syncguard::Backend;

use crate::mutex::lock;

/// The backends of one environment that release locks in the background, by their addresses.
#[derive(Default)]
pub(crate) struct BusyBackends(Mutex<HashSet<usize>>);

impl BusyBackends {
    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Adds `backend`. Returns whether it is new.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) -> bool {
        lock(&self.0).insert(address(backend))
    }

    pub(crate) fn remove(&self, backend: &Arc<dyn Backend>) {
        lock(&self.0).remove(&address(backend));
    }
}

fn address(backend: &Arc<dyn Backend>) -> usize {
    Arc::as_ptr(backend).cast::<()>() as usize
}
