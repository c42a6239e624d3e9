use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use syncguard::{Backend, Error, ErrorKind};

use crate::stage::{Place, backend, make_lock_file, place, snapshot};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, is_from_the_clock, key, try_acquire};
use crate::support::suite::tests;

tests![
    another_kind_of_file_is_refused,
    a_database_of_another_application_is_refused,
    what_another_application_left_half_done_is_refused,
    a_file_of_another_version_is_refused,
    a_file_with_garbage_after_its_header_is_refused,
    a_file_with_a_damaged_table_is_refused,
    a_truncated_file_is_refused,
    a_file_without_its_tables_is_refused,
    a_path_that_is_no_file_is_refused,
    a_path_that_is_too_long_is_refused_and_leaves_no_file,
    once_the_reason_is_gone_the_same_backend_works,
];

/// What the backend says of a file, all operations alike; the folder stays as it was.
async fn refused(place: &Place, kind: ErrorKind, advice: &str) -> Error {
    let before = snapshot(place.folder.path());
    let backend = backend(&place.path);
    let error = try_acquire(&backend, "a").await.unwrap_err();
    let again = backend.is_locked(&key("a")).await.unwrap_err();
    backend.close().await;
    for error in [&error, &again] {
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.message().contains(advice), "{error}");
        assert!(!error.is_outcome_unknown());
    }
    let mut after = snapshot(place.folder.path());
    if kind == ErrorKind::Internal {
        // It is one of ours, and SQLite had to look into it: an empty -wal and an index may be left.
        let side = |end: &str| PathBuf::from(format!("{}{end}", place.path.display()));
        after.remove(&side("-shm"));
        assert_eq!(after.remove(&side("-wal")).unwrap_or_default(), b"");
    }
    assert!(after == before, "a file has changed");
    error
}

async fn another_kind_of_file_is_refused() {
    for content in [
        &b"x"[..],
        b"hello, world\n",
        &[0; 5000],
        b"SQLite format 2\0",
        // Cut off before it says whose it is.
        b"SQLite format 3\0",
    ] {
        let place = place();
        std::fs::write(&place.path, content).unwrap();
        refused(&place, ErrorKind::InvalidArgument, "not an SQLite database").await;
    }
}

/// A database that is not ours.
fn foreign(path: &Path, journal_mode: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .pragma_update_and_check(None, "journal_mode", journal_mode, |_| Ok(()))
        .unwrap();
    connection
        .execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')")
        .unwrap();
    connection
}

async fn a_database_of_another_application_is_refused() {
    for mode in ["DELETE", "WAL"] {
        for application_id in [0, 7] {
            let place = place();
            let connection = foreign(&place.path, mode);
            connection
                .pragma_update(None, "application_id", application_id)
                .unwrap();
            drop(connection);
            refused(&place, ErrorKind::InvalidArgument, "another application").await;
        }
    }
}

/// What a kill -9 leaves: SQLite would repair it on the first read, and so write to it.
async fn what_another_application_left_half_done_is_refused() {
    for (mode, side_file) in [("WAL", "locks.db-wal"), ("DELETE", "locks.db-journal")] {
        let origin = place();
        let connection = foreign(&origin.path, mode);
        connection.pragma_update(None, "cache_size", 1).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        for _ in 0..500 {
            connection
                .execute("INSERT INTO notes VALUES (?1)", ["x".repeat(500)])
                .unwrap();
        }
        let left = place();
        for (path, content) in snapshot(origin.folder.path()) {
            let name = path.file_name().unwrap();
            std::fs::write(left.folder.path().join(name), content).unwrap();
        }
        assert!(left.folder.path().join(side_file).exists());
        refused(&left, ErrorKind::InvalidArgument, "another application").await;
    }
}

async fn a_file_of_another_version_is_refused() {
    let place = place();
    make_lock_file(&place.path).await;
    let connection = Connection::open(&place.path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    refused(&place, ErrorKind::InvalidArgument, "upgrade").await;
    let connection = Connection::open(&place.path).unwrap();
    connection.pragma_update(None, "user_version", 0).unwrap();
    drop(connection);
    refused(&place, ErrorKind::Internal, "restore it").await;
}

/// Overwrites a part of a lock file with garbage.
async fn damaged(from: usize, to: Option<usize>) -> Place {
    let place = place();
    make_lock_file(&place.path).await;
    let mut content = std::fs::read(&place.path).unwrap();
    let to = to.unwrap_or(content.len());
    content[from..to].fill(0xA5);
    std::fs::write(&place.path, content).unwrap();
    place
}

async fn a_file_with_garbage_after_its_header_is_refused() {
    let place = damaged(100, None).await;
    refused(&place, ErrorKind::Internal, "restore it").await;
}

async fn a_file_with_a_damaged_table_is_refused() {
    // The first page, with the list of tables, is whole.
    let place = damaged(4096, None).await;
    refused(&place, ErrorKind::Internal, "restore it").await;
}

async fn a_truncated_file_is_refused() {
    for length in [100, 4096, 5000] {
        let place = place();
        make_lock_file(&place.path).await;
        let content = std::fs::read(&place.path).unwrap();
        std::fs::write(&place.path, &content[..length]).unwrap();
        refused(&place, ErrorKind::Internal, "restore it").await;
    }
}

async fn a_file_without_its_tables_is_refused() {
    let place = place();
    make_lock_file(&place.path).await;
    let connection = Connection::open(&place.path).unwrap();
    connection
        .execute_batch("DROP TABLE syncguard_fence_counters")
        .unwrap();
    drop(connection);
    refused(&place, ErrorKind::Internal, "restore it").await;
}

async fn a_path_that_is_no_file_is_refused() {
    let place = place();
    let folder = place.folder.path();
    std::fs::create_dir(folder.join("directory")).unwrap();
    std::fs::write(folder.join("file"), b"").unwrap();
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status();
    assert!(made.unwrap().success());
    let cases: [(PathBuf, &str); 4] = [
        (folder.join("directory"), "is a directory"),
        (folder.join("file/locks.db"), "not a folder"),
        (folder.join("pipe"), "not a regular file"),
        (folder.join("x".repeat(300)), "path is too long"),
    ];
    for (path, advice) in cases {
        let error = try_acquire(&backend(&path), "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(error.message().contains(advice), "{error}");
    }
}

async fn a_path_that_is_too_long_is_refused_and_leaves_no_file() {
    let place = place();
    let folder = place.folder.path().canonicalize().unwrap();
    // SQLite adds to both the names of its other files.
    let mut deep = folder.clone();
    while deep.as_os_str().len() < 400 {
        deep.push("d".repeat(50));
    }
    std::fs::create_dir_all(&deep).unwrap();
    let of_length = |length: usize| deep.join("f".repeat(length - deep.as_os_str().len() - 1));
    for (longest, longer) in [
        (folder.join("n".repeat(247)), folder.join("n".repeat(248))),
        (of_length(504), of_length(505)),
    ] {
        let error = try_acquire(&backend(&longer), "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(
            error.message().contains("path is too long for SQLite"),
            "{error}"
        );
        assert!(!longer.exists());
        acquire(&backend(&longest), "a").await;
        // What counts is where links lead.
        let link = folder.join("link");
        std::os::unix::fs::symlink(&longer, &link).unwrap();
        let error = try_acquire(&backend(&link), "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(!longer.exists());
        std::fs::remove_file(link).unwrap();
    }
}

async fn once_the_reason_is_gone_the_same_backend_works() {
    let place = damaged(4096, None).await;
    let backend = backend(&place.path);
    try_acquire(&backend, "a").await.unwrap_err();
    std::fs::remove_file(&place.path).unwrap();
    std::fs::write(&place.path, b"hello").unwrap();
    let error = try_acquire(&backend, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    std::fs::remove_file(&place.path).unwrap();
    assert!(is_from_the_clock(acquire(&backend, "a").await.fence.get()));
}
