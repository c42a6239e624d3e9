use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use syncguard::{AcquireOutcome, Backend, Error, ErrorKind};

use crate::child::{open_to_all, play_mounted, probe_without_privileges};
use crate::stage::{Place, backend, make_lock_file, place, snapshot};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key, try_acquire};
use crate::support::suite::tests;

tests![
    a_file_that_cannot_be_written_is_refused,
    a_file_that_cannot_be_read_is_refused,
    a_folder_that_cannot_be_written_is_refused,
    a_folder_that_cannot_be_entered_is_refused,
    a_read_only_file_system_is_refused,
    a_full_disk_is_reported_and_got_over,
    a_disk_that_is_full_from_the_start_is_reported,
];

/// A lock file in a folder that everybody may use, with the given modes.
async fn with_modes(file: u32, folder: u32) -> Place {
    let place = place();
    make_lock_file(&place.path).await;
    std::fs::set_permissions(&place.path, Permissions::from_mode(file)).unwrap();
    std::fs::set_permissions(place.folder.path(), Permissions::from_mode(folder)).unwrap();
    place
}

/// Probes as somebody whom the modes bind; `advice` must be in what is said, and nothing may change.
fn refused(place: &Place, advice: &str) {
    let said = probe_without_privileges(&place.path);
    assert!(said.starts_with("AuthFailed: "), "{said}");
    assert!(said.contains(advice), "{said}");
    // For ourselves, if we are bound by modes, too.
    let set = std::fs::set_permissions(place.folder.path(), Permissions::from_mode(0o700));
    assert!(set.is_ok());
    assert_eq!(snapshot(place.folder.path()).len(), 1);
}

async fn a_file_that_cannot_be_written_is_refused() {
    let place = with_modes(0o444, 0o777).await;
    let before = std::fs::read(&place.path).unwrap();
    refused(&place, "read and write the lock file");
    assert!(std::fs::read(&place.path).unwrap() == before);
}

async fn a_file_that_cannot_be_read_is_refused() {
    let place = with_modes(0o222, 0o777).await;
    refused(&place, "read and write the lock file");
}

async fn a_folder_that_cannot_be_written_is_refused() {
    let place = with_modes(0o666, 0o555).await;
    let before = snapshot(place.folder.path());
    refused(&place, "create files in the folder");
    assert!(snapshot(place.folder.path()) == before);
}

async fn a_folder_that_cannot_be_entered_is_refused() {
    let place = with_modes(0o666, 0o666).await;
    refused(&place, "folder");
}

async fn a_read_only_file_system_is_refused() {
    let place = place();
    make_lock_file(&place.path).await;
    open_to_all(place.folder.path());
    let before = snapshot(place.folder.path());
    let mount = r#"mount --bind "$0" "$0"; mount -o remount,ro,bind "$0""#;
    let said = play_mounted("probe", &place.path, mount);
    assert!(said.starts_with("AuthFailed: "), "{said}");
    assert!(said.contains("mounted read-only"), "{said}");
    assert!(snapshot(place.folder.path()) == before);
}

const SMALL_DISK: &str = r#"mount -t tmpfs -o size=320k tmpfs "$0""#;

async fn a_full_disk_is_reported_and_got_over() {
    let place = place();
    let said = play_mounted("full disk", &place.path, SMALL_DISK);
    assert_eq!(said, "");
}

/// The scenario "full disk": `path` is on a small disk.
pub(crate) async fn on_a_small_disk(path: &Path) {
    let backend = backend(path);
    let held = acquire(&backend, "held").await;
    let filler = path.with_file_name("filler");
    fill(&filler);

    let mut last = 0;
    let error = loop {
        match try_acquire(&backend, "busy").await {
            Ok(AcquireOutcome::Acquired(grant)) => {
                last = grant[0].fence.get();
                // May fail for want of space, as the next may.
                if let Err(error) = backend.release(&grant[0].lock_id).await {
                    break error;
                }
            }
            Ok(_) => panic!("busy is locked"),
            Err(error) => break error,
        }
    };
    assert_is_full(&error);
    assert_is_full(&try_acquire(&backend, "other").await.unwrap_err());

    std::fs::remove_file(filler).unwrap();
    // What was there is there, and what was not said to be there is not.
    assert!(backend.is_locked(&key("held")).await.unwrap());
    assert!(!backend.is_locked(&key("other")).await.unwrap());
    backend.force_release(&key("busy")).await.unwrap();
    assert!(acquire(&backend, "busy").await.fence.get() > last);
    backend.release(&held.lock_id).await.unwrap();
    backend.close().await;
    let verdict: String = Connection::open(path)
        .unwrap()
        .query_one("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let full = loop {
        if let Err(error) = file.write_all(&[0; 1024]) {
            break error;
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

fn assert_is_full(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("free space"), "{error}");
}

async fn a_disk_that_is_full_from_the_start_is_reported() {
    let place = place();
    let mount = r#"mount -t tmpfs -o size=16k tmpfs "$0"; head -c 12k /dev/zero > "$0/filler""#;
    let said = play_mounted("probe", &place.path, mount);
    assert!(said.starts_with("ServiceUnavailable: "), "{said}");
    assert!(said.contains("free space"), "{said}");
}
