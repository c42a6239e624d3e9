//! Errors of SQLite and of the file system, as errors of this crate. No type of the driver's errors is used outside
//! this file.

use std::io;

use rusqlite::ffi;

use crate::text::error::{Error, ErrorKind};

const DAMAGED: &str = "the lock file is damaged: stop the processes that use it, then restore it or \
     move it away, together with its -wal and -shm files";

const MOVED: &str = "the lock file was moved, replaced or deleted while it was in use";

/// The error for a failure of SQLite.
pub(super) fn from_sqlite(error: rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(code, _) => {
            let (kind, message) = classify(code.extended_code);
            // Only the code: SQLite's text may contain the path.
            Error::new(kind, message).with_source(code)
        }
        // Columns that cannot be read: another program wrote them.
        other => malformed().with_source(other),
    }
}

/// Whether another connection holds a lock in the database, so that waiting helps.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
    matches!(
        code,
        Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL)
    )
}

/// The error for a row that no operation of this crate writes.
pub(super) fn malformed() -> Error {
    Error::new(ErrorKind::Internal, "a stored lock is malformed")
}

/// The error for a file with the right header whose contents are damaged.
pub(super) fn damaged() -> Error {
    Error::new(ErrorKind::Internal, DAMAGED)
}

/// The error for a file that is not ours.
pub(super) fn foreign() -> Error {
    Error::invalid(
        "path is not a lock file: it is not an SQLite database, or belongs to another application; \
         choose another path or move the file away",
    )
}

/// The error for a path that leads to another file than before, or to none.
pub(super) fn moved() -> Error {
    Error::new(ErrorKind::ServiceUnavailable, MOVED)
}

/// The meaning of an SQLite result code, primary or extended.
fn classify(code: i32) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    match code {
        ffi::SQLITE_READONLY_DBMOVED => {
            return (ServiceUnavailable, MOVED);
        }
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY => {
            return (
                InvalidArgument,
                "lockId is in use for another key; each acquisition needs a new one",
            );
        }
        _ => {}
    }
    match code & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => (
            ServiceUnavailable,
            "another process holds the lock file's write lock; try again later",
        ),
        ffi::SQLITE_FULL => (
            ServiceUnavailable,
            "the disk of the lock file is full; free space on it",
        ),
        ffi::SQLITE_IOERR => (
            ServiceUnavailable,
            "reading or writing the lock file failed; check the disk and free space on it",
        ),
        ffi::SQLITE_CANTOPEN => (
            ServiceUnavailable,
            "the lock file or its -wal or -shm file cannot be opened; check that they exist, that \
             this user may read and write them, and the limit of open files",
        ),
        ffi::SQLITE_NOMEM => (ServiceUnavailable, "SQLite got no memory"),
        ffi::SQLITE_PERM | ffi::SQLITE_READONLY | ffi::SQLITE_AUTH => (
            AuthFailed,
            "no right to write the lock file; give this user write access to it, to its -wal and \
             -shm files and to their folder",
        ),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => (Internal, DAMAGED),
        _ => (Internal, "SQLite failed"),
    }
}

/// What a failing system call was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileCall {
    File,
    Folder,
}

/// The error for a failure of the file system.
pub(super) fn from_io(error: io::Error, subject: FileCall) -> Error {
    let (kind, message) = classify_io(error.kind(), subject);
    Error::new(kind, message).with_source(error)
}

fn classify_io(kind: io::ErrorKind, subject: FileCall) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    match (kind, subject) {
        (io::ErrorKind::NotFound, _) => (
            InvalidArgument,
            "the folder of the lock file does not exist; create it",
        ),
        (io::ErrorKind::NotADirectory, _) => (
            InvalidArgument,
            "path leads through something that is not a folder",
        ),
        (io::ErrorKind::IsADirectory, _) => (InvalidArgument, "path is a directory; name a file"),
        (io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput, _) => {
            (InvalidArgument, "path is not a valid name for a file")
        }
        (io::ErrorKind::ReadOnlyFilesystem, _) => (
            AuthFailed,
            "the file system of the lock file is mounted read-only; mount it writable or choose \
             another path",
        ),
        (io::ErrorKind::PermissionDenied, FileCall::File) => (
            AuthFailed,
            "no right to read and write the lock file; give this user both",
        ),
        (io::ErrorKind::PermissionDenied, FileCall::Folder) => (
            AuthFailed,
            "no right to create files in the folder of the lock file; give this user write and \
             search access to it",
        ),
        (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => (
            ServiceUnavailable,
            "the disk of the lock file is full; free space on it",
        ),
        _ => (
            ServiceUnavailable,
            "the lock file cannot be opened; the cause says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::*;

    #[test]
    fn each_result_code_has_its_kind_and_its_advice() {
        for (code, kind, advice) in [
            (
                ffi::SQLITE_BUSY,
                ServiceUnavailable,
                "another process holds",
            ),
            (
                ffi::SQLITE_BUSY_SNAPSHOT,
                ServiceUnavailable,
                "another process holds",
            ),
            (
                ffi::SQLITE_BUSY_RECOVERY,
                ServiceUnavailable,
                "another process holds",
            ),
            (
                ffi::SQLITE_LOCKED,
                ServiceUnavailable,
                "another process holds",
            ),
            (
                ffi::SQLITE_PROTOCOL,
                ServiceUnavailable,
                "another process holds",
            ),
            (ffi::SQLITE_FULL, ServiceUnavailable, "free space"),
            (ffi::SQLITE_IOERR_WRITE, ServiceUnavailable, "free space"),
            (ffi::SQLITE_IOERR_SHMSIZE, ServiceUnavailable, "free space"),
            (ffi::SQLITE_CANTOPEN, ServiceUnavailable, "cannot be opened"),
            (ffi::SQLITE_NOMEM, ServiceUnavailable, "memory"),
            (ffi::SQLITE_PERM, AuthFailed, "write access"),
            (ffi::SQLITE_READONLY, AuthFailed, "write access"),
            (ffi::SQLITE_READONLY_DIRECTORY, AuthFailed, "write access"),
            (
                ffi::SQLITE_READONLY_DBMOVED,
                ServiceUnavailable,
                "replaced or deleted",
            ),
            (ffi::SQLITE_CORRUPT, Internal, "restore it"),
            (ffi::SQLITE_CORRUPT_INDEX, Internal, "restore it"),
            (ffi::SQLITE_NOTADB, Internal, "restore it"),
            (ffi::SQLITE_CONSTRAINT_UNIQUE, InvalidArgument, "lockId"),
            (ffi::SQLITE_CONSTRAINT_NOTNULL, Internal, "SQLite failed"),
            (ffi::SQLITE_ERROR, Internal, "SQLite failed"),
            (ffi::SQLITE_MISUSE, Internal, "SQLite failed"),
        ] {
            let (found, message) = classify(code);
            assert_eq!(found, kind, "code {code}");
            assert!(message.contains(advice), "code {code}: {message}");
        }
    }

    #[test]
    fn each_failure_of_the_file_system_has_its_kind_and_its_advice() {
        for (error, subject, kind, advice) in [
            (
                io::ErrorKind::NotFound,
                FileCall::Folder,
                InvalidArgument,
                "create it",
            ),
            (
                io::ErrorKind::NotADirectory,
                FileCall::Folder,
                InvalidArgument,
                "not a folder",
            ),
            (
                io::ErrorKind::IsADirectory,
                FileCall::File,
                InvalidArgument,
                "directory",
            ),
            (
                io::ErrorKind::ReadOnlyFilesystem,
                FileCall::File,
                AuthFailed,
                "read-only",
            ),
            (
                io::ErrorKind::PermissionDenied,
                FileCall::File,
                AuthFailed,
                "read and write the lock file",
            ),
            (
                io::ErrorKind::PermissionDenied,
                FileCall::Folder,
                AuthFailed,
                "folder",
            ),
            (
                io::ErrorKind::StorageFull,
                FileCall::File,
                ServiceUnavailable,
                "free space",
            ),
            (
                io::ErrorKind::QuotaExceeded,
                FileCall::File,
                ServiceUnavailable,
                "free space",
            ),
            (
                io::ErrorKind::Other,
                FileCall::File,
                ServiceUnavailable,
                "cause",
            ),
        ] {
            let (found, message) = classify_io(error, subject);
            assert_eq!(found, kind, "{error:?}");
            assert!(message.contains(advice), "{error:?}: {message}");
        }
    }

    #[test]
    fn waiting_helps_only_against_other_connections() {
        let failure = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        assert!(is_busy(&failure(ffi::SQLITE_BUSY)));
        assert!(is_busy(&failure(ffi::SQLITE_BUSY_SNAPSHOT)));
        assert!(!is_busy(&failure(ffi::SQLITE_FULL)));
        assert!(!is_busy(&rusqlite::Error::QueryReturnedNoRows));
    }
}
