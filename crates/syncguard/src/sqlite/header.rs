//! The first bytes of the lock file, which say which application it belongs to.

use std::fs::File;
use std::io::Read;

use super::error::{self, Subject};
use super::schema::check_version;
use crate::error::Error;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// Checks that a file is new or a lock file.
pub(super) fn check(file: File) -> Result<(), Error> {
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
        check(File::open(file.path()).unwrap())
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
