use std::os::unix::fs::symlink;
use std::path::Path;

use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncguard::{AcquireOutcome, Backend, Error, ErrorKind};

use crate::child;
use crate::sharing::locks_on;
use crate::stage::{backend, make_lock_file, place};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key, try_acquire};
use crate::support::suite::tests;

tests![
    symbolic_links_lead_to_the_file_for_all_processes,
    a_link_to_nothing_makes_the_file_that_it_names,
    links_in_a_circle_are_refused,
    a_hard_link_is_refused,
    a_hard_link_that_is_made_later_is_noticed,
    a_file_that_is_mounted_alone_is_refused,
    a_file_of_a_lower_layer_is_one_file,
    a_file_that_is_replaced_is_left,
    a_file_that_the_process_has_open_otherwise_is_left_alone,
    a_process_without_descriptors_is_told_to_come_again,
];

fn probe(path: &Path) -> String {
    child::said(child::command("probe", path).output().unwrap())
}

async fn symbolic_links_lead_to_the_file_for_all_processes() {
    let place = place();
    let folder = place.folder.path();
    symlink("locks.db", folder.join("link")).unwrap();
    symlink(folder.join("link"), folder.join("link to link")).unwrap();
    symlink(folder, folder.join("folder")).unwrap();
    let backend = backend(&place.path);
    let held = acquire(&backend, "probe").await;
    let names = ["link", "link to link", "folder/locks.db", "folder/link"];
    for name in names {
        assert_eq!(probe(&folder.join(name)), "locked", "{name}");
    }
    backend.release(&held.lock_id).await.unwrap();
    let mut last = held.fence.get();
    for name in names {
        let said = probe(&folder.join(name));
        let fence = said.strip_prefix("fence ").unwrap().parse().unwrap();
        assert!(fence > last, "{name}");
        last = fence;
    }
}

async fn a_link_to_nothing_makes_the_file_that_it_names() {
    let place = place();
    let link = place.folder.path().join("link");
    symlink("locks.db", &link).unwrap();
    let linked = backend(&link);
    acquire(&linked, "probe").await;
    assert!(place.path.is_file() && link.is_symlink());
    assert_eq!(probe(&place.path), "locked");
}

async fn links_in_a_circle_are_refused() {
    let place = place();
    symlink("other", &place.path).unwrap();
    symlink("locks.db", place.folder.path().join("other")).unwrap();
    let error = try_acquire(&backend(&place.path), "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("symbolic links"), "{error}");
}

fn assert_is_linked(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    assert!(error.message().contains("hard link"), "{error}");
}

async fn a_hard_link_is_refused() {
    let place = place();
    make_lock_file(&place.path).await;
    let link = place.folder.path().join("link.db");
    std::fs::hard_link(&place.path, &link).unwrap();
    for path in [&place.path, &link] {
        assert_is_linked(&try_acquire(&backend(path), "a").await.unwrap_err());
        assert!(probe(path).contains("hard link"));
    }
    std::fs::remove_file(&link).unwrap();
    acquire(&backend(&place.path), "a").await;
}

async fn a_hard_link_that_is_made_later_is_noticed() {
    let place = place();
    let backend = backend(&place.path);
    let held = acquire(&backend, "a").await;
    let link = place.folder.path().join("link.db");
    std::fs::hard_link(&place.path, &link).unwrap();
    assert_is_linked(&try_acquire(&backend, "b").await.unwrap_err());
    assert_is_linked(&backend.release(&held.lock_id).await.unwrap_err());
    std::fs::remove_file(&link).unwrap();
    assert!(backend.is_locked(&key("a")).await.unwrap());
    backend.release(&held.lock_id).await.unwrap();
    assert!(acquire(&backend, "a").await.fence > held.fence);
}

async fn a_file_that_is_mounted_alone_is_refused() {
    let place = place();
    make_lock_file(&place.path).await;
    let mount = r#"mount --bind "$0/locks.db" "$0/locks.db""#;
    let said = child::play_mounted("probe", &place.path, mount);
    assert!(said.starts_with("InvalidArgument: "), "{said}");
    assert!(said.contains("mount its folder"), "{said}");
    let mount = r#"mount --bind "$0" "$0""#;
    let said = child::play_mounted("probe", &place.path, mount);
    assert!(child::has_got_it(&said), "{said}");
}

/// As in a container whose image has the file: what is opened for writing is copied to the upper layer.
async fn a_file_of_a_lower_layer_is_one_file() {
    let place = place();
    make_lock_file(&place.path).await;
    let mount = r#"mount -t tmpfs tmpfs /mnt; mkdir /mnt/upper /mnt/work;
        layers=lowerdir="$0",upperdir=/mnt/upper,workdir=/mnt/work;
        mount -t overlay -o "$layers,xino=off" overlay "$0""#;
    let said = child::play_mounted("probe", &place.path, mount);
    assert!(child::has_got_it(&said), "{said}");
}

async fn a_file_that_is_replaced_is_left() {
    let place = place();
    let first = backend(&place.path);
    acquire(&first, "a").await;
    acquire(&first, "other").await;
    let aside = place.folder.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    std::fs::rename(&place.path, aside.join("locks.db")).unwrap();
    for end in ["-wal", "-shm"] {
        let side = format!("locks.db{end}");
        std::fs::rename(place.folder.path().join(&side), aside.join(&side)).unwrap();
    }
    // Another process begins with a new file: the one that has the old one open must not go on.
    let said = probe(&place.path);
    assert!(child::has_got_it(&said), "{said}");
    let error = try_acquire(&first, "probe").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("replaced"), "{error}");
    let theirs = said.strip_prefix("fence ").unwrap().parse().unwrap();
    assert!(acquire(&first, "probe").await.fence.get() > theirs);
    assert_eq!(probe(&place.path), "locked");
}

/// As a second copy of the library would have it: by descriptors that this one does not know.
async fn a_file_that_the_process_has_open_otherwise_is_left_alone() {
    let place = place();
    make_lock_file(&place.path).await;
    let other = Connection::open(&place.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = locks_on(&place.path);
    assert!(before > 0);
    let backend = backend(&place.path);
    for _ in 0..3 {
        let error = try_acquire(&backend, "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(error.message().contains("one copy of SyncGuard"), "{error}");
    }
    // Not even a look at the file may take away its locks.
    assert_eq!(locks_on(&place.path), before);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    acquire(&backend, "a").await;
}

async fn a_process_without_descriptors_is_told_to_come_again() {
    let place = place();
    let mut command = child::command("no descriptors", &place.path);
    assert_eq!(child::said(command.output().unwrap()), "");
}

/// The scenario "no descriptors", in a process where nothing else opens files.
pub(crate) async fn run_out_of_descriptors(path: &Path) {
    let limit = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let highest = open
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.parse::<u64>().unwrap())
        .max()
        .unwrap();
    // That of the list itself was the highest.
    let used = highest;
    let mut fence = 0;
    for left in 0..=8 {
        let current = Some(used + left);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        let backend = backend(path);
        match try_acquire(&backend, "a").await {
            Ok(AcquireOutcome::Acquired(grant)) => fence = grant[0].fence.get(),
            Ok(_) => panic!("{left}: a is locked"),
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    ErrorKind::ServiceUnavailable,
                    "{left}: {error:?}"
                );
                assert_eq!(fence, 0, "{left}: more descriptors do not do");
            }
        }
        setrlimit(Resource::Nofile, limit).unwrap();
        if let Ok(AcquireOutcome::Acquired(grant)) = try_acquire(&backend, "b").await {
            backend.release(&grant[0].lock_id).await.unwrap();
        } else {
            panic!("{left}: it works once there are descriptors");
        }
        backend.force_release(&key("a")).await.unwrap();
        backend.close().await;
    }
    assert!(fence > 0);
}
