//! Shares connections among backends.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::mutex::lock;
use crate::text::error::Error;

/// A connection that is made for the first backend that needs it. It is dropped once all backends have given it
/// back and no operation runs on it; after that, the next backend makes a new one.
pub(crate) struct SharedConnection<C: ?Sized>(Mutex<Option<Weak<C>>>);

impl<C: ?Sized> Default for SharedConnection<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> SharedConnection<C> {
    /// Gives the current connection, or else a new one from `make`. After a failure, the next call tries again.
    pub(crate) fn get_or_make(
        &self,
        make: impl FnOnce() -> Result<C, Error>,
    ) -> Result<Arc<C>, Error> {
        self.get_or_share(|| make().map(Arc::new))
    }
}

impl<C: ?Sized> SharedConnection<C> {
    /// As `get_or_make`, for a connection that `make` has put into an `Arc`, so that its type need not be sized.
    pub(crate) fn get_or_share(
        &self,
        make: impl FnOnce() -> Result<Arc<C>, Error>,
    ) -> Result<Arc<C>, Error> {
        let mut current = lock(&self.0);
        if let Some(shared) = current.as_ref().and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let made = make()?;
        *current = Some(Arc::downgrade(&made));
        Ok(made)
    }
}

/// A connection that one backend uses until it is closed. A running operation holds a clone of the `Arc`, so it still gets its answer
/// if the backend is closed in the meantime.
pub(crate) struct Borrowed<C: ?Sized>(Mutex<Option<Arc<C>>>);

impl<C: ?Sized> Borrowed<C> {
    pub(crate) fn new(borrowed: Arc<C>) -> Self {
        Self(Mutex::new(Some(borrowed)))
    }

    /// The borrowed connection; `Aborted` after [`end`](Self::end).
    pub(crate) fn get(&self) -> Result<Arc<C>, Error> {
        let borrowed = lock(&self.0).clone();
        borrowed.ok_or_else(Error::closed)
    }

    /// Gives the connection back.
    pub(crate) fn end(&self) {
        // Taken out first, so that the mutex is unlocked when the drop closes the connection.
        let borrowed = lock(&self.0).take();
        drop(borrowed);
    }
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for Borrowed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let borrowed = lock(&self.0).clone();
        f.debug_tuple("Borrowed").field(&borrowed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    #[test]
    fn the_first_makes_it_and_the_last_ends_it() {
        let shared = SharedConnection::default();
        let mut made = 0;
        let mut get = || {
            let connection = shared.get_or_make(|| {
                made += 1;
                Ok(made)
            });
            connection.map(Borrowed::new).unwrap()
        };
        let (first, second) = (get(), get());
        assert_eq!(*second.get().unwrap(), 1);
        first.end();
        assert_eq!(*get().get().unwrap(), 1);
        second.end();
        assert_eq!(*get().get().unwrap(), 2);
    }

    #[test]
    fn a_failure_is_tried_again() {
        let shared = SharedConnection::default();
        let refused = shared.get_or_make(|| Err(Error::invalid("no")));
        assert!(refused.is_err());
        assert_eq!(*shared.get_or_make(|| Ok(1)).unwrap(), 1);
    }

    #[test]
    fn what_runs_keeps_it_and_nothing_starts_after_the_end() {
        let shared = SharedConnection::default();
        let borrowed = Borrowed::new(shared.get_or_make(|| Ok("first")).unwrap());
        let running = borrowed.get().unwrap();
        borrowed.end();
        borrowed.end();
        let error = borrowed.get().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(*shared.get_or_make(|| Ok("second")).unwrap(), "first");
        drop(running);
        assert_eq!(*shared.get_or_make(|| Ok("second")).unwrap(), "second");
    }
}
