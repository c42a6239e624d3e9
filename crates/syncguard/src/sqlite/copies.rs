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

use crate::error::Error;

/// Proof that, in this process, only this copy of the library has the file open.
#[derive(Debug)]
pub(super) struct Claim {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    _mark: rustix::fd::OwnedFd,
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    _lock: flock::ProcessLock,
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
pub(super) use linux::attempt;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::super::file_id::FileId;
    use super::Claim;

    /// All threads share the process's table. This path also works after the first thread has ended.
    const DESCRIPTORS: &str = "/proc/thread-self/fd";

    /// Claims the file, a path without links, if nothing else in this process has it open.
    pub(in super::super) fn attempt(path: &Path, id: &FileId) -> io::Result<Option<Claim>> {
        let mark = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let free = !is_open_besides(mark.as_raw_fd(), id)?;
        Ok(free.then_some(Claim { _mark: mark }))
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
                && FileId::new(&path, &metadata) == *id
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(super) fn attempt(
    _: &std::path::Path,
    id: &super::file_id::FileId,
) -> std::io::Result<Option<Claim>> {
    let lock = flock::ProcessLock::attempt(id)?;
    Ok(lock.map(|lock| Claim { _lock: lock }))
}

#[cfg(all(unix, any(test, not(any(target_os = "linux", target_os = "android")))))]
mod flock {
    use std::fs::{File, OpenOptions, TryLockError};
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::PathBuf;

    use super::super::file_id::FileId;

    /// A lock for one copy in this process.
    #[derive(Debug)]
    pub(super) struct ProcessLock {
        file: File,
        path: PathBuf,
    }

    impl ProcessLock {
        pub(super) fn attempt(id: &FileId) -> io::Result<Option<Self>> {
            let path = std::env::temp_dir().join(id.name_in_process());
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
        use super::*;

        #[test]
        fn one_lock_at_a_time() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let other = tempfile::NamedTempFile::new().unwrap();
            let id = |file: &tempfile::NamedTempFile| {
                FileId::new(file.path(), &file.as_file().metadata().unwrap())
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
pub(super) fn attempt(
    _: &std::path::Path,
    _: &super::file_id::FileId,
) -> std::io::Result<Option<Claim>> {
    Ok(Some(Claim {}))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;

    use super::super::file_id::FileId;
    use super::*;

    #[test]
    fn a_file_that_is_open_otherwise_is_not_claimed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let id = FileId::new(file.path(), &file.as_file().metadata().unwrap());
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
        let id = FileId::new(file.path(), &file.as_file().metadata().unwrap());
        let path = file.into_temp_path();
        let claims = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        if let Some(claim) = attempt(&path, &id).unwrap() {
                            let mut alone = claims.try_lock().unwrap();
                            *alone += 1;
                            drop(alone);
                            drop(claim);
                        }
                    }
                });
            }
        });
        assert!(claims.into_inner().unwrap() > 0);
    }
}
