//! The thread that runs a backend's operations, many in one transaction.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::oneshot;

use super::releases::ReleaseFeed;
use super::store::{Durability, Store, held_by_others};
use crate::sqlite::config::SqliteConfig;
use crate::text::error::{Error, ErrorKind};
use crate::values::time::Clock;

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
    run: Box<Run>,
}

/// Runs it, or fails with why there is no store to run it on.
type Run = dyn FnOnce(Result<&Store, Error>) -> FinishedOperation + Send;

/// An operation that has run.
struct FinishedOperation {
    /// Which shows whether something is wrong with the database.
    error: Option<Error>,
    /// Answers, once it is known what has become of the transaction.
    answer: Box<dyn FnOnce(Result<(), Error>)>,
}

impl Job {
    /// A job that runs `operation` and sends its answer.
    pub(super) fn new<T: Send + 'static>(
        effect: Effect,
        deadline: Instant,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (reply, answer) = oneshot::channel();
        let run = Box::new(move |store: Result<&Store, Error>| {
            let result = match store {
                Ok(_) if effect == Effect::Read && reply.is_closed() => Err(unawaited()),
                store => store.and_then(operation),
            };
            FinishedOperation {
                error: result.as_ref().err().cloned(),
                answer: Box::new(move |end| {
                    // An operation that failed keeps its own error. Nobody may wait any more: whoever gave an acquisition up
                    // also undoes it.
                    let _ = reply.send(result.and_then(|value| end.map(|()| value)));
                }),
            }
        });
        let job = Self {
            effect,
            deadline,
            run,
        };
        (job, answer)
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
    let mut kept: Option<Store> = None;
    let mut waiting = Pending::default();
    while let Some(batch) = waiting.next(jobs) {
        let opened = kept.take().map_or_else(
            || {
                let (clock, releases) = (Arc::clone(clock), Arc::clone(releases));
                Store::open(config, clock, releases, earliest_deadline(&batch))
            },
            Ok,
        );
        let mut store = match opened {
            Ok(store) => store,
            Err(error) => {
                fail_all(batch, &error);
                continue;
            }
        };
        let is_sound = run(&mut store, batch);
        if is_sound || !store.is_file() {
            kept = Some(store);
        } else {
            // The next operation opens the file again, and reports what is wrong with it.
            store.abandon();
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

/// Runs the reads, then the writes in one transaction. `false` if the connection must not be used again.
fn run(store: &mut Store, batch: Vec<Job>) -> bool {
    let (reads, writes): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|job| job.effect == Effect::Read);
    let mut is_sound = true;
    for job in reads {
        let ran = (job.run)(Ok(store));
        is_sound &= ran.is_sound();
        (ran.answer)(Ok(()));
    }
    is_sound & write(store, writes)
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
    let mut is_sound = true;
    let (mut all_ran, mut jobs) = (Vec::with_capacity(jobs.len()), jobs.into_iter());
    while let Some(job) = jobs.next() {
        let ran = (job.run)(Ok(store));
        is_sound &= ran.is_sound();
        let error = ran.error.clone().filter(|_| !store.in_transaction());
        all_ran.push(ran);
        if let Some(error) = error {
            // SQLite has rolled back the other jobs' writes too.
            answer_all(all_ran, &Err(error.clone()));
            fail_all(jobs.collect(), &error);
            return false;
        }
    }
    let end = store.commit();
    answer_all(all_ran, &end);
    is_sound & end.is_ok()
}

impl FinishedOperation {
    /// Whether the database is fine: errors that the caller caused say nothing about it.
    fn is_sound(&self) -> bool {
        let error = self.error.as_ref();
        error.is_none_or(|error| error.kind() == ErrorKind::InvalidArgument)
    }
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

fn answer_all(all: Vec<FinishedOperation>, end: &Result<(), Error>) {
    for ran in all {
        (ran.answer)(end.clone());
    }
}

fn fail_all(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        ((job.run)(Err(error.clone())).answer)(Ok(()));
    }
}

/// What a look-up comes to that nobody waits for any more; nobody hears of it.
fn unawaited() -> Error {
    Error::invalid("nobody waits for the answer")
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
