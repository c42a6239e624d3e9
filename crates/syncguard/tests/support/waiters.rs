//! Those who wait for a lock and would hardly ever poll: only hearing of a release explains that they get it soon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::{Backend, Jitter, LockGuard, LockOptions, RetryPolicy, Watch, lock};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::attempts::Attempts as _;
use super::locks::{acquire, eventually, key};

/// Much more than hearing takes, and much less than the pause between polls.
const SOON: Duration = Duration::from_secs(20);

/// Polls every 30 seconds.
pub(crate) fn patient() -> LockOptions {
    LockOptions {
        retry: RetryPolicy {
            max_retries: f64::INFINITY,
            retry_delay_ms: 30_000.0,
            jitter: Jitter::None,
            timeout_ms: f64::INFINITY,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
}

/// Waits for `name`, in a task of its own.
pub(crate) fn wait_for(backend: &Arc<dyn Backend>, name: &str) -> JoinHandle<LockGuard> {
    let (backend, key) = (Arc::clone(backend), key(name));
    tokio::spawn(async move { lock(&backend, &key, &patient()).await.unwrap() })
}

/// The same, once it is told of releases.
pub(crate) async fn wait_listening(
    backend: &Arc<dyn Backend>,
    name: &str,
) -> JoinHandle<LockGuard> {
    let watch = backend.watch_key(&key(name)).unwrap();
    let waiter = wait_for(backend, name);
    eventually("it listens", async || watch.is_listening()).await;
    waiter
}

/// Hears of `name`, from now on.
pub(crate) async fn watch(backend: &Arc<dyn Backend>, name: &str) -> Watch {
    let watch = backend.watch_key(&key(name)).unwrap();
    // The first that it tells is that it listens, also if it did before.
    soon(watch.freed()).await;
    assert!(watch.is_listening());
    watch
}

/// Fails the test unless it comes long before a poll would.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("nobody has told of it")
}

/// For how long those who wait on `listener` are deaf once `swallow` has let the connection that tells fall silent, without
/// a word to either side. `other` has the lock, and frees it meanwhile. Fails if it is longer than `most`.
pub(crate) async fn deaf_for(
    listener: &Arc<dyn Backend>,
    other: &Arc<dyn Backend>,
    name: &str,
    swallow: impl FnOnce(),
    most: Duration,
) {
    let held = acquire(other.as_ref(), name).await;
    let watch = watch(listener, name).await;
    let start = Instant::now();
    swallow();
    other.release(&held.lock_id).await.unwrap();
    let heard = timeout(Duration::from_secs(25), watch.freed()).await;
    let deaf = start.elapsed();
    assert!(heard.is_ok() && deaf < most, "deaf for {deaf:?}");
    // Only the new connection tells of that.
    assert!(deaf > Duration::from_millis(500));
}
