use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireOutcome, AcquireRequest, Backend, Error, Grant, Key, Ttl};

pub(crate) type Test = fn() -> Pin<Box<dyn Future<Output = ()>>>;
pub(crate) type Topic = &'static [(&'static str, Test)];

/// Lists tests by name.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: crate::support::Topic =
            &[$((stringify!($test), || Box::pin($test()))),+];
    };
}
pub(crate) use tests;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

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

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap()
}

pub(crate) async fn acquire(backend: &SqliteBackend, name: &str) -> Result<Grant, Error> {
    match backend.acquire(&request(name)).await? {
        AcquireOutcome::Acquired(grant) => Ok(grant),
        AcquireOutcome::Locked => panic!("{name} is locked"),
    }
}

/// A lock file with one lock in it, as a process leaves it that closes its backend.
pub(crate) async fn make_lock_file(path: &Path) {
    let backend = backend(path);
    acquire(&backend, "old").await.unwrap();
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
