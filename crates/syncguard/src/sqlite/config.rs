use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::background::backend::DEFAULT_OPERATION_TIMEOUT;
use crate::text::error::Error;

/// Where the locks are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// In this file. If it is missing it is created, readable and writable by its owner only; its folder must
    /// exist. SQLite keeps two more files beside it, `-wal` and `-shm`.
    File(PathBuf),
    /// In this backend's memory: no other backend sees them, and they end with it.
    Memory,
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File(…)",
            Self::Memory => "Memory",
        })
    }
}

/// The settings of an SQLite backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteConfig {
    /// Where the locks are kept.
    pub location: Location,
    /// Whether `is_locked` deletes a lock that expired more than two seconds ago. The answer is the same, but the
    /// call may write. `false` unless set.
    pub cleanup_in_is_locked: bool,
    /// How long one operation may take, including the wait for other processes:
    /// [`DEFAULT_OPERATION_TIMEOUT`] unless set, at most [`MAX_OPERATION_TIMEOUT`](Self::MAX_OPERATION_TIMEOUT).
    pub operation_timeout: Duration,
    /// Whether the file may be on a network file system, where locks do not exclude processes on other machines.
    /// `false` unless set: such a path is refused.
    pub allow_network_file_system: bool,
}

impl SqliteConfig {
    /// The longest time for one operation: an hour.
    pub const MAX_OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

    /// Locks in a file, shared by all processes of this machine that name the same file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Location::File(path.into()))
    }

    /// Locks in the memory of this backend alone, for example for tests.
    pub fn in_memory() -> Self {
        Self::new(Location::Memory)
    }

    fn new(location: Location) -> Self {
        Self {
            location,
            cleanup_in_is_locked: false,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            allow_network_file_system: false,
        }
    }

    /// The same configuration with an absolute path, or what is wrong with it.
    pub(super) fn validated(mut self) -> Result<Self, Error> {
        if self.operation_timeout.is_zero() || self.operation_timeout > Self::MAX_OPERATION_TIMEOUT
        {
            return Err(Error::invalid(format!(
                "operationTimeoutMs must be from 1 to {}",
                Self::MAX_OPERATION_TIMEOUT.as_millis()
            )));
        }
        if let Location::File(path) = &mut self.location {
            *path = absolute(path)?;
        }
        Ok(self)
    }
}

/// The absolute path, so that a later change of the working directory does not matter, and so that SQLite does not
/// mistake the path for one of its special names (`:memory:`, `file:…`).
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let text = path.as_os_str().as_encoded_bytes();
    if text.is_empty() {
        return Err(Error::invalid("path must not be empty"));
    }
    if text.contains(&0) {
        return Err(Error::invalid("path must not contain a NUL character"));
    }
    if path.file_name().is_none() || text.ends_with(b"/") {
        return Err(Error::invalid("path must name a file, not a directory"));
    }
    std::path::absolute(path).map_err(|error| {
        Error::invalid("path is relative and there is no working directory").with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn refused(config: SqliteConfig) -> String {
        let error = config.validated().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn a_path_must_name_a_file() {
        assert_eq!(refused(SqliteConfig::file("")), "path must not be empty");
        assert_eq!(
            refused(SqliteConfig::file("a\0b")),
            "path must not contain a NUL character"
        );
        for path in ["/", "..", "some/folder/"] {
            assert_eq!(
                refused(SqliteConfig::file(path)),
                "path must name a file, not a directory"
            );
        }
    }

    #[test]
    fn special_names_of_sqlite_are_files_like_any_other() {
        for name in [":memory:", "file:x?mode=memory"] {
            let config = SqliteConfig::file(name).validated().unwrap();
            let Location::File(path) = config.location else {
                panic!("a file became something else");
            };
            assert!(path.is_absolute() && path.ends_with(name));
        }
    }

    #[test]
    fn the_time_limit_has_bounds() {
        for timeout in [Duration::ZERO, Duration::from_secs(3601), Duration::MAX] {
            let mut config = SqliteConfig::in_memory();
            config.operation_timeout = timeout;
            assert_eq!(
                refused(config),
                "operationTimeoutMs must be from 1 to 3600000"
            );
        }
    }

    #[test]
    fn debug_output_does_not_show_the_path() {
        let config = SqliteConfig::file("/home/alice/locks.db");
        assert!(!format!("{config:?}").contains("alice"));
    }
}
