//! A run: several processes on one store, things that go wrong meanwhile, and the check of what the processes saw.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bounds::Bounds;
use crate::check::{GATE, Violation, check};
use crate::clock::Clock;
use crate::history::{Call, Moment, Operation, Outcome};
use crate::plan::Plan;
use crate::record::{Gathered, Recorded, now};
use crate::register::{Fences, Register, Tally};
use crate::store;
use crate::takeover::{Slow, slow};
use crate::task::{Task, Work};
use crate::worker::sharing;
use crate::workers::{Ended, Workers};

/// What happens to the processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientError {
    /// One is stopped for longer than locks last, then goes on.
    pub stops: bool,
    /// One is killed, and another takes its place.
    pub kills: bool,
    /// The clock of every other one is wrong, by more than any lock lasts. Not where clients decide by their own.
    pub shifted_clocks: bool,
}

/// What a run was.
#[derive(Debug)]
pub struct Report {
    /// How many operations were recorded and checked.
    pub operations: usize,
    /// How many of them were grants.
    pub grants: usize,
    /// How many of these were to readers.
    pub joins: usize,
    /// How often somebody kept readers out by the gate of a key.
    pub gates: usize,
    /// Of how many operations the outcome is unknown.
    pub unknown: usize,
    /// How many processes were stopped for longer than their locks lasted.
    pub stopped: usize,
    /// How many were killed.
    pub killed: usize,
    /// How it went at the register.
    pub register: Tally,
    /// What no order explains.
    pub violations: Vec<Violation>,
    /// Locks that stayed free while somebody waited for them.
    pub slow: Vec<Slow>,
    /// How often several things were gathered.
    pub gathered: Gathered,
    /// Promises that were not kept, of which no history of one key tells.
    pub broken: Vec<String>,
}

/// What is allowed for by [`check`]: an operation that was given up may be carried out until its time limit and that
/// of its undoing are over, and the lock lasts for its TTL and the tolerance after that. A process that was killed had
/// sent what it had sent.
pub const BOUNDS: Bounds = Bounds {
    skew_ms: 5,
    late_ms: 8_000,
    cut_ms: 2_500,
    is_steady: true,
    is_spread: false,
    group_ms: 0,
    is_left_in_steps: false,
};
/// How soon somebody who waits for a lock has it after its release: more than the time for which processes are stopped,
/// and less than the locks last that are waited for.
const TAKEOVER_MS: i64 = 4_000;
/// How wrong the clocks of some processes are.
const SHIFT_MS: i64 = 20_000;
/// Longer than locks last.
pub const STOP: Duration = Duration::from_millis(1_800);

/// Longer than those last that guards are asked for, with the tolerance.
pub(crate) const SUSPENSION: Duration = Duration::from_millis(2_500);

/// What a run has left to judge.
#[derive(Debug)]
pub struct Run {
    /// What the processes saw.
    pub seen: Recorded,
    /// What they were told at the register.
    pub register: Tally,
    /// The processes.
    pub ended: Ended,
    /// From when to when something was wrong.
    pub troubles: Vec<(Moment, Moment)>,
}

/// Runs the workers of `plan`. `strike` is called again and again: each time it harms something, and mends it before it returns.
/// The run ends `calm` after the last time at least.
///
/// # Errors
/// A worker could not be started, or has failed; or as `strike` says.
pub fn run_with(
    plan: &Plan<'_>,
    calm: Duration,
    mut strike: impl FnMut(&mut Workers<'_>) -> io::Result<()>,
) -> io::Result<Run> {
    let register = Register::serve(&plan.task.register, plan.fences)?;
    let mut random = fastrand::Rng::with_seed(plan.task.seed);
    let mut workers = Workers::start(plan, &register)?;
    let mut troubles = Vec::new();
    let calm_ms = u64::try_from(calm.as_millis()).unwrap_or(u64::MAX / 2);
    while workers.is_working()? {
        let pause = Duration::from_millis(match plan.task.work {
            Work::Anything if troubles.is_empty() => random.u64(400..1_200),
            // Sometimes they work again before the next time, and sometimes not yet.
            Work::Anything => random.u64(400..400 + calm_ms),
            Work::Turns => 10,
        });
        if Instant::now() + pause + calm > workers.until() {
            break;
        }
        sleep(pause);
        let from = now();
        strike(&mut workers)?;
        troubles.push((from, now()));
    }
    let (seen, ended) = workers.end()?;
    Ok(Run {
        seen,
        register: register.tally(),
        ended,
        troubles,
    })
}

/// Runs `processes` workers with `task`, stops and kills some, and checks what they saw. `command` starts a worker, which
/// finds its task in the last argument. Files are kept in `folder`.
///
/// # Errors
/// A worker could not be started, or has failed.
#[expect(clippy::too_many_arguments, reason = "each is a setting of the run")]
pub fn run(
    command: impl Fn() -> Command,
    folder: &Path,
    task: &Task,
    processes: u32,
    trouble: ClientError,
    fences: Fences,
) -> io::Result<Report> {
    let clock = trouble.shifted_clocks.then(Clock::new).transpose()?;
    let started = Cell::new(0_u32);
    let command = || {
        let mut command = command();
        started.set(started.get() + 1);
        if let Some(clock) = clock.as_ref().filter(|_| started.get().is_multiple_of(2)) {
            command.envs(clock.apart_by_ms(SHIFT_MS));
        }
        command
    };
    let plan = Plan {
        command: &command,
        folder: folder.to_owned(),
        task: task.clone(),
        processes,
        fences,
    };
    let mut random = fastrand::Rng::with_seed(task.seed);
    let ran = run_with(&plan, STOP, |workers| {
        let kills = trouble.kills && (!trouble.stops || random.u8(..3) == 0);
        if kills {
            workers.kill_one(&mut random)
        } else if trouble.stops {
            workers.stop_one(&mut random, STOP)
        } else {
            Ok(())
        }
    })?;
    let history = &ran.seen.operations;
    let bounds = Bounds {
        is_spread: store::is_spread(&task.url),
        group_ms: store::group_ms(&task.url),
        is_left_in_steps: store::is_left_in_steps(&task.url),
        ..BOUNDS
    };
    Ok(Report {
        operations: history.len(),
        grants: ran.grants(),
        joins: ran.joins(),
        gates: ran.gates(),
        unknown: ran.unknown(),
        stopped: ran.ended.stopped,
        killed: ran.ended.killed,
        register: ran.register,
        slow: slow(history, TAKEOVER_MS, BOUNDS.late_ms),
        gathered: ran.seen.gathered,
        broken: ran.seen.broken,
        violations: check(ran.seen.operations, bounds).err().unwrap_or_default(),
    })
}

impl Run {
    fn granted(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.seen.operations.iter();
        operations.filter(|one| {
            matches!(one.call, Call::Acquire { .. } | Call::Join { .. })
                && matches!(one.outcome, Outcome::Acquired { .. })
        })
    }

    /// How many operations were grants.
    pub fn grants(&self) -> usize {
        self.granted().count()
    }

    fn joins(&self) -> usize {
        let joins = self.granted();
        let joins = joins.filter(|one| matches!(one.call, Call::Join { .. }));
        joins.count()
    }

    fn gates(&self) -> usize {
        let of_readers = |one: &&Operation| one.key.starts_with(sharing::PREFIX);
        let gates = self.granted().filter(of_readers);
        gates.filter(|one| one.key.ends_with(GATE)).count()
    }

    /// Of how many operations the outcome is unknown.
    pub fn unknown(&self) -> usize {
        let operations = self.seen.operations.iter();
        let unknown = operations.filter(|one| is_unknown(one.outcome));
        unknown.count()
    }

    /// The longest time after a trouble until a process had done an operation again that it started after it; and the longest
    /// time for which a process did none, troubles included. In microseconds.
    pub fn outages_us(&self) -> (u64, u64) {
        let (mut slowest, mut longest) = (0, 0);
        for (process, lived) in self.ended.lives.iter().enumerate() {
            let mut done: Vec<_> = self
                .seen
                .operations
                .iter()
                .filter(|one| one.process as usize == process && !is_unknown(one.outcome))
                .map(|one| (one.start.order_us, one.end.order_us))
                .collect();
            done.sort_unstable();
            let mut last = done.first().map_or(lived.0, |one| one.1);
            for (_, end) in &done {
                longest = longest.max(end.saturating_sub(last));
                last = last.max(*end);
            }
            longest = longest.max(lived.1.saturating_sub(last));
            let next = self.troubles.iter().skip(1).map(|one| one.0.order_us);
            for ((_, to), next) in self.troubles.iter().zip(next.chain([u64::MAX])) {
                let from = to.order_us.max(lived.0);
                let until = next.min(lived.1);
                let after = done.get(done.partition_point(|one| one.0 < from)..);
                let end = after.unwrap_or_default().iter().map(|one| one.1).min();
                slowest = slowest.max(end.unwrap_or(until).min(until).saturating_sub(from));
            }
        }
        (slowest, longest)
    }
}

fn is_unknown(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Unknown | Outcome::Interrupted)
}
