//! Which lock files this copy of the library has open.
//!
//! POSIX drops all locks of a process on a file when the process closes *any* descriptor of it, so
//! reading the header of a file that another backend of this process has open would take away the
//! locks of that backend's connection. SQLite knows this about its own descriptors; this list is for
//! ours. A file on it was checked when it was put there.
//!
//! Files are opened and closed while the list is locked: a file that is gone from the disk has its
//! number on the list as long as it is open, and no other file can have that number until then.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::copies::Claim;
use super::file_id::FileId;

struct Entry {
    connections: usize,
    /// Goes when the last connection is closed.
    _claim: Claim,
}

static OPEN: LazyLock<Mutex<HashMap<FileId, Entry>>> = LazyLock::new(Mutex::default);

/// The list, for one thread at a time.
pub(super) fn lock() -> OpenFiles {
    OpenFiles(guard())
}

fn guard() -> MutexGuard<'static, HashMap<FileId, Entry>> {
    // The map is whole between any two statements: a panic elsewhere cannot have left it half-done.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct OpenFiles(MutexGuard<'static, HashMap<FileId, Entry>>);

impl OpenFiles {
    pub(super) fn contains(&self, id: &FileId) -> bool {
        self.0.contains_key(id)
    }

    /// Enters a connection to a file that is not on the list.
    pub(super) fn add(&mut self, id: FileId, claim: Claim) -> OpenFile {
        let entry = Entry {
            connections: 1,
            _claim: claim,
        };
        self.0.insert(id.clone(), entry);
        OpenFile(Some(id))
    }

    /// Enters another connection to a file that is on the list.
    pub(super) fn add_again(&mut self, id: FileId) -> OpenFile {
        let entry = self.0.get_mut(&id);
        let id = entry.map(|entry| {
            entry.connections += 1;
            id
        });
        OpenFile(id)
    }

    /// Takes an entry off the list; the connection must be closed.
    pub(super) fn remove(&mut self, mut file: OpenFile) {
        if let Some(id) = file.0.take() {
            remove(&mut self.0, &id);
        }
    }
}

/// A connection on the list.
pub(super) struct OpenFile(Option<FileId>);

/// For a thread that panics; everybody else uses [`OpenFiles::remove`].
impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(id) = self.0.take() {
            remove(&mut guard(), &id);
        }
    }
}

fn remove(open: &mut HashMap<FileId, Entry>, id: &FileId) {
    if let Some(entry) = open.get_mut(id) {
        entry.connections -= 1;
        if entry.connections == 0 {
            open.remove(id);
        }
    }
}
