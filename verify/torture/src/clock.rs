//! A clock that can be set, for processes that run under libfaketime; and one that stands still while a machine is suspended.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::record::now;
use crate::store_faults::ClockStep;

/// The clock, and how it was set.
pub struct Clock {
    folder: TempDir,
    environment: Vec<(String, String)>,
    /// How the library is told how far it is ahead, in milliseconds.
    told: fn(i64) -> String,
    ahead_ms: i64,
    steps: Vec<ClockStep>,
}

impl Clock {
    /// One that shows the right time.
    ///
    /// # Errors
    /// libfaketime is missing, or the system's.
    pub fn new() -> io::Result<Self> {
        // With malloc of the C library: jemalloc, which Debian's Redis has, asks for the time before libfaketime knows it.
        let libraries = format!("{}:libc.so.6", library()?.display());
        let others = [
            ("LD_PRELOAD", libraries.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        Self::told_by(
            "FAKETIME_TIMESTAMP_FILE",
            text,
            tempfile::tempdir()?,
            &others,
        )
    }

    /// `CLOCK_MONOTONIC` of a machine that is [suspended](Self::lacks) at times. Its other clocks are right.
    ///
    /// # Errors
    /// There is no C compiler, or the system's.
    pub fn of_suspended_machine() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (source, library) = (
            folder.path().join("clocks.c"),
            folder.path().join("clocks.so"),
        );
        fs::write(&source, CLOCKS)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        compiler.arg(&library).arg(&source);
        if !compiler.status()?.success() {
            return Err(io::Error::other("cc has not compiled clocks.c"));
        }
        let behind = |ahead_ms: i64| (-ahead_ms).to_string();
        let library = library.to_string_lossy().into_owned();
        Self::told_by(
            "CLOCKS_BEHIND_MS",
            behind,
            folder,
            &[("LD_PRELOAD", &library)],
        )
    }

    /// One whose library reads in the file that `variable` names how far it is ahead.
    fn told_by(
        variable: &str,
        told: fn(i64) -> String,
        folder: TempDir,
        others: &[(&str, &str)],
    ) -> io::Result<Self> {
        // PostgreSQL runs as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let mut clock = Self {
            folder,
            environment: Vec::new(),
            told,
            ahead_ms: 0,
            steps: Vec::new(),
        };
        let file = clock.file().to_string_lossy().into_owned();
        let all = others.iter().copied().chain([(variable, file.as_str())]);
        clock.environment = all
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        clock.show(0)?;
        Ok(clock)
    }

    /// For the environment of a process that shall read it.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.environment.clone()
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

    /// The machine has been suspended for that long.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn lacks(&mut self, time: Duration) -> io::Result<()> {
        let ms = i64::try_from(time.as_millis()).map_err(io::Error::other)?;
        self.set(self.ahead_ms - ms)
    }

    /// How it was set until now.
    pub fn steps(&self) -> &[ClockStep] {
        &self.steps
    }

    fn show(&self, ahead_ms: i64) -> io::Result<()> {
        let new = self.folder.path().join("new");
        fs::write(&new, (self.told)(ahead_ms))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }
}

/// The library of the core's own tests for a suspended machine.
const CLOCKS: &str = include_str!("../../../crates/syncguard/tests/sqlite/clocks.c");

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
