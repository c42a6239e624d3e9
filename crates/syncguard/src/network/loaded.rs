//! Reads values from files when they are needed.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, OnceCell};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::mutex::lock;
use crate::text::error::{Error, ErrorKind};

/// A value that is read once. After a failure, whoever needs it next tries again.
pub(crate) struct Loaded<T> {
    value: OnceCell<T>,
    reading: FileReading<T>,
}

impl<T: Send + 'static> Loaded<T> {
    /// Makes a value that is still to be read.
    pub(crate) fn new() -> Self {
        Self {
            value: OnceCell::new(),
            reading: FileReading::default(),
        }
    }

    /// Makes a value that need not be read.
    pub(crate) fn ready(value: T) -> Self {
        Self {
            value: OnceCell::new_with(Some(value)),
            reading: FileReading::default(),
        }
    }

    /// Gives the value, and reads it with `read` if nobody has asked before. If that takes longer than `limit`, the error names `what` is
    /// read. Needs a tokio runtime.
    pub(crate) async fn get(
        &self,
        what: &str,
        limit: Duration,
        read: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<&T, Error> {
        let value = self.value.get_or_try_init(|| self.reading.join(what, read));
        timeout(limit, value)
            .await
            .unwrap_or_else(|_| Err(too_late(what, limit)))
    }
}

/// A value that is read from files, and read anew when one of them has changed: whoever renews a certificate expects that the next
/// connection uses it. If reading anew fails or takes long, the old value stays, because files that belong together are replaced one
/// after the other.
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    /// The last value, and the state of its files just before they were read.
    last: Last<T>,
    reading: FileReading<T>,
}

type Last<T> = Arc<std::sync::Mutex<Option<(Vec<Stamp>, T)>>>;

/// When a file was written, and its size. `None` if it is not there or no regular file: a pipe gives its contents only once.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(file: &Path) -> Stamp {
    let found = fs::metadata(file).ok().filter(Metadata::is_file)?;
    Some((found.modified().ok()?, found.len()))
}

impl<T: Clone + Send + 'static> Reloaded<T> {
    /// Makes a value that is still to be read, from these files.
    pub(crate) fn of(files: Vec<PathBuf>) -> Self {
        Self {
            files,
            last: Arc::default(),
            reading: FileReading::default(),
        }
    }

    /// Gives the value, as [`Loaded::get`] does, and reads it anew if the files have changed.
    pub(crate) async fn get(
        &self,
        what: &str,
        limit: Duration,
        read: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let earlier = lock(&self.last).clone().map(|(_, value)| value);
        if let (Some(value), true) = (&earlier, self.files.is_empty()) {
            return Ok(value.clone());
        }
        // With a value at hand, connecting must not spend all of its time on this.
        let limit = if earlier.is_some() { limit / 4 } else { limit };
        let (files, last) = (self.files.clone(), Arc::clone(&self.last));
        let look = move || {
            let stamps: Vec<_> = files.iter().map(|file| stamp(file)).collect();
            let known = lock(&last).clone();
            if let Some((_, value)) = known.filter(|(before, _)| *before == stamps) {
                return Ok(value);
            }
            let value = read()?;
            *lock(&last) = Some((stamps, value.clone()));
            Ok(value)
        };
        let value = timeout(limit, self.reading.join(what, look)).await;
        let value = value.unwrap_or_else(|_| Err(too_late(what, limit)));
        value.or_else(|error| earlier.ok_or(error))
    }
}

/// A reading on a thread of its own, because a file system may take as long as it likes. It goes on when nobody waits for it any more,
/// so that there are never two.
struct FileReading<T>(Mutex<Option<JoinHandle<Result<T, Error>>>>);

impl<T> Default for FileReading<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Send + 'static> FileReading<T> {
    /// Waits for the reading that is under way, or starts this one.
    async fn join(
        &self,
        what: &str,
        read: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut reading = self.0.lock().await;
        let answer = reading.get_or_insert_with(|| spawn_blocking(read)).await;
        *reading = None;
        let broken = |error| {
            let what = format!("{what} could not be read");
            Error::new(ErrorKind::Internal, what).with_source(error)
        };
        answer.map_err(broken)?
    }
}

fn too_late(what: &str, limit: Duration) -> Error {
    let limit_ms = limit.as_millis();
    let what = format!("{what} could not be read within {limit_ms} ms");
    Error::new(ErrorKind::NetworkTimeout, what)
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

    #[tokio::test]
    async fn files_are_read_anew_when_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cert.pem");
        let count = Arc::new(AtomicUsize::new(0));
        let text = Reloaded::of(vec![file.clone()]);
        let get = async || {
            let (file, count) = (file.clone(), Arc::clone(&count));
            let read = move || {
                count.fetch_add(1, SeqCst);
                fs::read_to_string(file).map_err(|_| Error::invalid("unreadable"))
            };
            text.get("the file", LATE, read).await
        };
        assert_eq!(get().await.unwrap_err().message(), "unreadable");
        for (written, readings) in [("one", 2), ("other", 3)] {
            fs::write(&file, written).unwrap();
            for _ in 0..2 {
                assert_eq!(get().await.unwrap(), written);
            }
            assert_eq!(count.load(SeqCst), readings);
        }
        // The same size, at another time.
        fs::write(&file, "again").unwrap();
        let later = SystemTime::now() + Duration::from_secs(9);
        let opened = fs::File::options().append(true).open(&file).unwrap();
        opened.set_modified(later).unwrap();
        assert_eq!(get().await.unwrap(), "again");
        fs::remove_file(&file).unwrap();
        assert_eq!(get().await.unwrap(), "again");
    }
}
