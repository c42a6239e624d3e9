//! A file.

use std::io;

use super::row::Row;
use super::stage::{Act, ClockOf, DOWN, Stage, Store};
use super::{processes, redis};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::workers::Workers;

const NAME: &str = "sqlite";

pub(crate) struct Sqlite {
    folder: tempfile::TempDir,
    disk: Option<Disk>,
}

impl Sqlite {
    fn start(_: Option<&Clock>) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { folder, disk: None })
    }

    fn on_small_disk(_: Option<&Clock>) -> io::Result<Self> {
        let disk = Disk::mount(16)?;
        let folder = tempfile::tempdir_in(disk.path())?;
        Ok(Self {
            folder,
            disk: Some(disk),
        })
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("locks.db")
    }
}

impl Store for Sqlite {
    fn url(&self, _: Option<u16>) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The file is whole, and no lock in it is live.
    fn left(&mut self) -> io::Result<Vec<String>> {
        let left = || -> rusqlite::Result<Vec<String>> {
            let file = rusqlite::Connection::open(self.path())?;
            let whole =
                "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'";
            let live = "SELECT key FROM syncguard_locks WHERE expires_at_ms > 1000 * (unixepoch('subsec') - 1)";
            let mut left = Vec::new();
            for query in [whole, live] {
                let mut query = file.prepare(query)?;
                let rows = query.query_map([], |row| row.get(0))?;
                left.extend(rows.collect::<rusqlite::Result<Vec<String>>>()?);
            }
            Ok(left)
        };
        left().map_err(io::Error::other)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let act = |name, strike| Act::new(NAME, name, Sqlite::start, strike);
    let mut rows = processes::rows(NAME, Sqlite::start, DOWN);
    rows.extend([
        processes::files(NAME, Sqlite::start),
        act("busy", keep_busy).seen(DOWN).into(),
        act("clock-of-machine", redis::step)
            .seen(DOWN)
            .clock(ClockOf::Machine)
            .into(),
        Act::new(NAME, "disk-full", Sqlite::on_small_disk, fill_disk)
            .seen(DOWN)
            .spread()
            .into(),
    ]);
    rows
}

/// Somebody else writes for a long time.
fn keep_busy(stage: &mut Stage<Sqlite>, _: &mut Workers<'_>) -> io::Result<()> {
    let other = rusqlite::Connection::open(stage.store.path()).map_err(io::Error::other)?;
    let timeout = other.busy_timeout(std::time::Duration::from_secs(10));
    timeout.map_err(io::Error::other)?;
    other
        .execute_batch("BEGIN IMMEDIATE")
        .map_err(io::Error::other)?;
    stage.pause(300..3_000);
    other.execute_batch("ROLLBACK").map_err(io::Error::other)
}

/// What is written needs room for the log, and there is none: the log that there is is emptied, until nobody could write
/// in the meantime.
fn fill_disk(stage: &mut Stage<Sqlite>, _: &mut Workers<'_>) -> io::Result<()> {
    let pause = stage.time(300..2_000);
    let store = &stage.store;
    let disk = store.disk.as_ref();
    let disk = disk.ok_or_else(|| io::Error::other("a row without a disk"))?;
    let file = rusqlite::Connection::open(store.path()).map_err(io::Error::other)?;
    for _ in 0..10 {
        // Others may be reading or writing.
        let _ = file.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        disk.fill()?;
    }
    drop(file);
    std::thread::sleep(pause);
    disk.empty()
}
