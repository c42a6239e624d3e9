//! The lock file before SQLite sees it: it is made, or it is refused and stays as it was.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use super::error::{self, Subject};
use super::open_files::{self, OpenFile};
use super::schema::check_version;
use crate::error::Error;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// Opens the file with `connect` once it is known to be ours or new.
///
/// Nothing is written to a file that is neither. The check and `connect` are one step for all
/// threads of this process: see [`open_files`].
pub(super) fn open<C>(
    path: &Path,
    connect: impl FnOnce(&Path) -> Result<C, Error>,
) -> Result<(OpenFile, C), Error> {
    check_folder(path.parent().unwrap_or(path))?;
    let mut open_files = open_files::lock();
    if !open_files.contains(path) {
        check_is_regular(path)?;
        let file = open_or_create(path).map_err(|error| error::from_io(error, Subject::File))?;
        check_header(file)?;
    }
    let connection = connect(path)?;
    let entry = open_files
        .add(path)
        .map_err(|error| error::from_io(error, Subject::File))?;
    Ok((entry, connection))
}

/// SQLite makes and removes files beside the lock file, so the folder must be writable.
fn check_folder(folder: &Path) -> Result<(), Error> {
    let metadata =
        std::fs::metadata(folder).map_err(|error| error::from_io(error, Subject::Folder))?;
    if !metadata.is_dir() {
        return Err(error::from_io(
            io::ErrorKind::NotADirectory.into(),
            Subject::Folder,
        ));
    }
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| error::from_io(error.into(), Subject::Folder))?;
    }
    Ok(())
}

/// Opening a pipe or a device could block or do harm.
fn check_is_regular(path: &Path) -> Result<(), Error> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(error::from_io(
            io::ErrorKind::IsADirectory.into(),
            Subject::File,
        )),
        Ok(metadata) if !metadata.is_file() => {
            Err(Error::invalid("path is not a regular file; choose another"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error::from_io(error, Subject::File)),
    }
}

/// A new file belongs to its maker alone: lock ids are secrets. SQLite gives its other files the same mode.
fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn check_header(file: File) -> Result<(), Error> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(|error| error::from_io(error, Subject::File))?;
    if header.is_empty() {
        return Ok(());
    }
    if !header.starts_with(MAGIC) {
        return Err(Error::invalid(
            "path is not an SQLite database; choose another path or move the file away",
        ));
    }
    let number = |at: usize| -> Option<i32> {
        let bytes = header.get(at..at + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    match (number(68), number(60)) {
        (Some(application_id), Some(version)) => check_version(application_id, version),
        _ => Err(error::damaged()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::schema::{APPLICATION_ID, VERSION};
    use super::*;
    use crate::error::ErrorKind;

    fn checked(bytes: &[u8]) -> Result<(), Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        check_header(File::open(file.path()).unwrap())
    }

    fn header(application_id: i32, version: i32) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[60..64].copy_from_slice(&version.to_be_bytes());
        header[68..72].copy_from_slice(&application_id.to_be_bytes());
        header
    }

    #[test]
    fn only_new_files_and_our_own_pass() {
        assert!(checked(b"").is_ok());
        assert!(checked(&header(APPLICATION_ID, VERSION)).is_ok());
        for (bytes, kind, advice) in [
            (
                b"hello".to_vec(),
                ErrorKind::InvalidArgument,
                "not an SQLite database",
            ),
            (
                header(0, 0),
                ErrorKind::InvalidArgument,
                "another application",
            ),
            (
                header(7, VERSION),
                ErrorKind::InvalidArgument,
                "another application",
            ),
            (
                header(APPLICATION_ID, VERSION + 1),
                ErrorKind::InvalidArgument,
                "upgrade",
            ),
            (header(APPLICATION_ID, 0), ErrorKind::Internal, "damaged"),
            (MAGIC.to_vec(), ErrorKind::Internal, "damaged"),
        ] {
            let error = checked(&bytes).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.message().contains(advice), "{error}");
        }
    }
}
