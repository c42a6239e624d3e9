//! How a row is played and judged.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use syncguard::operation::{self, CallOptions};
use syncguard::{AcquireOutcome, AcquireRequest, Backend, ErrorKind, Key, ReleaseOutcome, Ttl};

use super::stage::{Act, ClockOf, Stage, Store};
use super::verdict::Verdict;
use crate::bounds::Bounds;
use crate::check::check;
use crate::clock::Clock;
use crate::history::{Operation, Outcome};
use crate::plan::Plan;
use crate::proxy::Proxy;
use crate::register::Fences;
use crate::run::{BOUNDS, Run, run_with};
use crate::store;
use crate::store_faults::{on_the_stores_clock, with_gaps};
use crate::task::{Task, Work};
use crate::turns::TTL_MS;
use crate::worker::sharing::shared;
use crate::worker::together::slots;
use crate::workers::Workers;

/// How long after the last operation a lock can be there, whatever went wrong: its TTL, the tolerance, and time for what was under
/// way. Beyond it, nothing may be left.
const LEFT: Duration = Duration::from_secs(5);

/// How far the clock of each process is from the next one's, where they are apart.
const APART_MS: i64 = 300;

/// How many keys are looked at at a time afterwards.
const AT_ONCE: usize = 8;

/// How to play a row.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This program.
    pub program: PathBuf,
    /// How long the workers work; longer where what goes wrong takes longer.
    pub run: Duration,
    /// Decides all that is random.
    pub seed: u64,
    /// How many processes there are.
    pub processes: u32,
    /// How many operations each of them may have under way.
    pub loops: usize,
    /// How long each of them pauses between operations.
    pub pause: Duration,
    /// How many wait in rows about waiting, in all processes together.
    pub waiters: usize,
}

/// One thing that goes wrong with a store.
pub struct Row {
    /// The store.
    pub store: &'static str,
    /// What goes wrong.
    pub name: &'static str,
    play: Play,
}

type Play = Box<dyn Fn(&Settings) -> io::Result<Verdict> + Send + Sync>;

impl Row {
    /// Plays it.
    ///
    /// # Errors
    /// Something could not be started.
    pub fn play(&self, settings: &Settings) -> io::Result<Verdict> {
        (self.play)(settings)
    }
}

impl<S: Store + 'static> From<Act<S>> for Row {
    fn from(act: Act<S>) -> Self {
        Self {
            store: act.store,
            name: act.name,
            play: Box::new(move |settings| play(&act, settings)),
        }
    }
}

fn play<S: Store>(act: &Act<S>, settings: &Settings) -> io::Result<Verdict> {
    let folder = tempfile::tempdir()?;
    let clock = match act.clock {
        ClockOf::Nobody => None,
        ClockOf::SuspendedWorkers => Some(Clock::of_suspended_machine()?),
        _ => Some(Clock::new()?),
    };
    let of_store = clock.as_ref().filter(|_| act.clock == ClockOf::Store);
    let store = (act.start)(of_store)?;
    let proxy = match store.port() {
        Some(port) if act.has_proxy => Some(Proxy::start(port)?),
        _ => None,
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let prepared = runtime.block_on(store::prepare(&store.url(None)));
    prepared.map_err(io::Error::other)?;
    let environments = environments(act.clock, clock.as_ref());
    let started = Cell::new(0);
    let command = || {
        let number = started.replace(started.get() + 1);
        let environment = environments.iter().cycle().nth(number).into_iter();
        let mut command = Command::new(&settings.program);
        command.arg("worker").envs(environment.flatten().cloned());
        command
    };
    let plan = Plan {
        command: &command,
        folder: folder.path().to_owned(),
        task: task(act, settings, folder.path(), &store, proxy.as_ref()),
        processes: settings.processes,
        fences: Fences::Checked,
    };
    let mut stage = Stage {
        store,
        proxy,
        clock,
        random: fastrand::Rng::with_seed(settings.seed ^ 0x5eed),
        gaps: Vec::new(),
    };
    // What takes long begins only where there is time for it.
    let long = act.lasts.saturating_sub(Duration::from_secs(3));
    let calm = act.back_within + long + Duration::from_millis(500);
    let once = act.work == Work::Turns;
    let mut struck = false;
    let strike = |workers: &mut Workers<'_>| {
        if once && std::mem::replace(&mut struck, true) {
            return Ok(());
        }
        (act.strike)(&mut stage, workers)
    };
    let ran = run_with(&plan, calm, strike)?;
    let mut verdict = Verdict {
        name: format!("{} {}", act.store, act.name),
        ..Verdict::default()
    };
    judge(&mut verdict, act, &ran, settings);
    if plan.task.guards {
        judge_guards(&mut verdict, &ran);
    }
    let grants = last_fences(&ran.seen.operations);
    nothing_is_left(
        &mut verdict,
        &runtime,
        &mut stage.store,
        plan.task.keys,
        &grants,
    )?;
    if act.work == Work::Anything {
        explain(&mut verdict, act, ran.seen.operations, &stage);
    }
    Ok(verdict)
}

/// Of the workers, one after the other, and from the beginning again.
fn environments(clock_of: ClockOf, clock: Option<&Clock>) -> Vec<Vec<(String, String)>> {
    match (clock_of, clock) {
        (ClockOf::Workers | ClockOf::Machine, Some(clock)) => vec![clock.environment()],
        (ClockOf::EachWorker, Some(clock)) => [0, -APART_MS, APART_MS]
            .map(|ahead_ms| clock.apart_by_ms(ahead_ms))
            .into(),
        (ClockOf::SuspendedWorkers, Some(clock)) => vec![clock.environment(), Vec::new()],
        _ => Vec::new(),
    }
}

fn task<S: Store>(
    act: &Act<S>,
    settings: &Settings,
    folder: &Path,
    store: &S,
    proxy: Option<&Proxy>,
) -> Task {
    let processes = usize::try_from(settings.processes).unwrap_or(1);
    let (loops, keys, run) = match act.work {
        Work::Anything => {
            // There is time for what goes wrong to go wrong once at least.
            let least = act.lasts + act.back_within + Duration::from_millis(1_700);
            (settings.loops, act.keys, settings.run.max(least))
        }
        // All of them must have had their turn by then.
        Work::Turns => (settings.waiters / processes, 10, Duration::from_secs(120)),
    };
    Task {
        url: store.url(proxy.map(Proxy::port)),
        history: folder.to_owned(),
        register: folder.join("register"),
        seed: settings.seed,
        run,
        loops,
        keys,
        // How many attempts of a wait have had an effect is unknown where the store fails.
        waits: false,
        guards: act.clock == ClockOf::SuspendedWorkers,
        pause: settings.pause,
        work: act.work,
    }
}

/// What can be said without the store.
fn judge<S: Store>(verdict: &mut Verdict, act: &Act<S>, ran: &Run, settings: &Settings) {
    let register = ran.register;
    match act.work {
        Work::Anything => {
            let (operations, grants) = (ran.seen.operations.len(), ran.grants());
            verdict.fact(format!(
                "{operations} operations, {grants} grants, {} unknown, {} stale writes refused",
                ran.unknown(),
                register.refused
            ));
            verdict.must_in_time(grants > 20, || format!("{grants} grants are too few"));
            let (back, longest) = ran.outages_us();
            verdict.fact(format!(
                "{} faults, back after {} ms, longest outage {} ms",
                ran.troubles.len(),
                back / 1000,
                longest / 1000
            ));
            verdict.must_in_time(Duration::from_micros(back) <= act.back_within, || {
                format!(
                    "a process worked again only {} ms after the end of a fault, and not within {} ms",
                    back / 1000,
                    act.back_within.as_millis()
                )
            });
        }
        Work::Turns => {
            verdict.fact(format!(
                "{} turns, {} killed",
                register.entered, ran.ended.killed
            ));
            // Those of processes that were killed never come.
            let processes = u64::from(settings.processes);
            let each = settings.waiters as u64 / processes;
            let least = each * (processes - ran.ended.killed as u64);
            verdict.must_in_time(register.entered >= least, || {
                format!("{} turns are fewer than {least}", register.entered)
            });
            verdict.must(register.overlaps == 0, || {
                format!("{} times two were inside", register.overlaps)
            });
        }
    }
    verdict.must(!ran.troubles.is_empty(), || "nothing went wrong".to_owned());
    let last = ran.seen.operations.iter().map(|one| one.start).max();
    let mended = ran.troubles.last().map(|trouble| trouble.1);
    verdict.must_in_time(act.work == Work::Turns || last > mended, || {
        "nobody worked any more when it was mended".to_owned()
    });
    verdict.must(register.lost == 0, || {
        format!("{} accepted writes were lost", register.lost)
    });
    let errors: Vec<_> = ran
        .seen
        .errors
        .iter()
        .map(|(kind, seen)| format!("{kind} {}", seen.count))
        .collect();
    verdict.fact(if errors.is_empty() {
        "no errors".to_owned()
    } else {
        errors.join(", ")
    });
    for (kind, seen) in &ran.seen.errors {
        verdict.saw(ErrorKind::from_name(kind), act.errors, || {
            format!("{} errors of the kind {kind}: {}", seen.count, seen.message)
        });
    }
    let complaints = &ran.ended.complaints;
    verdict.must(!complaints.contains("panicked"), || {
        format!("a panic: {complaints}")
    });
}

/// Guards were asked, and some of them after their locks had ended.
fn judge_guards(verdict: &mut Verdict, ran: &Run) {
    let outlived = ran.seen.outlived;
    verdict.fact(format!("{outlived} guards outlived their locks"));
    verdict.must_in_time(outlived > 0, || "no guard outlived its lock".to_owned());
    verdict.violations.extend(ran.seen.broken.iter().cloned());
}

/// The largest fence of each key.
fn last_fences(history: &[Operation]) -> BTreeMap<&str, u64> {
    let mut fences = BTreeMap::new();
    for operation in history {
        if let Outcome::Acquired { fence, .. } = operation.outcome {
            let last = fences.entry(operation.key.as_str()).or_insert(fence);
            *last = fence.max(*last);
        }
    }
    fences
}

/// Nothing is left behind: every key can be had, under a larger fence, and nothing else is there.
fn nothing_is_left<S: Store>(
    verdict: &mut Verdict,
    runtime: &tokio::runtime::Runtime,
    store: &mut S,
    keys: usize,
    fences: &BTreeMap<&str, u64>,
) -> io::Result<()> {
    let start = Instant::now();
    runtime.block_on(all_free(verdict, &store.url(None), keys, fences, start))?;
    let since = Instant::now();
    loop {
        let left = store.left()?;
        if left.is_empty() {
            break;
        }
        if since.elapsed() > LEFT {
            verdict.violations.push(format!("left behind: {left:?}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    verdict.fact(format!("clean after {} ms", start.elapsed().as_millis()));
    Ok(())
}

async fn all_free(
    verdict: &mut Verdict,
    url: &str,
    keys: usize,
    fences: &BTreeMap<&str, u64>,
    start: Instant,
) -> io::Result<()> {
    let backend = store::open(url).await;
    let backend = backend.map_err(io::Error::other)?;
    let names = (0..keys).map(|number| Key::new(&format!("key:{number}")));
    // There are many slots, and keys that are shared on some stores only, and some that nobody has had.
    let was_had = |slot: &Result<Key, _>| match slot {
        Ok(slot) => fences.contains_key(slot.as_str()),
        Err(_) => true,
    };
    let others = slots(keys).chain(shared()).filter(was_had);
    let names: Vec<_> = names.chain(others).collect();
    let names = names.into_iter().collect::<Result<Vec<_>, _>>();
    let names = names.map_err(io::Error::other)?;
    let open = names
        .into_iter()
        .map(|name| until_free(&backend, name, start));
    let mut done = stream::iter(open).buffer_unordered(AT_ONCE);
    while let Some((key, fence)) = done.next().await {
        let name = key.as_str();
        let last = fences.get(name).copied().unwrap_or(0);
        match fence {
            Ok(fence) => verdict.must(fence > last, || {
                format!("{name}: the fence {fence} comes after {last}")
            }),
            Err(why) => verdict.violations.push(format!("{name}: {why}")),
        }
    }
    backend.close().await;
    Ok(())
}

async fn until_free(
    backend: &Arc<dyn Backend>,
    key: Key,
    start: Instant,
) -> (Key, Result<u64, String>) {
    loop {
        let request =
            Ttl::from_millis(TTL_MS).and_then(|ttl| AcquireRequest::new(key.clone(), ttl));
        let request = match request {
            Ok(request) => request,
            Err(error) => return (key, Err(error.to_string())),
        };
        let answer = operation::run::<AcquireOutcome>(
            backend,
            syncguard::Operation::Acquire(request),
            CallOptions::DEFAULT,
            std::future::pending(),
        )
        .await;
        let mut limit = LEFT;
        let why = match answer {
            Ok(AcquireOutcome::Acquired(mut grants)) => {
                let grant = grants.remove(0);
                let held = CallOptions {
                    lasts: Ttl::from_millis(TTL_MS).ok(),
                    ..CallOptions::DEFAULT
                };
                let released = operation::run::<ReleaseOutcome>(
                    backend,
                    syncguard::Operation::Release([grant.lock_id.clone()].into()),
                    held,
                    std::future::pending(),
                );
                let released = released.await;
                let fence = grant.fence.get();
                return (
                    key,
                    released.map(|_| fence).map_err(|error| error.to_string()),
                );
            }
            Ok(_) => "it is still locked".to_owned(),
            // It may be slow after what it went through, and the machine as well.
            Err(error) => {
                limit = 6 * LEFT;
                error.to_string()
            }
        };
        if start.elapsed() > limit {
            return (key, Err(why));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// All that the processes saw can be explained.
fn explain<S: Store>(
    verdict: &mut Verdict,
    act: &Act<S>,
    history: Vec<Operation>,
    stage: &Stage<S>,
) {
    let apart_ms = if act.clock == ClockOf::EachWorker {
        APART_MS
    } else {
        0
    };
    let mut bounds = Bounds {
        skew_ms: BOUNDS.skew_ms + apart_ms,
        is_spread: store::is_spread(&stage.store.url(None)),
        group_ms: store::group_ms(&stage.store.url(None)),
        is_left_in_steps: store::is_left_in_steps(&stage.store.url(None)),
        ..BOUNDS
    };
    let mut history = with_gaps(history, &stage.gaps);
    if let (Some(clock), ClockOf::Store | ClockOf::Machine) = (&stage.clock, act.clock) {
        history = on_the_stores_clock(history, clock.steps(), bounds.late_ms);
        bounds.is_steady = false;
    }
    if let Err(violations) = check(history, bounds) {
        let texts = violations.iter().map(ToString::to_string);
        verdict.violations.extend(texts);
    }
}
