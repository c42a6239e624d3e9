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
//! let guard = lock(&backend, &Key::new("account:4711")?, &LockOptions::default()).await?;
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
//! transaction is written share the next. Several locks that are asked for together are written in one savepoint of it.
//! The names of a key's slots are one range, and those of its readers another: which slots are held, and who shares the key, takes one look each.
//!
//! # How waiters hear of releases
//!
//! For as long as somebody waits, the connection looks whether others have written to the file (`PRAGMA data_version`,
//! which reads no page of it): about each millisecond while they write, then less and less often, and every 25 ms once
//! nothing was written for a few seconds. After a change it reads the locks that are waited for, and wakes those whose
//! locks are free. A release by any program that writes such files is found like this.
//!
//! A release by the backend itself wakes its own waiters at once, unless another process has written within the last
//! second: then they too wait for the next look, so that the lock does not stay in one process. Processes are served
//! in no order.

// Files depend in one direction: settings and errors, connection/, operations/, wakeups/, and this.
mod config;
mod connection;
mod error;
mod operations;
mod wakeups;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::config::{Location, SqliteConfig};
use self::connection::queue::OperationQueue;
use self::connection::schema::KEYS;
use self::connection::store::{Durability, Store};
use self::connection::worker::Effect;
use self::operations::{
    acquire, extend, facts, force_release, is_locked, list, lookup, mark, release,
};
use self::wakeups::listen::Polling;
use crate::asking::outcome::Outcome;
use crate::asking::request::{Operation, ReleaseRequest, runs_no_scripts};
use crate::background::backend::{Backend, Capabilities};
use crate::background::work::Work;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::due::MarkChange;
use crate::values::key::{Key, readers_name};
use crate::values::time::{Clock, SystemClock, TimeAuthority};
use crate::waiting::wakeups::{Wakeups, Watch};

/// A [`Backend`] on SQLite.
pub struct SqliteBackend {
    config: SqliteConfig,
    queue: Arc<OperationQueue>,
    wakeups: Wakeups,
    work: Work,
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
        let config = config.validated()?;
        let queue = Arc::new(OperationQueue::new(config.clone(), Arc::new(clock)));
        let wakeups = Wakeups::new(Polling::new(&queue));
        Ok(Self {
            config,
            queue,
            wakeups,
            work: Work::default(),
        })
    }

    async fn is_locked(&self, key: Key) -> Result<bool, Error> {
        let asked = key.clone();
        let look = move |store: &Store| is_locked::is_locked(store, &asked);
        let state = self.queue.run(Effect::Read, look).await?;
        if state == is_locked::KeyState::LeftOver && self.config.cleanup_in_is_locked {
            // In the background: the answer does not depend on the clean-up.
            let effect = Effect::Write(Durability::UntilPowerLoss);
            let clean_up = move |store: &Store| is_locked::clean_up(store, &key);
            let _ = self.queue.submit(effect, clean_up);
        }
        Ok(state == is_locked::KeyState::Locked)
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

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        let queue = &self.queue;
        Ok(match operation.clone() {
            Operation::Acquire(request) => {
                let acquire = move |store: &Store| acquire::acquire(store, &request);
                let effect = Effect::Write(Durability::ForGood);
                Outcome::Acquire(queue.run(effect, acquire).await?)
            }
            Operation::Release(ReleaseRequest {
                lock_ids,
                done: None,
            }) => {
                let release = move |store: &Store| release::release(store, &lock_ids);
                Outcome::Release(queue.run(Effect::Urgent, release).await?)
            }
            Operation::Release(ReleaseRequest {
                lock_ids,
                done: Some(done),
            }) => {
                let finish = move |store: &Store| release::finish(store, &lock_ids[0], &done);
                // A loss of power must not let it be done again.
                let effect = Effect::Write(Durability::ForGood);
                Outcome::Release(Batch::from([queue.run(effect, finish).await?]))
            }
            Operation::Mark { key, change } => {
                let effect = match change {
                    MarkChange::Keep => Effect::Read,
                    MarkChange::Clear | MarkChange::Set(_) => Effect::Write(Durability::ForGood),
                };
                let mark = move |store: &Store| mark::mark(store, &key, &change);
                Outcome::Mark(queue.run(effect, mark).await?)
            }
            Operation::Extend(extension) => {
                let extend = move |store: &Store| extend::extend(store, &extension);
                Outcome::Extend(queue.run(Effect::Urgent, extend).await?)
            }
            Operation::IsLocked(key) => Outcome::IsLocked(self.is_locked(key).await?),
            Operation::Lookup(lookup) => {
                let look_up = move |store: &Store| lookup::lookup(store, &lookup);
                Outcome::Lookup(queue.run(Effect::Read, look_up).await?)
            }
            Operation::ForceRelease(key) => {
                let release = move |store: &Store| force_release::force_release(store, &key);
                let effect = Effect::Write(Durability::UntilPowerLoss);
                Outcome::ForceRelease(queue.run(effect, release).await?)
            }
            Operation::List(page) => {
                let list = move |store: &Store| list::list(store, &page);
                Outcome::List(queue.run(Effect::Read, list).await?)
            }
            Operation::Eval(_) => return Err(runs_no_scripts()),
            Operation::Facts => Outcome::Facts(vec![queue.run(Effect::Read, facts::facts).await?]),
        })
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        // The name of the last slot stands for any of them, and that of no reader for all readers.
        let lock_key = match claim.kind {
            ClaimKind::Exclusive => KEYS.lock_key(&claim.key),
            ClaimKind::Shared => KEYS.lock_key(&claim.key).map(|name| readers_name(&name)),
            ClaimKind::SlotOf(slots) => KEYS.lock_key(&claim.key.slot(slots.count())),
        };
        Some(self.wakeups.watch(&lock_key.ok()?))
    }

    async fn shut_down(&self) {
        self.wakeups.close();
        self.queue.close().await;
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
