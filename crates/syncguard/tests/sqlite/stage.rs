//! What the tests share: places for lock files, and backends on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syncguard::Backend;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};

use crate::support::locks::acquire;

/// A temporary folder and the lock file in it.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    Place { folder, path }
}

pub(crate) fn backend(path: &Path) -> SqliteBackend {
    SqliteBackend::new(SqliteConfig::file(path)).unwrap()
}

/// A lock file with one lock in it, as a process leaves it that closes its backend.
pub(crate) async fn make_lock_file(path: &Path) {
    let backend = backend(path);
    acquire(&backend, "old").await;
    backend.close().await;
}

/// All files of a folder. Not while a backend of this process has one open: closing what is read
/// would take away its locks.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}
