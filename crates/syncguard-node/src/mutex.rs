//! The standard library's mutexes, locked also after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex under which nothing that can panic runs: a panic elsewhere does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
