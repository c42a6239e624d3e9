//! Which lock files this process has open.
//!
//! POSIX drops all locks of a process on a file when the process closes *any* descriptor of it, so
//! reading the header of a file that another backend of this process has open would take away the
//! locks of that backend's connection. SQLite knows this about its own descriptors; this list is for
//! ours. A file on it was checked when it was put there.
//!
//! Files are opened and closed while the list is locked: a file that is gone from the disk has its
//! number on the list as long as it is open, and no other file can have that number until then.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What names a file, whatever its path.
#[cfg(unix)]
type FileId = (u64, u64);
/// Elsewhere locks belong to handles, and nothing need be remembered.
#[cfg(not(unix))]
type FileId = std::convert::Infallible;

static OPEN: LazyLock<Mutex<HashMap<FileId, usize>>> = LazyLock::new(Mutex::default);

/// The list, for one thread at a time.
pub(super) fn lock() -> OpenFiles {
    OpenFiles(guard())
}

fn guard() -> MutexGuard<'static, HashMap<FileId, usize>> {
    // The map is whole between any two statements: a panic elsewhere cannot have left it half-done.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct OpenFiles(MutexGuard<'static, HashMap<FileId, usize>>);

impl OpenFiles {
    pub(super) fn contains(&self, path: &Path) -> bool {
        id(path).is_ok_and(|id| id.is_some_and(|id| self.0.contains_key(&id)))
    }

    /// Enters the file until what is returned is dropped.
    pub(super) fn add(&mut self, path: &Path) -> io::Result<OpenFile> {
        let id = id(path)?;
        if let Some(id) = id {
            *self.0.entry(id).or_default() += 1;
        }
        Ok(OpenFile(id))
    }

    /// Takes an entry off the list; the connection must be closed.
    pub(super) fn remove(&mut self, mut file: OpenFile) {
        if let Some(id) = file.0.take() {
            remove(&mut self.0, id);
        }
    }
}

/// An entry of the list.
pub(super) struct OpenFile(Option<FileId>);

/// For a thread that panics; everybody else uses [`OpenFiles::remove`].
impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(id) = self.0.take() {
            remove(&mut guard(), id);
        }
    }
}

fn remove(open: &mut HashMap<FileId, usize>, id: FileId) {
    if let Some(count) = open.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            open.remove(&id);
        }
    }
}

#[cfg(unix)]
fn id(path: &Path) -> io::Result<Option<FileId>> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

#[cfg(not(unix))]
fn id(_: &Path) -> io::Result<Option<FileId>> {
    Ok(None)
}
