//! The list of lock files that this copy of the library has open.
//!
//! POSIX drops all locks of a process on a file when the process closes *any* descriptor of it. So if another
//! backend of this process has a file open, reading the file's header would release that backend's locks. SQLite
//! takes care of this for its own descriptors; this list does so for ours. A file on the list has been checked
//! already.
//!
//! Files are opened and closed while the list is locked. A deleted file keeps its number as long as it is open, and
//! for that long it is on the list, so no other file can have the same number.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use super::copies::Claim;
use super::file_id::FileId;

struct Entry {
    connections: usize,
    /// Dropped with the entry, when the last connection is closed.
    _claim: Claim,
}

static OPEN: LazyLock<Mutex<HashMap<FileId, Entry>>> = LazyLock::new(Mutex::default);

/// The list, for one thread at a time.
pub(super) fn lock() -> OpenFiles {
    OpenFiles(guard())
}

fn guard() -> MutexGuard<'static, HashMap<FileId, Entry>> {
    // Each statement leaves the map consistent, so a panic elsewhere cannot have left it half-changed.
    crate::mutex::lock(&OPEN)
}

pub(super) struct OpenFiles(MutexGuard<'static, HashMap<FileId, Entry>>);

impl OpenFiles {
    pub(super) fn contains(&self, id: &FileId) -> bool {
        self.0.contains_key(id)
    }

    /// Adds a connection to a file that is not on the list.
    pub(super) fn add(&mut self, id: FileId, claim: Claim) -> OpenFile {
        let entry = Entry {
            connections: 1,
            _claim: claim,
        };
        self.0.insert(id.clone(), entry);
        OpenFile(Some(id))
    }

    /// Adds another connection to a file that is on the list.
    pub(super) fn add_again(&mut self, id: FileId) -> OpenFile {
        let entry = self.0.get_mut(&id);
        let id = entry.map(|entry| {
            entry.connections += 1;
            id
        });
        OpenFile(id)
    }

    /// Removes a connection, which must be closed already.
    pub(super) fn remove(&mut self, mut file: OpenFile) {
        if let Some(id) = file.0.take() {
            remove(&mut self.0, &id);
        }
    }
}

/// A connection on the list.
pub(super) struct OpenFile(Option<FileId>);

/// Only for threads that panic; otherwise [`OpenFiles::remove`] is used.
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
