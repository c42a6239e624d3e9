//! A run: several processes on one store, some of which are stopped and killed, and the check of what they saw.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::check::{Bounds, Violation, check};
use crate::history::{Call, Operation, Outcome};
use crate::record;
use crate::register::Register;
use crate::worker::Task;

/// What happens to the processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    /// One is stopped for longer than locks last, then goes on.
    pub stops: bool,
    /// One is killed, and another takes its place.
    pub kills: bool,
}

/// What a run was.
#[derive(Debug)]
pub struct Report {
    /// How many operations were recorded and checked.
    pub operations: usize,
    /// How many of them were grants.
    pub grants: usize,
    /// Of how many operations the outcome is unknown.
    pub unknown: usize,
    /// How many processes were stopped for longer than their locks lasted.
    pub stopped: usize,
    /// How many were killed.
    pub killed: usize,
    /// Writes that the register accepted.
    pub accepted: u64,
    /// Writes that it refused: without a fence, they would have overwritten the work of later holders.
    pub refused: u64,
    /// What no order explains.
    pub violations: Vec<Violation>,
}

/// What is allowed for by [`check`]: an operation that was given up may be carried out until its time limit and that
/// of its undoing are over, and the lock lasts for its TTL and the tolerance after that. A process that was killed had
/// sent what it had sent.
const BOUNDS: Bounds = Bounds {
    skew_ms: 5,
    late_ms: 8_000,
    cut_ms: 2_500,
};
/// Longer than locks last.
const STOP: Duration = Duration::from_millis(1_800);

/// Runs `processes` workers with `task`, and checks what they saw. `command` starts a worker, which finds its task in the
/// last argument. Files are kept in `folder`.
///
/// # Errors
/// A worker could not be started, or has failed.
pub fn run(
    command: impl Fn() -> Command,
    folder: &Path,
    task: &Task,
    processes: u32,
    trouble: Trouble,
) -> io::Result<Report> {
    let register = Register::serve(&task.register)?;
    let mut random = fastrand::Rng::with_seed(task.seed);
    let mut crew = Crew {
        command: &command,
        folder,
        task,
        until: Instant::now() + task.run,
        started: 0,
    };
    let mut workers = (0..processes)
        .map(|_| crew.start())
        .collect::<io::Result<Vec<_>>>()?;
    let (mut stopped, mut killed) = (0, 0);
    let pause = Duration::from_millis(700);
    while (trouble.stops || trouble.kills) && Instant::now() + pause + STOP < crew.until {
        sleep(pause);
        let Some(worker) = random.choice(&mut workers) else {
            break;
        };
        if trouble.kills && (!trouble.stops || random.u8(..3) == 0) {
            worker.kill()?;
            worker.wait()?;
            *worker = crew.start()?;
            killed += 1;
        } else {
            signal(worker, Signal::STOP)?;
            sleep(STOP);
            signal(worker, Signal::CONT)?;
            stopped += 1;
        }
    }
    for mut worker in workers {
        let status = worker.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("a worker has failed: {status}")));
        }
    }
    let history = crew.history()?;
    Ok(report(history, &register, stopped, killed))
}

fn report(
    history: Vec<Operation>,
    register: &Arc<Register>,
    stopped: usize,
    killed: usize,
) -> Report {
    let count = |wanted: fn(&Operation) -> bool| history.iter().filter(|one| wanted(one)).count();
    Report {
        operations: history.len(),
        grants: count(|one| {
            matches!(one.call, Call::Acquire { .. })
                && matches!(one.outcome, Outcome::Acquired { .. })
        }),
        unknown: count(|one| matches!(one.outcome, Outcome::Unknown | Outcome::Cut)),
        stopped,
        killed,
        accepted: register.accepted.load(Relaxed),
        refused: register.refused.load(Relaxed),
        violations: check(history, BOUNDS).err().unwrap_or_default(),
    }
}

/// Starts workers, each with a seed and a file of its own.
struct Crew<'a, F> {
    command: &'a F,
    folder: &'a Path,
    task: &'a Task,
    until: Instant,
    started: u32,
}

impl<F: Fn() -> Command> Crew<'_, F> {
    fn start(&mut self) -> io::Result<Child> {
        let task = Task {
            history: self.folder.join(self.started.to_string()),
            seed: self.task.seed.wrapping_add(u64::from(self.started) << 48),
            run: self.until.saturating_duration_since(Instant::now()),
            ..self.task.clone()
        };
        self.started += 1;
        (self.command)()
            .arg(serde_json::to_string(&task)?)
            .stdin(Stdio::null())
            .spawn()
    }

    fn history(&self) -> io::Result<Vec<Operation>> {
        let mut history = Vec::new();
        for process in 0..self.started {
            let path = self.folder.join(process.to_string());
            // A worker that was killed at once has recorded nothing.
            if path.exists() {
                history.extend(record::read(&path, process)?);
            }
        }
        Ok(history)
    }
}

fn signal(worker: &Child, signal: Signal) -> io::Result<()> {
    let id = i32::try_from(worker.id()).map_err(io::Error::other)?;
    let pid = Pid::from_raw(id).ok_or_else(|| io::Error::other("no process"))?;
    Ok(kill_process(pid, signal)?)
}
