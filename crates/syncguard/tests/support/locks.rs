//! Short forms that fail the test.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Clock, Error, Fence, Grant, Key, SystemClock, Ttl,
};

use super::attempts::Attempts as _;

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn ttl(ms: i64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

/// Asks for `name` for so long that no test sees the end of it.
pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap()
}

/// A request that can be given to `backend` directly.
pub(crate) fn prepared(backend: &dyn Backend, key: &Key, ttl: Ttl) -> AcquireRequest {
    let mut request = AcquireRequest::new(key.clone(), ttl).unwrap();
    backend.prepare(&mut request);
    request
}

pub(crate) async fn try_acquire(
    backend: &dyn Backend,
    name: &str,
) -> Result<AcquireOutcome, Error> {
    let request = prepared(backend, &key(name), Ttl::DEFAULT);
    backend.acquire(&request).await
}

pub(crate) async fn acquire(backend: &dyn Backend, name: &str) -> Grant {
    match try_acquire(backend, name).await.unwrap() {
        AcquireOutcome::Acquired(grant) => grant[0].clone(),
        _ => panic!("{name} is locked"),
    }
}

/// A fence counter that stands here is ahead of every clock: from here on, fences are counted one by one.
pub(crate) const AHEAD: u64 = 10_000_000_000_000;

/// Whether a fence was taken from this machine's clock, not long ago, as the first one of a key is.
pub(crate) fn is_from_the_clock(fence: u64) -> bool {
    recently().contains(&fence)
}

/// The fences that this machine's clock has given in the last minute.
pub(crate) fn recently() -> RangeInclusive<u64> {
    let now = SystemClock.now_ms().unsigned_abs();
    now - 60_000..=now
}

/// Waits until the clock shows more than `fence`, so that a store that has lost its counters gives a larger one.
pub(crate) async fn until_after(fence: Fence) {
    eventually("the clock goes on", async || {
        *recently().end() > fence.get()
    })
    .await;
}

/// Asks until the answer is yes; fails after a minute, which is much for a server on a busy machine, too.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A clock that stands until it is set.
#[derive(Clone)]
pub(crate) struct ManualClock(pub(crate) Arc<AtomicI64>);

impl ManualClock {
    pub(crate) fn at(ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(ms)))
    }

    pub(crate) fn advance(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap();
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
