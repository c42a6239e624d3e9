//! A clock that can be set, for processes that run under libfaketime.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::record::now;
use crate::store_faults::ClockStep;

/// The clock, and how it was set.
pub struct Clock {
    folder: TempDir,
    library: PathBuf,
    ahead_ms: i64,
    steps: Vec<ClockStep>,
}

impl Clock {
    /// One that shows the right time.
    ///
    /// # Errors
    /// libfaketime is missing, or the system's.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // PostgreSQL runs as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let clock = Self {
            folder,
            library: library()?,
            ahead_ms: 0,
            steps: Vec::new(),
        };
        clock.show(0)?;
        Ok(clock)
    }

    /// For the environment of a process that shall read it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let file = self.file();
        // With malloc of the C library: jemalloc, which Debian's Redis has, asks for the time before libfaketime knows it.
        let libraries = format!("{}:libc.so.6", self.library.display());
        [
            ("LD_PRELOAD", libraries.into()),
            ("FAKETIME_TIMESTAMP_FILE", file.to_string_lossy()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value.into_owned()))
        .into()
    }

    /// For a process whose clock is ahead by that much for ever.
    pub fn apart_by_ms(&self, ahead_ms: i64) -> Vec<(String, String)> {
        let mut environment = self.environment();
        environment.retain(|(name, _)| name != "FAKETIME_TIMESTAMP_FILE");
        environment.push(("FAKETIME".to_owned(), text(ahead_ms)));
        environment
    }

    /// Sets it so that it is ahead of the machine's clock by that much, or behind it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&mut self, ahead_ms: i64) -> io::Result<()> {
        let before = now();
        self.show(ahead_ms)?;
        self.ahead_ms = ahead_ms;
        self.steps.push(ClockStep {
            between: (before, now()),
            ahead_ms,
        });
        Ok(())
    }

    /// How it was set until now.
    pub fn steps(&self) -> &[ClockStep] {
        &self.steps
    }

    fn show(&self, ahead_ms: i64) -> io::Result<()> {
        let new = self.folder.path().join("new");
        fs::write(&new, text(ahead_ms))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }
}

/// How libfaketime is told.
fn text(ahead_ms: i64) -> String {
    let sign = if ahead_ms < 0 { '-' } else { '+' };
    let (seconds, rest) = (ahead_ms.abs() / 1000, ahead_ms.abs() % 1000);
    format!("{sign}{seconds}.{rest:03}")
}

/// Where Debian's package `faketime` puts it.
fn library() -> io::Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib")?
        .flatten()
        .map(|entry| entry.path());
    let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let found = found.into_iter().find(|library| Path::exists(library));
    found.ok_or_else(|| io::Error::other("libfaketime is missing: install the package faketime"))
}
