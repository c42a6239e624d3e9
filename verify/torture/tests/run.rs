//! A short run, and that it shows what is wrong.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../src/servers.rs"]
mod servers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use servers::postgres_server::PostgresServer;
use torture::history::{Call, Outcome};
use torture::record::{Recorder, read};
use torture::register::Fences;
use torture::run::{ClientError, Report, run};
use torture::task::{Task, Work};

fn task(folder: &Path, run: Duration) -> Task {
    Task {
        url: format!("sqlite:{}", folder.join("locks.db").display()),
        history: folder.to_owned(),
        register: folder.join("register"),
        seed: 1,
        run,
        loops: 8,
        keys: 20,
        waits: true,
        guards: false,
        pause: Duration::ZERO,
        work: Work::Anything,
    }
}

fn worker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.arg("worker");
    command
}

/// A run by each seed until one shows what is to be seen: how often it happens depends on the processor. In none may anything be wrong
/// with the locks.
fn run_until_seen(
    trouble: ClientError,
    time: Duration,
    fences: Fences,
    is_seen: fn(&Report) -> bool,
) {
    let mut reports = Vec::new();
    for seed in 1..=5 {
        let folder = tempfile::tempdir().unwrap();
        let task = Task {
            seed,
            ..task(folder.path(), time)
        };
        let report = run(worker, folder.path(), &task, 4, trouble, fences).unwrap();
        let violations = &report.violations;
        assert!(violations.is_empty(), "violation: {}", violations[0]);
        assert!(report.broken.is_empty(), "{:?}", report.broken);
        match fences {
            Fences::Checked => assert_eq!(report.register.lost, 0),
            Fences::Ignored => assert_eq!(report.register.refused, 0),
        }
        if is_seen(&report) {
            return;
        }
        reports.push(report);
    }
    panic!("{reports:?}");
}

#[test]
fn what_stopped_and_killed_processes_see_can_be_explained() {
    let trouble = ClientError {
        stops: true,
        kills: true,
        ..ClientError::default()
    };
    // Some of those who were stopped wrote when their time was over; others forgot their locks.
    run_until_seen(
        trouble,
        Duration::from_secs(15),
        Fences::Checked,
        |report| {
            assert!(report.slow.is_empty(), "{}", report.slow[0]);
            let is_harmed = report.stopped > 0 && report.killed > 0 && report.register.refused > 0;
            let has_gathered = report.gathered.granted > 0 && report.gathered.in_vain > 0;
            is_harmed && has_gathered && report.grants > 100
        },
    );
}

/// What fences are for: the same run, once with them and once without. The locks are as right as before: it is the holders that are late.
#[test]
fn without_fences_stale_holders_overwrite_what_others_wrote() {
    let trouble = ClientError {
        stops: true,
        ..ClientError::default()
    };
    let time = Duration::from_secs(8);
    run_until_seen(trouble, time, Fences::Checked, |report| {
        report.register.refused > 0
    });
    run_until_seen(trouble, time, Fences::Ignored, |report| {
        report.register.lost > 0
    });
}

#[test]
fn the_program_works_on_a_new_server_of_postgresql() {
    for kind in ["postgres", "mixed+postgres"] {
        // Each on a server of its own: locks that the first run forgets are live for a second more.
        let server = PostgresServer::start();
        let at = format!("127.0.0.1:{}/postgres?sslmode=disable", server.port());
        let url = format!("{kind}://locker:a%20pass%3Aword%2Fwith%40signs@{at}");
        let ended = Command::new(env!("CARGO_BIN_EXE_torture"))
            .args(["run", &url, "2", "1"])
            .output()
            .unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert!(printed.ends_with("\n0 violations\n"), "{printed}");
    }
}

#[test]
fn a_worker_that_cannot_work_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut task = task(folder.path(), Duration::from_secs(1));
    task.url = "nonsense:".to_owned();
    let trouble = ClientError::default();
    assert!(run(worker, folder.path(), &task, 1, trouble, Fences::Checked).is_err());
}

#[test]
fn records_tell_of_what_was_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0");
    let recorder = Recorder::new(&path).unwrap();
    let ended = recorder.start("a", Call::IsLocked).unwrap();
    recorder.end(ended, Some(Outcome::Yes)).unwrap();
    let refused = recorder.start("b", Call::IsLocked).unwrap();
    recorder.end(refused, None).unwrap();
    let wait = Call::AcquireUnseen {
        number: 1,
        ttl_ms: 5,
    };
    let granted = recorder.start("c", wait).unwrap();
    let outcome = Outcome::Acquired {
        fence: 1,
        expires_at_ms: 5,
    };
    recorder.granted(granted, 7, outcome).unwrap();
    recorder.start("d", Call::ForceRelease).unwrap();
    let mut operations = read(&path, 3).unwrap().operations;
    operations.sort_by(|one, other| one.key.cmp(&other.key));
    let seen: Vec<_> = operations
        .iter()
        .map(|one| (one.key.as_str(), one.call, one.outcome))
        .collect();
    assert_eq!(
        seen,
        [
            ("a", Call::IsLocked, Outcome::Yes),
            ("c", Call::Acquire { lock: 7, ttl_ms: 5 }, outcome),
            ("d", Call::ForceRelease, Outcome::Interrupted),
        ]
    );
    assert!(
        operations
            .iter()
            .all(|one| one.process == 3 && one.start <= one.end)
    );
}
