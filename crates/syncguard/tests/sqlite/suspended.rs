//! Holders whose machine is suspended, and whose clock is set.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AutoExtend, Backend, LockOptions, lock};
use tempfile::TempDir;

use crate::child::command;
use crate::support::locks::{key, ttl};
use crate::support::suite::tests;

tests![
    a_suspended_machine_holds_no_lock_past_its_end,
    a_clock_that_is_set_loses_no_lock,
];

/// A library before that of C, with clocks that can be set: `CLOCK_MONOTONIC` stands still while there is a file, as it does while a
/// machine is suspended, and `CLOCK_REALTIME` is as many seconds ahead as another file says.
const CLOCKS: &str = include_str!("clocks.c");

/// What a program says that plays `scenario` under these clocks.
fn play(scenario: &str) -> String {
    let folder = TempDir::new().unwrap();
    let (source, library) = (
        folder.path().join("clocks.c"),
        folder.path().join("clocks.so"),
    );
    fs::write(&source, CLOCKS).unwrap();
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiler.unwrap().success());
    let still = folder.path().join("still");
    let output = command(scenario, &still)
        .env("LD_PRELOAD", &library)
        .env("CLOCKS_STILL", &still)
        .env("CLOCKS_AHEAD", folder.path().join("ahead"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

async fn a_suspended_machine_holds_no_lock_past_its_end() {
    let said = tokio::task::block_in_place(|| play("suspended"));
    assert_eq!(said, "before true true\nafter false false\n");
}

async fn a_clock_that_is_set_loses_no_lock() {
    let said = tokio::task::block_in_place(|| play("set"));
    assert_eq!(said, "ahead true true\nbehind true true\n");
}

/// A guard of a lock that does not extend itself, and of one that does; and what tells whether both are held.
async fn two_held(ttl_ms: i64) -> impl AsyncFn(&str) {
    let backend: Arc<dyn Backend> =
        Arc::new(SqliteBackend::new(SqliteConfig::in_memory()).unwrap());
    let mut guards = Vec::new();
    for (name, auto_extend) in [("a", None), ("b", Some(AutoExtend::default()))] {
        let options = LockOptions {
            ttl: ttl(ttl_ms),
            auto_extend,
            ..LockOptions::default()
        };
        guards.push(lock(&backend, &key(name), &options).await.unwrap());
    }
    #[allow(clippy::print_stdout, reason = "the parent reads it")]
    async move |when: &str| {
        let held = |place: usize| guards[place].assert_held().is_ok();
        println!("{when} {} {}", held(0), held(1));
    }
}

/// The machine is suspended for longer than the locks last.
pub(crate) async fn be_suspended(still: &Path) {
    let held = two_held(2000).await;
    held("before").await;
    fs::write(still, "").unwrap();
    let before = Instant::now();
    // Nothing of this process may run meanwhile; by its clock, no time goes by.
    tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(4)));
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "it does not stand still"
    );
    fs::remove_file(still).unwrap();
    held("after").await;
}

/// Somebody sets the clock by an hour, in either direction.
pub(crate) async fn be_set(still: &Path) {
    let ahead = still.with_file_name("ahead");
    let held = two_held(60_000).await;
    for (when, seconds) in [("ahead", "3600"), ("behind", "-3600")] {
        fs::write(&ahead, seconds).unwrap();
        held(when).await;
    }
}
