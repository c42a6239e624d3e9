use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{Backend, ErrorKind};

use crate::child;
use crate::stage::{backend, place};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, is_from_the_clock, key, try_acquire};
use crate::support::suite::tests;

tests![
    the_constructor_touches_nothing,
    files_belong_to_their_maker_alone,
    the_header_is_right_at_once,
    an_empty_file_becomes_a_lock_file,
    a_missing_folder_is_named_and_tried_again,
    a_name_that_sqlite_knows_is_a_file,
    a_link_leads_to_the_file,
    many_processes_make_it_at_once,
    locks_and_fences_outlive_the_backend,
];

async fn the_constructor_touches_nothing() {
    let place = place();
    let backend = backend(&place.path);
    assert!(!place.path.exists());
    backend.close().await;
    assert!(!place.path.exists());
}

async fn files_belong_to_their_maker_alone() {
    let place = place();
    let backend = backend(&place.path);
    acquire(&backend, "a").await;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(place.folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["locks.db", "locks.db-shm", "locks.db-wal"]);
    backend.close().await;
    // The last one out puts everything into the one file.
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1);
}

async fn the_header_is_right_at_once() {
    let place = place();
    let backend = backend(&place.path);
    acquire(&backend, "a").await;
    // Read by another process: see `sole_copy.rs`.
    let mut head = Command::new("head");
    let header = head.args(["-c", "100"]).arg(&place.path).output().unwrap();
    let header = header.stdout;
    assert_eq!(&header[..16], b"SQLite format 3\0");
    assert_eq!(&header[68..72], b"SGLK");
    assert_eq!(&header[60..64], &[0, 0, 0, 1]);
    backend.close().await;
}

async fn an_empty_file_becomes_a_lock_file() {
    let place = place();
    std::fs::write(&place.path, b"").unwrap();
    let backend = backend(&place.path);
    assert!(is_from_the_clock(acquire(&backend, "a").await.fence.get()));
}

async fn a_missing_folder_is_named_and_tried_again() {
    let place = place();
    let folder = place.folder.path().join("missing");
    let backend = backend(&folder.join("locks.db"));
    let error = try_acquire(&backend, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("create it"), "{error}");
    assert!(!error.to_string().contains("missing"), "{error}");
    assert!(!folder.exists());
    std::fs::create_dir(&folder).unwrap();
    acquire(&backend, "a").await;
}

async fn a_name_that_sqlite_knows_is_a_file() {
    let place = place();
    for name in [":memory:", "file:x?mode=memory", "a%20b?c#d"] {
        let path = place.folder.path().join(name);
        let backend = backend(&path);
        acquire(&backend, "a").await;
        backend.close().await;
        assert!(path.is_file());
    }
}

async fn a_link_leads_to_the_file() {
    let place = place();
    let link = place.folder.path().join("link");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    let (direct, linked) = (backend(&place.path), backend(&link));
    acquire(&direct, "a").await;
    assert!(linked.is_locked(&key("a")).await.unwrap());
}

async fn many_processes_make_it_at_once() {
    for _ in 0..4 {
        let place = place();
        let children: Vec<_> = (0..8).map(|_| probe(&place.path)).collect();
        let mut fences = Vec::new();
        for child in children {
            let said = child::said(child.wait_with_output().unwrap());
            match said.strip_prefix("fence ") {
                Some(fence) => fences.push(fence.parse::<u64>().unwrap()),
                // They all take the same key.
                None => assert_eq!(said, "locked"),
            }
        }
        let different: HashSet<_> = fences.iter().collect();
        assert!(!fences.is_empty() && different.len() == fences.len());
    }
}

fn probe(path: &Path) -> std::process::Child {
    let mut command = child::command("probe", path);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    command.spawn().unwrap()
}

async fn locks_and_fences_outlive_the_backend() {
    let place = place();
    let first = backend(&place.path);
    let held = acquire(&first, "held").await;
    let freed = acquire(&first, "freed").await;
    first.release(&freed.lock_id).await.unwrap();
    first.close().await;
    let second = SqliteBackend::new(SqliteConfig::file(&place.path)).unwrap();
    assert!(second.is_locked(&key("held")).await.unwrap());
    second.release(&held.lock_id).await.unwrap();
    for (name, before) in [("held", held), ("freed", freed)] {
        assert!(acquire(&second, name).await.fence > before.fence);
    }
}
