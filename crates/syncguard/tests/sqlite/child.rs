//! Scenarios that need a process of their own: another user, other mounts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireOutcome, Backend};

use crate::support::attempts::Attempts as _;
use crate::support::locks::{is_from_the_clock, request};
use crate::support::suite::block_on;
#[cfg(target_os = "linux")]
use crate::suspended;
use crate::{access, claims, names, sharing, wakeups};

const SCENARIO: &str = "SYNCGUARD_SCENARIO";
const PATH: &str = "SYNCGUARD_SCENARIO_PATH";

/// Plays the scenario that the environment names, if it names one.
pub(crate) fn play() -> bool {
    let (Ok(scenario), Some(path)) = (std::env::var(SCENARIO), std::env::var_os(PATH)) else {
        return false;
    };
    let path = PathBuf::from(path);
    block_on(async {
        match scenario.as_str() {
            "probe" => probe(&path).await,
            "full disk" => access::on_a_small_disk(&path).await,
            "no descriptors" => names::run_out_of_descriptors(&path).await,
            "looks" => wakeups::until_nobody_looks(&path).await,
            "contend" => wakeups::contend(&path).await,
            "forwards" => claims::take_turns(&path, ["a", "b", "c"]).await,
            "backwards" => claims::take_turns(&path, ["d", "c", "b"]).await,
            #[cfg(target_os = "linux")]
            "suspended" => suspended::be_suspended(&path).await,
            #[cfg(target_os = "linux")]
            "set" => suspended::be_set(&path).await,
            "threads" => sharing::count_threads(&path).await,
            other => panic!("unknown scenario {other}"),
        }
    });
    true
}

/// Takes and frees a lock, and says what came of it.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
async fn probe(path: &Path) {
    let mut config = SqliteConfig::file(path);
    // On a busy machine, others may have the file for long.
    config.operation_timeout = Duration::from_secs(60);
    let backend = SqliteBackend::new(config).unwrap();
    match backend.acquire(&request("probe")).await {
        Ok(AcquireOutcome::Acquired(grant)) => {
            backend.release(&grant[0].lock_id).await.unwrap();
            println!("fence {}", grant[0].fence.get());
        }
        Ok(_) => println!("locked"),
        Err(error) => println!("{}: {error}", error.kind()),
    }
    backend.close().await;
}

/// A command that plays a scenario.
pub(crate) fn command(scenario: &str, path: &Path) -> Command {
    with_scenario(
        Command::new(std::env::current_exe().unwrap()),
        scenario,
        path,
    )
}

fn with_scenario(mut command: Command, scenario: &str, path: &Path) -> Command {
    command
        .env(SCENARIO, scenario)
        .env(PATH, path)
        .stdin(Stdio::null());
    command
}

/// What the probe says of `path` when it is run by a user whom file modes bind.
pub(crate) fn probe_without_privileges(path: &Path) -> String {
    if !rustix::process::geteuid().is_root() {
        return said(command("probe", path).output().unwrap());
    }
    // Where the program is may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let program = folder.path().join("probe");
    // Copied by another process: a child that is forked meanwhile would hold our copy open for
    // writing, and nobody could run it.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    open_to_all(&program);
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program);
    said(with_scenario(setpriv, "probe", path).output().unwrap())
}

pub(crate) fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// What a scenario says that is played where `mount` (a shell script that gets the path's folder as
/// `$0`) has been run. The mounts are gone when it ends.
pub(crate) fn play_mounted(scenario: &str, path: &Path, mount: &str) -> String {
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare
        .args(["sh", "-c"])
        .arg(format!("set -e; {mount}; exec \"$1\""))
        .arg(path.parent().unwrap())
        .arg(std::env::current_exe().unwrap());
    said(with_scenario(unshare, scenario, path).output().unwrap())
}

/// Whether a probe has said that it has got the lock, under a fence from the clock.
pub(crate) fn has_got_it(said: &str) -> bool {
    let fence = said.strip_prefix("fence ");
    fence.is_some_and(|fence| is_from_the_clock(fence.parse().unwrap()))
}

pub(crate) fn said(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
