//! The lock file: finds or creates it before SQLite opens it, and notices when its path leads elsewhere.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::file_system::network_file_system;
use super::sole_copy::{FileId, SoleCopies, SoleCopy, held_by_another_copy, id_of};
use crate::random;
use crate::sqlite::error::{self, FileCall};
use crate::text::error::Error;

/// How long to wait for another copy of the library in this process to close the file.
const PATIENCE: Duration = Duration::from_millis(100);

/// A lock file that only this copy of the library has open in this process. Dropped after its connection.
pub(super) struct LockFile {
    /// The path as the user gave it.
    path: PathBuf,
    /// The same without links.
    real: PathBuf,
    id: FileId,
    _sole: Arc<SoleCopy>,
}

impl LockFile {
    /// Finds the file, or creates an empty one. Nothing is written to a file that is no lock file.
    pub(super) fn open(path: &Path, allow_network_file_system: bool) -> Result<Self, Error> {
        Self::open_where(path, allow_network_file_system, network_file_system)
    }

    /// The same; `network_file_system` gives the network file system that a folder is on, if any.
    fn open_where(
        path: &Path,
        allow_network_file_system: bool,
        network_file_system: impl Fn(&Path) -> io::Result<Option<String>>,
    ) -> Result<Self, Error> {
        let real = without_links(path)?;
        check_length(&real)?;
        let folder = real.parent().unwrap_or(&real);
        check_folder(folder)?;
        if !allow_network_file_system {
            check_is_local(folder, network_file_system)?;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let mut files = SoleCopies::lock();
            let id = make_or_check(&real)?;
            if let Some(copy) = files.enter(&real, FileId::clone(&id))? {
                let path = path.to_owned();
                return Ok(Self {
                    path,
                    real,
                    id,
                    _sole: copy,
                });
            }
            drop(files);
            if Instant::now() >= until {
                return Err(held_by_another_copy());
            }
            // Two copies that came at the same moment gave way to each other: wait for different times.
            let step = Duration::from_millis(5).mul_f64(random::unit().unwrap_or(0.5));
            std::thread::sleep(step);
        }
    }

    /// Where SQLite finds the file.
    pub(super) fn real_path(&self) -> &Path {
        &self.real
    }

    /// Checks that the path still leads to this file, and that the file has no other name. If the file was
    /// replaced, those who use the new file would not see what is written to the old one.
    pub(super) fn check_is_in_place(&self) -> Result<(), Error> {
        let metadata = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error::moved()),
            other => other.map_err(|error| error::from_io(error, FileCall::File))?,
        };
        check_has_one_name(&metadata)?;
        #[cfg(unix)]
        let path = &self.path;
        #[cfg(not(unix))]
        let path = &without_links(&self.path)?;
        if id_of(path, &metadata) == self.id {
            Ok(())
        } else {
            Err(error::moved())
        }
    }
}

/// The path to the same file without symbolic links. SQLite follows links and keeps its other files where they lead,
/// so that is where everything has to be checked.
fn without_links(path: &Path) -> Result<PathBuf, Error> {
    let failed = |error| error::from_io(error, FileCall::Folder);
    let mut path = path.to_owned();
    // As many links as operating systems follow.
    for _ in 0..40 {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return path.canonicalize().map_err(failed);
        };
        let folder = folder.canonicalize().map_err(failed)?;
        let here = folder.join(name);
        match std::fs::read_link(&here) {
            Ok(target) => path = folder.join(target),
            // Not a link, or the file does not exist yet.
            Err(_) => return Ok(here),
        }
    }
    Err(Error::invalid("path leads through too many symbolic links"))
}

/// The longest path, and the longest name in it, to which SQLite can add the names of its other files, in bytes: `-journal` is the
/// longest of these. SQLite takes paths of 511 bytes and a zero, and file systems names of 255.
const LONGEST_PATH: usize = 504;
const LONGEST_NAME: usize = 247;

/// SQLite would find that out when it has created the lock file.
fn check_length(real: &Path) -> Result<(), Error> {
    let name = real.file_name().unwrap_or_default();
    if cfg!(unix) && (real.as_os_str().len() > LONGEST_PATH || name.len() > LONGEST_NAME) {
        return Err(Error::invalid(format!(
            "path is too long for SQLite: without links, it may have {LONGEST_PATH} bytes, and the name of the file \
             {LONGEST_NAME}"
        )));
    }
    Ok(())
}

/// SQLite creates and removes files beside the lock file, so the folder must be writable.
fn check_folder(folder: &Path) -> Result<(), Error> {
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        // With the dot, what is no folder is an error of its own.
        access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| error::from_io(error.into(), FileCall::Folder))?;
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn check_is_local(
    folder: &Path,
    network_file_system: impl Fn(&Path) -> io::Result<Option<String>>,
) -> Result<(), Error> {
    match network_file_system(folder) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => Err(Error::invalid(format!(
            "path is on a network file system ({name}), where other machines do not see SQLite's \
             locks: choose a path on a local disk, or a server; or set allowNetworkFileSystem if \
             no other machine uses the file"
        ))),
        Err(error) => Err(error::from_io(error, FileCall::Folder)),
    }
}

/// Checks that the file may be used as a lock file, or creates it. Gives its id.
fn make_or_check(path: &Path) -> Result<FileId, Error> {
    let failed = |error| error::from_io(error, FileCall::File);
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path).map_err(failed)?;
            std::fs::metadata(path).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        // Opening a pipe or a device could block or have side effects.
        return Err(Error::invalid("path is not a regular file; choose another"));
    }
    check_has_one_name(&metadata)?;
    check_is_not_mounted(path)?;
    Ok(id_of(path, &metadata))
}

/// Creates an empty file, unless somebody else has just done so. Only its owner may read it, because lock ids are
/// secrets. SQLite gives its other files the same mode.
fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// SQLite names its other files after the lock file, so users of a second name would not share them.
fn check_has_one_name(metadata: &Metadata) -> Result<(), Error> {
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(metadata) > 1 {
        return Err(Error::invalid(
            "the lock file has another name, a hard link, whose users would not see the locks of \
             the users of this one: remove one of the two, or make it a symbolic link",
        ));
    }
    #[cfg(not(unix))]
    let _ = metadata;
    Ok(())
}

/// A mount of the file alone, as in containers, is also a second name.
fn check_is_not_mounted(path: &Path) -> Result<(), Error> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
        // Older kernels do not tell whether a file is a mount point.
        if let Ok(status) = statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
            && status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        {
            return Err(Error::invalid(
                "the lock file is mounted by itself, and SQLite's files beside it are not, so that \
                 others would not see its locks: mount its folder instead",
            ));
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = path;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    /// Opens a file in a folder of which `kind` is said; whether it was opened.
    fn opened_on(kind: Option<&str>, allow: bool) -> Result<(), Error> {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().canonicalize().unwrap();
        let link = folder.join("link");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let asked = |asked: &Path| {
            assert_eq!(asked, folder);
            Ok(kind.map(str::to_owned))
        };
        let result = LockFile::open_where(&link.join("locks.db"), allow, asked);
        assert_eq!(folder.join("locks.db").exists(), result.is_ok());
        result.map(drop)
    }

    #[test]
    fn a_network_file_system_is_refused_and_named() {
        let error = opened_on(Some("NFS"), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("(NFS)"), "{error}");
        assert!(
            error.message().contains("allowNetworkFileSystem"),
            "{error}"
        );
        opened_on(Some("NFS"), true).unwrap();
        opened_on(None, false).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_asked_is_refused() {
        let stale = |_: &Path| Err(io::ErrorKind::StaleNetworkFileHandle.into());
        let error = check_is_local(Path::new("/"), stale).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    }
}
