//! What is read from files when it is first needed.

use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::text::error::{Error, ErrorKind};

/// A value that is read once, on a thread of its own: a file system may not answer for as long as it likes. After a
/// failure, whoever needs it next tries again.
pub(crate) struct Loaded<T> {
    value: OnceCell<T>,
    /// A reading that is under way. It outlives those who wait for it, so that there are never two.
    reading: Mutex<Option<JoinHandle<Result<T, Error>>>>,
}

impl<T: Send + 'static> Loaded<T> {
    /// One that is still to be read.
    pub(crate) fn new() -> Self {
        Self {
            value: OnceCell::new(),
            reading: Mutex::new(None),
        }
    }

    /// One that need not be read.
    pub(crate) fn ready(value: T) -> Self {
        Self {
            value: OnceCell::new_with(Some(value)),
            reading: Mutex::new(None),
        }
    }

    /// The value, which `read` gives if nobody has asked before. The error of a reading that takes longer than `limit`
    /// names `what` is read. Needs a tokio runtime.
    pub(crate) async fn get(
        &self,
        what: &str,
        limit: Duration,
        read: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<&T, Error> {
        let reading = async {
            let mut reading = self.reading.lock().await;
            let answer = reading.get_or_insert_with(|| spawn_blocking(read)).await;
            *reading = None;
            let broken = |error| {
                let what = format!("{what} could not be read");
                Error::new(ErrorKind::Internal, what).with_source(error)
            };
            answer.map_err(broken)?
        };
        let value = self.value.get_or_try_init(|| reading);
        timeout(limit, value).await.unwrap_or_else(|_| {
            let limit_ms = limit.as_millis();
            let what = format!("{what} could not be read within {limit_ms} ms");
            Err(Error::new(ErrorKind::NetworkTimeout, what))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, mpsc};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_reading_that_hangs_is_waited_for_and_not_repeated() {
        let (answer, answered) = mpsc::channel();
        let count = Arc::new(AtomicUsize::new(0));
        let loaded = Loaded::new();
        let mut answered = Some(answered);
        for _ in 0..3 {
            let (count, answered) = (Arc::clone(&count), answered.take());
            let read = move || {
                count.fetch_add(1, SeqCst);
                Ok(answered.unwrap().recv().unwrap())
            };
            let error = loaded.get("the file", SOON, read).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
            assert_eq!(error.message(), "the file could not be read within 20 ms");
        }
        answer.send(7).unwrap();
        for _ in 0..2 {
            let value = loaded.get("the file", LATE, || Err(Error::invalid("again")));
            assert_eq!(*value.await.unwrap(), 7);
        }
        assert_eq!(count.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failure_is_tried_again() {
        let loaded = Loaded::new();
        let failed = loaded.get("the file", LATE, || Err(Error::invalid("no")));
        assert_eq!(failed.await.unwrap_err().message(), "no");
        assert_eq!(*loaded.get("the file", LATE, || Ok(1)).await.unwrap(), 1);
        assert_eq!(*loaded.get("the file", LATE, || Ok(2)).await.unwrap(), 1);
    }
}
