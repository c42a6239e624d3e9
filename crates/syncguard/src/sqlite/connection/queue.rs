//! The way to the thread that runs a backend's operations.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::releases::ReleaseFeed;
use super::store::Store;
use super::worker::{self, Effect, Job};
use crate::mutex::lock;
use crate::sqlite::config::{Location, SqliteConfig};
use crate::text::error::{Error, ErrorKind};
use crate::values::time::Clock;

/// The operations of one backend, in the order in which they came. Dropping it ends the thread.
pub(in crate::sqlite) struct OperationQueue {
    config: SqliteConfig,
    clock: Arc<dyn Clock>,
    worker: Mutex<Worker>,
    releases: Arc<ReleaseFeed>,
}

enum Worker {
    NotStarted,
    Running {
        jobs: Sender<Job>,
        /// Closed once the thread has closed the file.
        ended: watch::Receiver<()>,
    },
    Closed(Option<watch::Receiver<()>>),
}

impl OperationQueue {
    /// Starts no thread yet: the first operation does.
    pub(in crate::sqlite) fn new(config: SqliteConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            worker: Mutex::new(Worker::NotStarted),
            releases: Arc::default(),
        }
    }

    /// Runs `operation` and waits for its answer.
    pub(in crate::sqlite) async fn run<T: Send + 'static>(
        &self,
        effect: Effect,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        answer(&mut self.submit(effect, operation)?).await
    }

    /// Runs `operation`, whether or not anybody waits for its answer.
    pub(in crate::sqlite) fn submit<T: Send + 'static>(
        &self,
        effect: Effect,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (job, answer) = Job::new(effect, Instant::now() + self.patience(), operation);
        self.jobs()?.send(job).map_err(|_| worker_is_gone())?;
        Ok(answer)
    }

    /// Which locks these operations free.
    pub(in crate::sqlite) fn releases(&self) -> &ReleaseFeed {
        &self.releases
    }

    /// Whether others can use the same locks.
    pub(in crate::sqlite) fn is_on_file(&self) -> bool {
        self.config.location != Location::Memory
    }

    /// Ends the thread once it has run what is queued, and waits for that.
    pub(in crate::sqlite) async fn close(&self) {
        let ended = {
            let mut worker = self.lock_worker();
            let ended = match &*worker {
                Worker::NotStarted => None,
                Worker::Running { ended, .. } => Some(ended.clone()),
                Worker::Closed(ended) => ended.clone(),
            };
            // Dropping the sender ends the thread.
            *worker = Worker::Closed(ended.clone());
            ended
        };
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
    }

    /// How long to wait for other processes: a little less than the operation timeout, so that the caller gets the
    /// error that says what it waited for.
    fn patience(&self) -> Duration {
        const MARGIN: Duration = Duration::from_millis(250);
        let timeout = self.config.operation_timeout;
        timeout - MARGIN.min(timeout / 10)
    }

    /// The sender of jobs to the worker, which is started if necessary.
    fn jobs(&self) -> Result<Sender<Job>, Error> {
        let mut worker = self.lock_worker();
        match &*worker {
            Worker::Running { jobs, .. } => Ok(jobs.clone()),
            Worker::Closed(_) => Err(Error::closed()),
            Worker::NotStarted => {
                let (jobs, queue) = channel();
                let (alive, ended) = watch::channel(());
                let config = self.config.clone();
                let clock = Arc::clone(&self.clock);
                let releases = Arc::clone(&self.releases);
                std::thread::Builder::new()
                    .name("syncguard-sqlite".to_owned())
                    .spawn(move || {
                        // Dropped when the thread ends, also by a panic.
                        let _alive = alive;
                        worker::serve(&config, &clock, &releases, &queue);
                    })
                    .map_err(|error| {
                        Error::new(ErrorKind::ServiceUnavailable, "no thread could be started")
                            .with_source(error)
                    })?;
                *worker = Worker::Running {
                    jobs: jobs.clone(),
                    ended,
                };
                Ok(jobs)
            }
        }
    }

    fn lock_worker(&self) -> MutexGuard<'_, Worker> {
        // Each change is one assignment, so a panic elsewhere cannot have left it half-done.
        lock(&self.worker)
    }
}

/// What has become of an operation.
pub(in crate::sqlite) async fn answer<T>(
    answer: &mut oneshot::Receiver<Result<T, Error>>,
) -> Result<T, Error> {
    answer.await.unwrap_or_else(|_| Err(worker_is_gone()))
}

fn worker_is_gone() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the thread of the SQLite backend ended unexpectedly; make a new backend",
    )
    .with_unknown_outcome()
}
