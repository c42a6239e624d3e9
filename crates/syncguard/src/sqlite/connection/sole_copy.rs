//! Other copies of this library in the same process.
//!
//! An application and one of its dependencies may each bring a copy of this library, each with its own SQLite.
//! POSIX locks belong to the process, so neither SQLite sees the locks of the other; and when one of them closes a
//! file, the locks of both are gone. Two such copies on one file would both grant the same lock. So the second copy
//! must find out about the first before it opens the file: even opening and closing it would do harm.
//!
//! On Linux, the process's table of descriptors shows whether the file is open, by whatever library. Two copies that
//! look at the same time would both see nothing. So each first opens a descriptor that only marks the file
//! (`O_PATH`: closing it releases no locks). Then at least one sees the other, gives way, and looks again a little
//! later. None of this is on the disk: a process that is killed leaves no trace, and other processes, including
//! forked ones, have tables of their own.
//!
//! On other Unix systems, each copy holds an `flock`, which belongs to the descriptor, on a temporary file that is
//! named after the process. This finds only copies of this library.
//!
//! On Windows, locks belong to handles, so copies exclude each other as processes do.
//!
//! The backends of one copy share that proof: SQLite takes care of its own descriptors.

use std::collections::HashMap;
use std::fs::{Metadata, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

use super::schema;
use crate::mutex::lock;
use crate::sqlite::error::{self, FileCall};
use crate::text::error::Error;

/// Identifies a file, whatever path leads to it.
#[cfg(unix)]
pub(super) type FileId = (u64, u64);
/// Other systems give no number, and none is needed.
#[cfg(not(unix))]
pub(super) type FileId = std::path::PathBuf;

/// The file at `path`, a path without links that `metadata` was read from.
#[cfg(unix)]
pub(super) fn id_of(_: &Path, metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
pub(super) fn id_of(path: &Path, _: &Metadata) -> FileId {
    path.to_owned()
}

/// Proof that, in this process, only this copy of the library has the file open. To be dropped after its connections.
#[derive(Debug)]
pub(super) struct SoleCopy {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    _mark: rustix::fd::OwnedFd,
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    _lock: flock::ProcessLock,
}

/// The files that this copy has, for one thread at a time. A deleted file keeps its number as long as it is open, so no other
/// file can have the same.
pub(super) struct SoleCopies(MutexGuard<'static, HashMap<FileId, Weak<SoleCopy>>>);

impl SoleCopies {
    /// Files are created and looked into while this is held: closing them would release the locks of another backend.
    pub(super) fn lock() -> Self {
        static FILES: LazyLock<Mutex<HashMap<FileId, Weak<SoleCopy>>>> =
            LazyLock::new(Mutex::default);
        Self(lock(&FILES))
    }

    /// Lets this copy have a file, a path without links, unless something else in this process has it open. A file
    /// that is neither empty nor a lock file is refused.
    pub(super) fn enter(
        &mut self,
        path: &Path,
        id: FileId,
    ) -> Result<Option<Arc<SoleCopy>>, Error> {
        if let Some(copy) = self.0.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(copy));
        }
        let copy = attempt(path, &id).map_err(|error| error::from_io(error, FileCall::File))?;
        let Some(copy) = copy.map(Arc::new) else {
            return Ok(None);
        };
        check_header(path)?;
        self.0.retain(|_, copy| copy.strong_count() > 0);
        self.0.insert(id, Arc::downgrade(&copy));
        Ok(Some(copy))
    }
}

/// Checks that a file is empty or says that it is ours, before SQLite opens it: SQLite would finish what another
/// application has left half done. Opened for both, so that a missing right is named.
fn check_header(path: &Path) -> Result<(), Error> {
    let failed = |error| error::from_io(error, FileCall::File);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(path).map_err(failed)?;
    let mut header = Vec::new();
    file.take(72).read_to_end(&mut header).map_err(failed)?;
    if header.is_empty() {
        return Ok(());
    }
    let number = |at: usize| Some(i32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    match (number(68), number(60)) {
        (Some(application_id), Some(version)) => schema::check_version(application_id, version),
        _ => Err(error::foreign()),
    }
}

/// The error for the copy that comes second.
pub(super) fn held_by_another_copy() -> Error {
    Error::invalid(
        "another copy of SyncGuard, or another SQLite library, has the lock file open in this \
         process, where neither sees the locks of the other: let all of the process share one copy \
         of SyncGuard, or give this one a path of its own",
    )
}

#[cfg(any(target_os = "linux", target_os = "android"))]
use linux::attempt;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::{FileId, SoleCopy, id_of};

    /// All threads share the process's table. This path also works after the first thread has ended.
    const DESCRIPTORS: &str = "/proc/thread-self/fd";

    /// Proof that the file, a path without links, is open in this copy alone, if nothing else in this process has it open.
    pub(super) fn attempt(path: &Path, id: &FileId) -> io::Result<Option<SoleCopy>> {
        let mark = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let free = !is_open_besides(mark.as_raw_fd(), id)?;
        Ok(free.then_some(SoleCopy { _mark: mark }))
    }

    /// Whether a descriptor of this process besides `mark` leads to the file.
    fn is_open_besides(mark: RawFd, id: &FileId) -> io::Result<bool> {
        let descriptors = match std::fs::read_dir(DESCRIPTORS) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                return match error.kind() {
                    // The system has no /proc or hides it, so there is nothing to check.
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(false),
                    _ => Err(error),
                };
            }
        };
        let mark = mark.to_string();
        for descriptor in descriptors {
            let descriptor = descriptor?;
            if descriptor.file_name() == *mark {
                continue;
            }
            let path = descriptor.path();
            // A descriptor that was closed in the meantime does not matter.
            if let Ok(metadata) = std::fs::metadata(&path)
                && id_of(&path, &metadata) == *id
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn attempt(_: &Path, id: &FileId) -> std::io::Result<Option<SoleCopy>> {
    let lock = flock::ProcessLock::attempt(id)?;
    Ok(lock.map(|lock| SoleCopy { _lock: lock }))
}

#[cfg(all(unix, any(test, not(any(target_os = "linux", target_os = "android")))))]
mod flock {
    use std::fs::{File, OpenOptions, TryLockError};
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::PathBuf;

    use super::FileId;

    /// A lock for one copy in this process.
    #[derive(Debug)]
    pub(super) struct ProcessLock {
        file: File,
        path: PathBuf,
    }

    impl ProcessLock {
        pub(super) fn attempt(id: &FileId) -> io::Result<Option<Self>> {
            let (device, number) = id;
            let name = format!("syncguard-{}-{device}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = Self { file, path };
            // The copy that held it before may have removed the file in the meantime.
            let in_place =
                std::fs::metadata(&lock.path).is_ok_and(|metadata| is_same(&metadata, &lock.file));
            Ok(in_place.then_some(lock))
        }
    }

    fn is_same(metadata: &std::fs::Metadata, file: &File) -> bool {
        file.metadata()
            .is_ok_and(|own| (own.dev(), own.ino()) == (metadata.dev(), metadata.ino()))
    }

    impl Drop for ProcessLock {
        fn drop(&mut self) {
            let is_ours =
                std::fs::metadata(&self.path).is_ok_and(|metadata| is_same(&metadata, &self.file));
            if is_ours {
                // If this fails, an empty file remains, which does no harm.
                let _ = std::fs::remove_file(&self.path);
            }
            // A child process that was forked has a copy of the descriptor, so closing ours would not unlock it.
            let _ = self.file.unlock();
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::id_of;
        use super::*;

        #[test]
        fn one_lock_at_a_time() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let other = tempfile::NamedTempFile::new().unwrap();
            let id = |file: &tempfile::NamedTempFile| {
                id_of(file.path(), &file.as_file().metadata().unwrap())
            };
            let first = ProcessLock::attempt(&id(&file)).unwrap().unwrap();
            assert!(ProcessLock::attempt(&id(&file)).unwrap().is_none());
            let elsewhere = ProcessLock::attempt(&id(&other)).unwrap();
            assert!(elsewhere.is_some());
            let path = first.path.clone();
            drop(first);
            assert!(!path.exists());
            assert!(ProcessLock::attempt(&id(&file)).unwrap().is_some());
        }
    }
}

#[cfg(not(unix))]
fn attempt(_: &Path, _: &FileId) -> std::io::Result<Option<SoleCopy>> {
    Ok(Some(SoleCopy {}))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_that_is_open_otherwise_is_not_claimed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let id = id_of(file.path(), &file.as_file().metadata().unwrap());
        let path = file.into_temp_path();
        let first = attempt(&path, &id).unwrap();
        assert!(first.is_some());
        // As another copy would.
        assert!(attempt(&path, &id).unwrap().is_none());
        drop(first);
        if cfg!(target_os = "linux") {
            let reader = File::open(&path).unwrap();
            assert!(attempt(&path, &id).unwrap().is_none());
            drop(reader);
        }
        assert!(attempt(&path, &id).unwrap().is_some());
    }

    #[test]
    fn of_copies_that_come_at_once_at_most_one_has_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let id = id_of(file.path(), &file.as_file().metadata().unwrap());
        let path = file.into_temp_path();
        let claims = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        if let Some(copy) = attempt(&path, &id).unwrap() {
                            let mut alone = claims.try_lock().unwrap();
                            *alone += 1;
                            drop(alone);
                            drop(copy);
                        }
                    }
                });
            }
        });
        assert!(claims.into_inner().unwrap() > 0);
    }
}
