//! Load on a backend, for tests of what happens when its server fails.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AcquireOutcome, Backend, Error, ErrorKind, Operation, ReleaseOutcome};
use tokio::task::JoinSet;

use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, request};
use crate::support::redis_server::RedisServer;

pub(crate) const TIMEOUT: Duration = Duration::from_millis(600);
/// When a call has ended on a machine that is busy with other things. What nothing ends takes longer.
pub(crate) const LATEST: Duration = Duration::from_secs(10);

pub(crate) fn backend(config: RedisConfig) -> Arc<dyn Backend> {
    let mut config = config;
    config.locks.operation_timeout = TIMEOUT;
    Arc::new(RedisBackend::new(config).unwrap())
}

pub(crate) fn backend_at(server: &RedisServer) -> Arc<dyn Backend> {
    backend(RedisConfig::from_url(&server.url()).unwrap())
}

/// One attempt, as the library's users make it; fails the test when it takes too long.
pub(crate) async fn acquire(
    backend: &Arc<dyn Backend>,
    name: &str,
) -> Result<AcquireOutcome, Error> {
    let request = request(name);
    let start = Instant::now();
    let answer = operation::run::<AcquireOutcome>(
        backend,
        Operation::Acquire(request),
        CallOptions::default(),
        pending(),
    )
    .await;
    assert!(start.elapsed() < LATEST, "{:?}", start.elapsed());
    answer
}

pub(crate) async fn pair(backend: &Arc<dyn Backend>, name: &str) -> Result<(), Error> {
    let AcquireOutcome::Acquired(mut grants) = acquire(backend, name).await? else {
        return Ok(());
    };
    let grant = grants.remove(0);
    let start = Instant::now();
    let call = CallOptions::default();
    let mut released = operation::run::<ReleaseOutcome>(
        backend,
        Operation::Release([grant.lock_id.clone()].into()),
        call,
        pending(),
    )
    .await;
    assert!(start.elapsed() < LATEST, "{:?}", start.elapsed());
    // The holder tries until the server has answered: only then is it not its lock any more.
    while released.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let call = CallOptions::default();
        released = operation::run::<ReleaseOutcome>(
            backend,
            Operation::Release([grant.lock_id.clone()].into()),
            call,
            pending(),
        )
        .await;
    }
    Ok(())
}

/// Sixteen tasks that acquire and release until they are stopped.
pub(crate) struct Load {
    backend: Arc<dyn Backend>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    tasks: JoinSet<Vec<Error>>,
}

impl Load {
    pub(crate) fn start(backend: &Arc<dyn Backend>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let failed = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..16 {
            let (backend, stop) = (Arc::clone(backend), Arc::clone(&stop));
            let (done, failed) = (Arc::clone(&done), Arc::clone(&failed));
            tasks.spawn(async move {
                let name = format!("load:{number}");
                let mut errors = Vec::new();
                while !stop.load(SeqCst) {
                    match pair(&backend, &name).await {
                        Ok(()) => {
                            done.fetch_add(1, SeqCst);
                        }
                        Err(error) => {
                            failed.fetch_add(1, SeqCst);
                            errors.push(error);
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
                errors
            });
        }
        Self {
            backend: Arc::clone(backend),
            stop,
            done,
            failed,
            tasks,
        }
    }

    /// Waits until the load has got some way further.
    pub(crate) async fn goes_on(&self) {
        grows(&self.done, 200).await;
    }

    /// Waits until the fault is felt.
    pub(crate) async fn fails(&self) {
        grows(&self.failed, 1).await;
    }

    /// Ends the load, checks that the backend works and that nothing is left locked soon
    /// after, and gives the errors.
    pub(crate) async fn end(self) -> Vec<Error> {
        self.stop.store(true, SeqCst);
        let errors = self.tasks.join_all().await.into_iter().flatten().collect();
        let start = Instant::now();
        for number in 0..16 {
            let name = key(&format!("load:{number}"));
            while self.backend.is_locked(&name).await.unwrap() {
                assert!(start.elapsed() < Duration::from_secs(10), "left behind");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        pair(&self.backend, "after").await.unwrap();
        errors
    }
}

async fn grows(count: &AtomicU64, by: u64) {
    let (from, start) = (count.load(SeqCst), Instant::now());
    while count.load(SeqCst) < from + by {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing happens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn assert_kinds(errors: &[Error], kinds: &[ErrorKind]) {
    assert!(!errors.is_empty(), "the fault went unnoticed");
    for error in errors {
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
}

/// Waits until the backend works.
pub(crate) async fn until_it_works(backend: &Arc<dyn Backend>) {
    let start = Instant::now();
    while let Err(error) = backend.is_locked(&key("any")).await {
        assert!(start.elapsed() < Duration::from_secs(20), "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
