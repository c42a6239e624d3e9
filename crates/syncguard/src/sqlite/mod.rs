//! Locks in an SQLite file, shared by the processes of one machine: no server needed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), syncguard::Error> {
//! use std::sync::Arc;
//! use syncguard::sqlite::{SqliteBackend, SqliteConfig};
//! use syncguard::{Backend, Key, LockOptions, lock};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("locks.db");
//! let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::file(path))?);
//! let guard = lock(&backend, &Key::new("nightly-report")?, &LockOptions::default()).await?;
//! assert!(guard.release().await?);
//! # backend.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it guarantees
//!
//! At most one live lock per key among all processes that use the same file, and fences that grow
//! with each acquisition of a key: over restarts, over kill -9, over the loss of power.
//!
//! An acquisition is on the disk before it is answered (`synchronous = FULL`), so its fence is never given twice. A
//! transaction with only releases, extensions and forced releases survives the death of processes, but not a loss
//! of power (`synchronous = NORMAL`). That is safe: when the machine stops, all holders stop with it, and a lock
//! whose release was lost ends with its TTL.
//!
//! # What it does not
//!
//! - Processes on different machines do not exclude each other. SQLite needs memory that the processes share, and
//!   dependable file locks. A file on NFS, SMB or another network file system is refused, unless
//!   [`allow_network_file_system`](SqliteConfig::allow_network_file_system) is set. Whether a FUSE file system
//!   uses a network cannot be seen: those that are known to do so are refused, others are not.
//! - Two copies of this library in one process (two versions, two addons) cannot share a file, because SQLite's
//!   locks belong to the process. The second copy gets `InvalidArgument` until the first has closed its backends.
//! - Time is the machine's clock, which all processes share. When the clock is set forward, locks expire early by as
//!   much, and two processes may both believe that they hold a lock: that is what the fence is for. When it is set
//!   back, locks that are not released last longer by as much.
//! - The file, and `-wal` and `-shm` beside it, must not be deleted or replaced while any process has them open.
//!   Each write checks whether the path still leads to the file, and fails if it does not.
//! - The file must have only one name, because SQLite names `-wal` and `-shm` after it: a file with a hard link, or
//!   one that is mounted without its folder, is refused. Symbolic links are followed.
//!
//! # How it works
//!
//! Each backend has one connection on a thread of its own, started by the first operation and ended by
//! [`close`](crate::Backend::close) or by dropping the backend. Operations that queue up while one
//! transaction is written share the next.

mod acquire;
mod config;
mod copies;
mod error;
mod extend;
mod file;
mod file_id;
mod file_system;
mod force_release;
mod header;
mod is_locked;
mod lookup;
mod open_files;
mod owned;
mod release;
mod schema;
mod store;
mod worker;

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};

pub use self::config::{Location, SqliteConfig};
use self::store::{Durability, Store};
use self::worker::{Effect, Job};
use crate::backend::{
    AcquireOutcome, AcquireRequest, Backend, Capabilities, ExtendOutcome, LockRecord, Lookup,
    ReleaseOutcome, TimeAuthority, Ttl,
};
use crate::error::{Error, ErrorKind};
use crate::key::{Key, KeySpace};
use crate::lock_id::LockId;
use crate::time::{Clock, SystemClock};
use crate::work::Work;

/// The same limit as in PostgreSQL: 1700 bytes, so that no key has to be hashed.
const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1700,
    reserve_bytes: 0,
};

/// A [`Backend`] on SQLite.
pub struct SqliteBackend {
    config: SqliteConfig,
    clock: Arc<dyn Clock>,
    worker: Mutex<Worker>,
    work: Work,
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

impl SqliteBackend {
    /// A backend on the machine's clock. The first operation opens the file. If that fails, the next one tries again.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field of the configuration.
    pub fn new(config: SqliteConfig) -> Result<Self, Error> {
        Self::with_clock(config, SystemClock)
    }

    /// A backend that takes its time from `clock`. All processes that share a file must share a clock.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_clock(config: SqliteConfig, clock: impl Clock) -> Result<Self, Error> {
        Ok(Self {
            config: config.validated()?,
            clock: Arc::new(clock),
            worker: Mutex::new(Worker::NotStarted),
            work: Work::default(),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        effect: Effect,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let answer = self.submit(effect, operation)?;
        answer.await.unwrap_or_else(|_| Err(worker_is_gone()))
    }

    fn submit<T: Send + 'static>(
        &self,
        effect: Effect,
        operation: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (job, answer) = Job::new(effect, Instant::now() + self.patience(), operation);
        self.jobs()?.send(job).map_err(|_| worker_is_gone())?;
        Ok(answer)
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
            Worker::Closed(_) => Err(Error::invalid("the backend is closed")),
            Worker::NotStarted => {
                let (jobs, queue) = channel();
                let (alive, ended) = watch::channel(());
                let config = self.config.clone();
                let clock = Arc::clone(&self.clock);
                std::thread::Builder::new()
                    .name("syncguard-sqlite".to_owned())
                    .spawn(move || {
                        // Dropped when the thread ends, also by a panic.
                        let _alive = alive;
                        worker::serve(&config, &clock, &queue);
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
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "sqlite",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn operation_timeout(&self) -> Duration {
        self.config.operation_timeout
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let request = request.clone();
        self.run(Effect::Write(Durability::ForGood), move |store| {
            acquire::acquire(store, &request)
        })
        .await
    }

    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        let lock_id = lock_id.clone();
        self.run(Effect::Write(Durability::UntilPowerLoss), move |store| {
            release::release(store, &lock_id)
        })
        .await
    }

    async fn extend(&self, lock_id: &LockId, ttl: Ttl) -> Result<ExtendOutcome, Error> {
        let lock_id = lock_id.clone();
        self.run(Effect::Write(Durability::UntilPowerLoss), move |store| {
            extend::extend(store, &lock_id, ttl)
        })
        .await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let wanted = key.clone();
        let state = self
            .run(Effect::Read, move |store| {
                is_locked::is_locked(store, &wanted)
            })
            .await?;
        if state == is_locked::State::LeftOver && self.config.cleanup_in_is_locked {
            let key = key.clone();
            // In the background: the answer does not depend on the clean-up.
            let _ = self.submit(Effect::Write(Durability::UntilPowerLoss), move |store| {
                is_locked::clean_up(store, &key)
            });
        }
        Ok(state == is_locked::State::Locked)
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error> {
        let lookup = lookup.clone();
        self.run(Effect::Read, move |store| lookup::lookup(store, &lookup))
            .await
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        let key = key.clone();
        self.run(Effect::Write(Durability::UntilPowerLoss), move |store| {
            force_release::force_release(store, &key)
        })
        .await
    }

    async fn shut_down(&self) {
        let ended = {
            let mut worker = self.lock_worker();
            let ended = match &*worker {
                Worker::NotStarted => None,
                Worker::Running { ended, .. } => Some(ended.clone()),
                Worker::Closed(ended) => ended.clone(),
            };
            // Dropping the sender ends the thread once it has done the jobs that are queued.
            *worker = Worker::Closed(ended.clone());
            ended
        };
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn worker_is_gone() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the thread of the SQLite backend ended unexpectedly; make a new backend",
    )
    .with_unknown_outcome()
}
