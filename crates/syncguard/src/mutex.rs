//! The standard library's mutexes, locked also after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex under which no value is ever left half-changed: each change is one step, or nothing that can
/// panic runs meanwhile. So a panic elsewhere does no harm.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
