//! The identity of a file, whatever path leads to it.

use std::fs::Metadata;
use std::path::Path;

/// Identifies a file independently of its path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FileId(Inner);

#[cfg(unix)]
type Inner = (u64, u64);
/// Other systems give no number, and none is needed: their locks belong to handles.
#[cfg(not(unix))]
type Inner = std::path::PathBuf;

impl FileId {
    /// The file at `path`, a path without links that `metadata` was read from.
    #[cfg(unix)]
    pub(super) fn new(_: &Path, metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self((metadata.dev(), metadata.ino()))
    }

    /// A name for this process's own files about it.
    #[cfg(all(unix, any(test, not(any(target_os = "linux", target_os = "android")))))]
    pub(super) fn name_in_process(&self) -> String {
        let (device, number) = self.0;
        format!("syncguard-{}-{device}-{number}", std::process::id())
    }

    #[cfg(not(unix))]
    pub(super) fn new(path: &Path, _: &Metadata) -> Self {
        Self(path.to_owned())
    }
}
