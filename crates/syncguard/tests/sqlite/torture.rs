//! Many processes on one lock file, killed at random: nobody ever holds a lock beside another, no
//! fence comes twice or goes back, and the file stays whole.
//!
//! The processes are this program itself, told by its environment to work. Each appends to a common
//! log after it has got a lock and before it gives it back; the judge reads nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use rand::TryRng as _;
use rand::rngs::SysRng;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Clock, FromOutcome as _, Key, Operation, Outcome,
    SystemClock, TIME_TOLERANCE_MS, Ttl,
};

const WORKERS: usize = 8;
const PAIRS: usize = 2000;
const KEYS: usize = 16;
/// Short, so that the locks of the dead are free again soon.
const TTL_MS: i64 = 200;
const KILLS: usize = 40;
/// Much longer than the whole takes.
const TIME_LIMIT: Duration = Duration::from_secs(180);

const FOLDER: &str = "SYNCGUARD_TORTURE_FOLDER";
const WORKER: &str = "SYNCGUARD_TORTURE_WORKER";

fn main() -> ExitCode {
    if let (Some(folder), Ok(worker)) = (std::env::var_os(FOLDER), std::env::var(WORKER)) {
        work(Path::new(&folder), worker.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let trial = Trial::test("processes_killed_at_random_keep_the_contract", || {
        torture();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn database(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The life of one process: what is left of its acquisitions.
#[tokio::main(flavor = "current_thread")]
async fn work(folder: &Path, worker: usize) {
    let done = read_log(folder)
        .iter()
        .filter(|entry| entry.worker == worker && entry.event == Event::Releasing)
        .count();
    let backend = SqliteBackend::new(SqliteConfig::file(database(folder))).unwrap();
    let mut log = OpenOptions::new().append(true).open(log(folder)).unwrap();
    for _ in done..PAIRS {
        let (grant, key) = loop {
            let key = random(KEYS);
            let answer = answered(&backend, || {
                let name = Key::new(&format!("key {key}")).unwrap();
                let ttl = Ttl::from_millis(TTL_MS).unwrap();
                Operation::Acquire(AcquireRequest::new(name, ttl).unwrap())
            })
            .await;
            if let AcquireOutcome::Acquired(grant) = AcquireOutcome::of(answer).unwrap() {
                break (grant, key);
            }
        };
        let fence = grant[0].fence.get();
        let granted_ms = grant[0].expires_at_ms - TTL_MS;
        append(
            &mut log,
            &format!("{worker} got {key} {fence} {granted_ms}"),
        );
        // Held for a moment, so that some die as holders.
        std::thread::sleep(Duration::from_micros(random(3000) as u64));
        let now_ms = SystemClock.now_ms();
        append(
            &mut log,
            &format!("{worker} releasing {key} {fence} {now_ms}"),
        );
        answered(&backend, || {
            Operation::Release([grant[0].lock_id.clone()].into())
        })
        .await;
    }
    backend.close().await;
}

/// Asks again while the disk is too busy for the file: somebody who waits for it holds up all others.
async fn answered(backend: &SqliteBackend, operation: impl Fn() -> Operation) -> Outcome {
    loop {
        match backend.run(&operation()).await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
        }
    }
}

/// One write, so that lines of different processes never mix.
fn append(log: &mut File, line: &str) {
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Got,
    Releasing,
}

#[derive(Debug)]
struct Entry {
    worker: usize,
    event: Event,
    key: usize,
    fence: u64,
    ms: i64,
}

fn read_log(folder: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(log(folder)).unwrap();
    // Another process may be writing the last one.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [worker, event, key, fence, ms] = fields[..] else {
                panic!("malformed line: {line}");
            };
            Entry {
                worker: worker.parse().unwrap(),
                event: match event {
                    "got" => Event::Got,
                    "releasing" => Event::Releasing,
                    other => panic!("unknown event {other}"),
                },
                key: key.parse().unwrap(),
                fence: fence.parse().unwrap(),
                ms: ms.parse().unwrap(),
            }
        })
        .collect()
}

/// Who was granted a lock, if nothing has been noted since.
fn holder(folder: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(log(folder)).unwrap();
    let (worker, event) = text.lines().last()?.split_once(' ')?;
    event.starts_with("got").then(|| worker.parse().unwrap())
}

fn random(below: usize) -> usize {
    let number = usize::try_from(SysRng.try_next_u32().unwrap()).unwrap();
    number % below
}

/// The workers; what is left of them when the test fails dies with it.
struct Workers {
    folder: PathBuf,
    running: BTreeMap<usize, Child>,
}

impl Workers {
    fn start(&mut self, worker: usize) {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(FOLDER, &self.folder)
            .env(WORKER, worker.to_string())
            .spawn()
            .unwrap();
        self.running.insert(worker, child);
    }

    /// Takes out those that have done their work.
    fn reap(&mut self) {
        self.running.retain(|worker, child| {
            let Some(status) = child.try_wait().unwrap() else {
                return true;
            };
            assert!(status.success(), "worker {worker} failed: {status}");
            false
        });
    }

    /// Kills that one, or else any, and starts it again; `false` if all are done.
    fn kill_one(&mut self, chosen: Option<usize>) -> bool {
        self.reap();
        let chosen = chosen.filter(|worker| self.running.contains_key(worker));
        let any = || {
            let at = random(self.running.len().max(1));
            self.running.keys().nth(at).copied()
        };
        let Some(worker) = chosen.or_else(any) else {
            return false;
        };
        let mut child = self.running.remove(&worker).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.start(worker);
        true
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn torture() {
    let start = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    File::create(log(folder.path())).unwrap();
    let mut workers = Workers {
        folder: folder.path().to_owned(),
        running: BTreeMap::new(),
    };
    (0..WORKERS).for_each(|worker| workers.start(worker));
    let mut kills = 0;
    // At any moment: while they open the file, write, hold a lock, or close.
    while kills < KILLS {
        std::thread::sleep(Duration::from_millis(20 + random(80) as u64));
        // Every fourth one holds a lock, which on a busy machine they do for a small part of their time.
        let holder = (kills % 4 == 0).then(|| (0..1000).find_map(|_| holder(folder.path())));
        if !workers.kill_one(holder.flatten()) {
            break;
        }
        kills += 1;
    }
    while !workers.running.is_empty() {
        workers.reap();
        assert!(start.elapsed() < TIME_LIMIT, "the workers do not finish");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(kills, KILLS, "the work was done before the killing was");
    let takeovers = judge(folder.path());
    assert!(takeovers > 0, "nobody was killed while holding a lock");
    check_file(folder.path());
}

/// Checks the log; gives how many locks were taken over from holders that never gave them back.
fn judge(folder: &Path) -> usize {
    let entries = read_log(folder);
    let mut grants: HashMap<usize, Vec<&Entry>> = HashMap::new();
    let mut releases: HashMap<(usize, u64), i64> = HashMap::new();
    for entry in &entries {
        match entry.event {
            Event::Got => grants.entry(entry.key).or_default().push(entry),
            Event::Releasing => {
                releases.insert((entry.key, entry.fence), entry.ms);
            }
        }
    }
    assert_eq!(releases.len(), WORKERS * PAIRS, "each pair was done once");
    assert_eq!(grants.len(), KEYS);
    let mut takeovers = 0;
    for (key, mut grants) in grants {
        grants.sort_by_key(|grant| grant.fence);
        for pair in grants.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(
                earlier.fence < later.fence,
                "key {key}: fence {} was given twice",
                earlier.fence
            );
            // A larger fence means a later grant.
            assert!(earlier.ms <= later.ms, "key {key}: fences went back");
            // The earlier holder had begun to release, or its time was over.
            let expired_ms = earlier.ms + TTL_MS + TIME_TOLERANCE_MS;
            let released_ms = releases.get(&(key, earlier.fence));
            takeovers += usize::from(released_ms.is_none());
            let free_ms = released_ms.map_or(expired_ms, |released| expired_ms.min(*released));
            assert!(
                free_ms <= later.ms,
                "key {key}: fence {} was held beside fence {}",
                earlier.fence,
                later.fence
            );
        }
    }
    takeovers
}

fn check_file(folder: &Path) {
    let connection = rusqlite::Connection::open(database(folder)).unwrap();
    let verdict: String = connection
        .query_one("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
    // The counters stand where the last holders were, or past it: some died before they could log.
    for entry in read_log(folder) {
        let counter: i64 = connection
            .query_one(
                "SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?1",
                [format!("fence:key {}", entry.key)],
                |row| row.get(0),
            )
            .unwrap();
        assert!(counter.unsigned_abs() >= entry.fence);
    }
}
