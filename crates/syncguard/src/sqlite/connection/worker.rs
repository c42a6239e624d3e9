//! The thread that runs a backend's operations, many in one transaction.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::oneshot;

use super::releases::ReleaseFeed;
use super::store::{Durability, Store, held_by_others};
use crate::error::{Error, ErrorKind};
use crate::sqlite::config::SqliteConfig;
use crate::time::Clock;

/// The most operations in one transaction, to limit how long other processes wait.
const LARGEST_BATCH: usize = 512;

/// What an operation does to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum Effect {
    /// Only reads, without a transaction.
    Read,
    /// Writes, with this durability.
    ///
    /// When the machine stops, all holders stop with it. If a release, an extension or a clean-up is lost then, what
    /// remains is a lock that nobody uses and that ends with its TTL.
    Write(Durability),
    /// Keeps or frees a lock that is held, before everything else that waits.
    Urgent,
}

/// An operation on its way to the worker.
pub(super) struct Job {
    effect: Effect,
    deadline: Instant,
    work: Box<dyn Runnable>,
}

impl Job {
    /// A job that runs `operation` and sends its answer.
    pub(super) fn new<T: Send + 'static>(
        effect: Effect,
        deadline: Instant,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(Task {
            operation: Some(operation),
            result: None,
            reply,
        });
        let job = Self {
            effect,
            deadline,
            work,
        };
        (job, answer)
    }

    fn fail(self, error: Error) {
        self.work.settle(Err(error));
    }
}

trait Runnable: Send {
    /// Runs the operation. The error shows whether something is wrong with the database.
    fn run(&mut self, store: &Store) -> Result<(), Error>;
    /// Sends the result, or the error when the transaction failed.
    fn settle(self: Box<Self>, end: Result<(), Error>);
    fn is_awaited(&self) -> bool;
}

struct Task<F, T> {
    operation: Option<F>,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<F, T> Runnable for Task<F, T>
where
    F: FnOnce(&Store) -> Result<T, Error> + Send,
    T: Send,
{
    fn run(&mut self, store: &Store) -> Result<(), Error> {
        let Some(operation) = self.operation.take() else {
            return Ok(());
        };
        let result = operation(store);
        let error = result.as_ref().err().cloned();
        self.result = Some(result);
        error.map_or(Ok(()), Err)
    }

    fn settle(self: Box<Self>, end: Result<(), Error>) {
        let answer = match (self.result, end) {
            // An operation that failed keeps its own error.
            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(Error::new(ErrorKind::Internal, "operation was not run")),
        };
        // Fails if nobody waits any more: whoever gave an acquisition up also undoes it.
        let _ = self.reply.send(answer);
    }

    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }
}

/// Runs jobs until all senders are gone. Jobs that queue up while one transaction is written to the disk share the
/// next one, which makes many locks at a time cheap.
pub(super) fn serve(
    config: &SqliteConfig,
    clock: &Arc<dyn Clock>,
    releases: &Arc<ReleaseFeed>,
    jobs: &Receiver<Job>,
) {
    let open_file = |deadline| {
        let (clock, releases) = (Arc::clone(clock), Arc::clone(releases));
        Store::open(config, clock, releases, deadline)
    };
    let mut store = None;
    let mut waiting = Pending::default();
    while let Some(batch) = waiting.next(jobs) {
        let Some(mut open) = open(open_file, &mut store, batch) else {
            continue;
        };
        let sound = run(&mut open.store, open.batch);
        if sound || !open.store.is_file() {
            store = Some(open.store);
        } else {
            // The next operation opens the file again, and reports what is wrong with it.
            open.store.abandon();
        }
    }
}

/// What has come and is not done yet.
#[derive(Default)]
struct Pending {
    urgent: VecDeque<Job>,
    others: VecDeque<Job>,
}

impl Pending {
    /// Waits until there is something to do, and gives as much of it as goes together; `None` if nothing will come.
    fn next(&mut self, jobs: &Receiver<Job>) -> Option<Vec<Job>> {
        if self.urgent.is_empty() && self.others.is_empty() {
            self.add(jobs.recv().ok()?);
        }
        for job in jobs.try_iter() {
            self.add(job);
        }
        let urgent = self.urgent.len().min(LARGEST_BATCH);
        let others = self.others.len().min(LARGEST_BATCH - urgent);
        let urgent = self.urgent.drain(..urgent);
        Some(urgent.chain(self.others.drain(..others)).collect())
    }

    fn add(&mut self, job: Job) {
        match job.effect {
            Effect::Urgent => self.urgent.push_back(job),
            Effect::Read | Effect::Write(_) => self.others.push_back(job),
        }
    }
}

struct Open {
    store: Store,
    batch: Vec<Job>,
}

/// The open store, or a newly opened one. If it cannot be opened, all jobs of the batch get the error.
fn open(
    open_file: impl Fn(Instant) -> Result<Store, Error>,
    store: &mut Option<Store>,
    batch: Vec<Job>,
) -> Option<Open> {
    let opened = match store.take() {
        Some(store) => Ok(store),
        None => open_file(earliest_deadline(&batch)),
    };
    match opened {
        Ok(store) => Some(Open { store, batch }),
        Err(error) => {
            fail_all(batch, &error);
            None
        }
    }
}

/// Runs the reads, then the writes in one transaction. `false` if the connection must not be used again.
fn run(store: &mut Store, batch: Vec<Job>) -> bool {
    let (reads, writes): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|job| job.effect == Effect::Read);
    let mut sound = true;
    for mut job in reads {
        if job.work.is_awaited() {
            sound &= is_sound(&job.work.run(store));
            job.work.settle(Ok(()));
        }
    }
    sound & write(store, writes)
}

fn write(store: &mut Store, mut jobs: Vec<Job>) -> bool {
    // Jobs whose time is over get their error; the others go on waiting for the write lock.
    loop {
        jobs = fail_late(jobs);
        let Some(durability) = jobs.iter().filter_map(durability).max() else {
            return true;
        };
        match store.begin(durability, earliest_deadline(&jobs)) {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                fail_all(jobs, &error);
                return false;
            }
        }
    }
    let mut sound = true;
    for job in &mut jobs {
        let done = job.work.run(store);
        sound &= is_sound(&done);
        if let (Err(error), false) = (done, store.in_transaction()) {
            // SQLite has rolled back the other jobs' writes too.
            fail_all(jobs, &error);
            return false;
        }
    }
    let end = store.commit();
    let committed = end.is_ok();
    for job in jobs {
        job.work.settle(end.clone());
    }
    sound & committed
}

/// Whether the database is fine: errors that the caller caused say nothing about it.
fn is_sound(done: &Result<(), Error>) -> bool {
    done.as_ref().map_or_else(
        |error| error.kind() == ErrorKind::InvalidArgument,
        |()| true,
    )
}

fn durability(job: &Job) -> Option<Durability> {
    match job.effect {
        Effect::Read => None,
        Effect::Write(durability) => Some(durability),
        Effect::Urgent => Some(Durability::UntilPowerLoss),
    }
}

fn earliest_deadline(jobs: &[Job]) -> Instant {
    jobs.iter()
        .map(|job| job.deadline)
        .min()
        .unwrap_or_else(Instant::now)
}

fn fail_late(jobs: Vec<Job>) -> Vec<Job> {
    let now = Instant::now();
    let (late, on_time) = jobs.into_iter().partition(|job| job.deadline <= now);
    fail_all(late, &held_by_others());
    on_time
}

fn fail_all(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        job.fail(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_urgent_goes_before_all_that_came_earlier() {
        let (sender, jobs) = channel();
        let deadline = Instant::now();
        let send = |effect| {
            let (job, _) = Job::new::<()>(effect, deadline, |_| Ok(()));
            sender.send(job).unwrap();
        };
        for _ in 0..LARGEST_BATCH {
            send(Effect::Read);
            send(Effect::Write(Durability::ForGood));
        }
        send(Effect::Urgent);
        let mut waiting = Pending::default();
        let batch = waiting.next(&jobs).unwrap();
        assert_eq!(batch.len(), LARGEST_BATCH);
        assert_eq!(batch[0].effect, Effect::Urgent);
        assert_eq!(batch[1].effect, Effect::Read);
        // Also before what was left.
        send(Effect::Urgent);
        assert_eq!(waiting.next(&jobs).unwrap()[0].effect, Effect::Urgent);
        drop(sender);
        let rest: usize = std::iter::from_fn(|| waiting.next(&jobs))
            .map(|batch| batch.len())
            .sum();
        assert_eq!(rest, 2);
    }
}
