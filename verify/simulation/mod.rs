//! A simulation of waiting, turns, heartbeats and cancellation: whole runs of several processes on one simulated store, in
//! simulated time. A seed decides everything that happens, so that a run can be repeated.
//!
//! Tested is the library from [`lock`](crate::lock) and [`operation`](crate::operation) down to the
//! [`Backend`] trait, as it is. What is simulated is below: the [store](store), the [network](network) with its delays,
//! losses and repetitions, the [connections](listening) on which the store tells of freed locks, and the
//! [clients](clients). The [`witness`] and the [`waiters`] say what must not happen.
//!
//! A test that fails names the seed. To run it alone, with all that happened in it:
//! `SYNCGUARD_SIMULATION_SEEDS=123 cargo test -p syncguard --lib simulation`; `SYNCGUARD_SIMULATION_SEEDS=10000..200000`
//! runs others than those that are always run.

mod backend;
mod chaos;
mod clients;
mod connection;
mod found;
mod listening;
mod network;
mod plan;
mod readers;
mod single;
mod store;
mod waiters;
mod witness;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::RngExt as _;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::backend::Process;
use self::clients::Client;
use self::plan::FAULTS_END_MS;
use self::world::Sim;
use crate::background::backend::Backend;
use crate::mutex::lock;
use crate::random::seeded;

/// The seeds that `npm test` tries.
const SEEDS: Range<u64> = 0..2_000;
/// The seeds that `npm run test:all` tries.
const ALL_SEEDS: Range<u64> = 0..10_000;
/// After so many seeds that fail, the others are not run.
const ENOUGH: usize = 20;
/// When even those listen again whose connection was lost without notice.
const ALL_WELL: Duration = Duration::from_millis(FAULTS_END_MS + 28_000);
/// No lock and nothing about one is left so long after the last client has left.
const ALL_OVER: Duration = Duration::from_secs(40);

/// What a run has come to.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    problems: Vec<String>,
    hash: u64,
    lines: Vec<String>,
}

/// Runs one seed from beginning to end.
fn run(seed: u64, is_recorded: bool) -> Report {
    seeded::seed(Some(!seed));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(seed, is_recorded))
    }));
    seeded::seed(None);
    ran.unwrap_or_else(|_| Report {
        problems: vec!["something has panicked".to_owned()],
        hash: 0,
        lines: Vec::new(),
    })
}

async fn play(seed: u64, is_recorded: bool) -> Report {
    let sim = Sim::new(seed, is_recorded);
    let plan = sim.with(|world| world.plan.clone());
    let processes: Vec<_> = (0..plan.processes)
        .map(|number| Process::new(&sim, number))
        .collect();
    let client = |process: &Arc<Process>| Client {
        sim: sim.clone(),
        backend: Arc::clone(process) as _,
        process: Arc::clone(process),
    };
    let chaos = tokio::spawn(chaos::run(sim.clone()));
    let mut working = Vec::new();
    for process in &processes {
        let works = (0..plan.clients).map(|_| tokio::spawn(client(process).run(plan.actions)));
        let works: Vec<_> = works.collect();
        let ends = tokio::spawn(ends(sim.clone(), Arc::clone(process), aborts(&works)));
        working.extend(works);
        working.push(ends);
    }
    finish(&sim, working, "the clients").await;
    finish(&sim, vec![chaos], "the faults").await;

    let well = sim.with(|world| world.start) + ALL_WELL;
    tokio::time::sleep_until(well).await;
    sim.note("all is well", &[]);
    let lives = |process: &&Arc<Process>| {
        sim.with(|world| {
            let link = &world.links[process.number];
            !link.is_dead && !link.is_shut
        })
    };
    let living: Vec<_> = processes.iter().filter(lives).collect();
    let last: Vec<_> = living
        .iter()
        .flat_map(|process| (0..plan.clients).map(|_| client(process)))
        .collect();
    let (count, start) = (
        u32::try_from(last.len()).unwrap_or(u32::MAX),
        Instant::now(),
    );
    let last = last.into_iter().map(|client| {
        tokio::spawn(async move {
            let locked = client.locks_at_last().await;
            let problem = locked
                .err()
                .map(|error| format!("at last, a wait ended with {error}"));
            client
                .sim
                .with(|world| world.witness.problems.extend(problem));
        })
    });
    finish(&sim, last.collect(), "those who wait at last").await;
    // All locks have ended by now. Each waiter has the lock for a moment, and the next one hears of it.
    let one = Duration::from_millis(30 + 8 * plan.way_ms);
    if plan.tells && start.elapsed() > one * (count + 2) {
        sim.with(|world| {
            world
                .witness
                .problem("locks were handed over too slowly at last")
        });
    }
    sleep(ALL_OVER).await;
    check_end(&sim, &processes);
    sim.with(|world| Report {
        problems: std::mem::take(&mut world.witness.problems),
        hash: world.hash(),
        lines: world.lines().to_vec(),
    })
}

fn aborts(tasks: &[JoinHandle<()>]) -> Vec<tokio::task::AbortHandle> {
    tasks.iter().map(JoinHandle::abort_handle).collect()
}

/// Waits for tasks that must end, and must not panic.
async fn finish(sim: &Sim, tasks: Vec<JoinHandle<()>>, who: &str) {
    for task in tasks {
        let problem = match timeout(Duration::from_secs(300), task).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) if error.is_cancelled() => continue,
            Ok(Err(_)) => format!("{who}: a task has panicked"),
            Err(_) => format!("{who} do not end"),
        };
        sim.with(|world| world.witness.problem(problem));
    }
}

/// Closes a process's backend, or kills the process, if that is in the plan.
async fn ends(sim: Sim, process: Arc<Process>, clients: Vec<tokio::task::AbortHandle>) {
    let (closes, dies, at_ms) = sim.with(|world| {
        let (closes, crashes) = (world.plan.closes, world.plan.crashes);
        let at_ms = world.rng.random_range(1..FAULTS_END_MS);
        (
            closes && world.rng.random_bool(0.3),
            crashes && world.rng.random_bool(0.3),
            at_ms,
        )
    });
    if !closes && !dies {
        return;
    }
    sleep(Duration::from_millis(at_ms)).await;
    if dies {
        sim.with(|world| {
            world.links[process.number].is_dead = true;
            world.witness.over.insert(process.number);
            world.note("dies", &[process.number as u64]);
        });
        clients.iter().for_each(tokio::task::AbortHandle::abort);
        return;
    }
    let start = Instant::now();
    sim.note("closes", &[process.number as u64]);
    process.close().await;
    sim.note("closed", &[process.number as u64]);
    let longest = process.operation_timeout() * 2;
    sim.with(|world| {
        if Instant::now() > (start + longest).max(world.witness.stalled) + waiters::SLACK {
            world.witness.problem("closing took too long");
        }
    });
}

/// Nothing may be left at the end: in the store, in the processes, and among the tasks.
fn check_end(sim: &Sim, processes: &[Arc<Process>]) {
    let tasks = Handle::current().metrics().num_alive_tasks();
    sim.with(|world| {
        let now_ms = (0..processes.len())
            .map(|number| world.now_ms(number))
            .max();
        let is_live = |now_ms| world.store.locks.values().any(|lock| lock.is_live(now_ms));
        let is_indexed = |(name, id): (&String, &str)| world.store.index.get(id) == Some(name);
        let mut locks = world.store.locks.iter();
        let problems = [
            now_ms
                .is_some_and(is_live)
                .then_some("a lock that nobody holds is still there"),
            (!locks.all(|(name, lock)| is_indexed((name, lock.lock_id.as_str()))))
                .then_some("a lock has no index entry"),
            (world.store.index.len() != world.store.locks.len())
                .then_some("an index entry has no lock"),
        ];
        let problems: Vec<_> = problems.into_iter().flatten().map(str::to_owned).collect();
        world.witness.problems.extend(problems);
        world.witness.check_end();
    });
    let is_dead = |number: usize| sim.with(|world| world.links[number].is_dead);
    for process in processes.iter().filter(|process| !is_dead(process.number)) {
        if let Some(problem) = process.left_behind() {
            sim.with(|world| world.witness.problem(problem));
        }
    }
    let any_dead = (0..processes.len()).any(is_dead);
    if tasks > 0 && !any_dead {
        sim.with(|world| {
            world
                .witness
                .problem(format!("{tasks} tasks have not ended"))
        });
    }
}

/// The seeds to run.
fn seeds() -> Range<u64> {
    let Ok(asked) = std::env::var("SYNCGUARD_SIMULATION_SEEDS") else {
        let everything = std::env::var_os("SYNCGUARD_TESTS").is_some_and(|which| which == "all");
        return if everything { ALL_SEEDS } else { SEEDS };
    };
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    match asked.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&asked)..number(&asked) + 1,
    }
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(BTreeMap::new());
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while lock(&failed).len() < ENOUGH {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = run(seed, false);
                    if !report.problems.is_empty() {
                        lock(&failed).insert(seed, report.problems);
                    }
                }
            });
        }
    });
    let failed = std::mem::take(&mut *lock(&failed));
    let Some(seed) = failed.keys().next() else {
        return;
    };
    let lines = run(*seed, true).lines.join("\n");
    panic!(
        "{failed:#?}\nAll that happened with seed {seed}:\n{lines}\nTo run it alone: \
         SYNCGUARD_SIMULATION_SEEDS={seed} cargo test -p syncguard --lib --all-features simulation"
    );
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let mut hashes = BTreeSet::new();
    for seed in 0..100 {
        let first = run(seed, false);
        assert_eq!(first, run(seed, false), "seed {seed}");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 100);
}
