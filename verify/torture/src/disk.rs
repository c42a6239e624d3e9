//! A small disk that can be filled.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory. It needs root.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Mounts one of that size.
    ///
    /// # Errors
    /// `mount` fails: it must be called by root.
    pub fn mount(megabytes: u32) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sg-disk").tempdir()?;
        let size = format!("size={megabytes}m,mode=755");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .output()?;
        if !mounted.status.success() {
            let why = String::from_utf8_lossy(&mounted.stderr);
            return Err(io::Error::other(format!(
                "a small disk must be mounted, which only root may: {why}"
            )));
        }
        Ok(Self { folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves no room on it.
    ///
    /// # Errors
    /// Others than that it is full.
    pub fn fill(&self) -> io::Result<()> {
        let mut ballast = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.ballast())?;
        loop {
            match ballast.write_all(&[0; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes room again.
    ///
    /// # Errors
    /// The system's.
    pub fn empty(&self) -> io::Result<()> {
        fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is still open there keeps it until it is closed.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.folder.path())
            .status();
    }
}
