use std::sync::Mutex;

use async_trait::async_trait;
use tokio::time::sleep;

use super::*;
use crate::backend::{
    Absence, Capabilities, ExtendOutcome, Grant, LockRecord, Lookup, ReleaseOutcome, TimeAuthority,
};
use crate::fence::Fence;
use crate::lock_id::LockId;
use crate::waiting::retry::Jitter;
use crate::work::Work;

/// A store that tells of nothing. Until a moment, somebody far away holds its only lock.
struct Store {
    work: Work,
    free_at: Instant,
    held: Mutex<Option<LockId>>,
    asked: Mutex<Vec<Instant>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

#[async_trait]
impl Backend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "test",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.asked.lock().unwrap().push(Instant::now());
        let mut held = self.held.lock().unwrap();
        if Instant::now() < self.free_at || held.is_some() {
            return Ok(AcquireOutcome::Locked { free_in: None });
        }
        *held = Some(request.lock_id.clone());
        Ok(AcquireOutcome::Acquired(Grant {
            lock_id: request.lock_id.clone(),
            fence: Fence::from_counter(1).unwrap(),
            expires_at_ms: 1,
        }))
    }

    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        let mut held = self.held.lock().unwrap();
        Ok(match held.take_if(|holder| holder == lock_id) {
            Some(_) => ReleaseOutcome::Released,
            None => ReleaseOutcome::Absent(Absence::NotFound),
        })
    }

    async fn extend(&self, _: &LockId, _: Ttl) -> Result<ExtendOutcome, Error> {
        Ok(ExtendOutcome::Absent(Absence::NotFound))
    }

    async fn is_locked(&self, _: &Key) -> Result<bool, Error> {
        Ok(false)
    }

    async fn lookup(&self, _: &Lookup) -> Result<Option<LockRecord>, Error> {
        Ok(None)
    }

    async fn force_release(&self, _: &Key) -> Result<bool, Error> {
        Ok(false)
    }

    async fn shut_down(&self) {}
}

/// What somebody who waits gets, and when.
type Got = (Result<LockGuard, Error>, Duration);

struct Scene {
    store: Arc<Store>,
    start: Instant,
}

impl Scene {
    fn free_after(limit: Duration) -> Self {
        let start = Instant::now();
        let store = Arc::new(Store {
            work: Work::default(),
            free_at: start + limit,
            held: Mutex::default(),
            asked: Mutex::default(),
        });
        Self { store, start }
    }

    fn wait(&self, retry: RetryPolicy) -> tokio::task::JoinHandle<Got> {
        let (backend, start) = (Arc::clone(&self.store) as Arc<dyn Backend>, self.start);
        tokio::spawn(async move {
            let options = LockOptions {
                retry,
                ..LockOptions::default()
            };
            let guard = lock(&backend, &Key::new("k").unwrap(), &options).await;
            (guard, start.elapsed())
        })
    }

    fn asked(&self) -> usize {
        self.store.asked.lock().unwrap().len()
    }
}

const S: fn(u64) -> Duration = Duration::from_secs;

/// As `lock()` of JavaScript waits, without the chance in it.
fn growing(timeout_ms: f64) -> RetryPolicy {
    RetryPolicy {
        timeout_ms,
        jitter: Jitter::None,
        ..RetryPolicy::of_typescript_2()
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_asks_at_the_pace_of_its_most_eager_member_and_the_first_gets_the_lock() {
    let t = Scene::free_after(S(11));
    let first = t.wait(growing(60_000.0));
    sleep(S(10)).await;
    let asked = t.asked();
    // Alone, the first would not ask before 12.7 s.
    let second = t.wait(growing(5000.0));
    let (guard, at) = first.await.unwrap();
    assert!(at < S(12), "{at:?}");
    assert!(guard.unwrap().release().await.unwrap());
    let (guard, at) = second.await.unwrap();
    assert!(at < S(12), "{at:?}");
    assert!(guard.is_ok());
    assert!(t.asked() - asked < 12);
}

#[tokio::test(start_paused = true)]
async fn those_who_come_together_ask_no_more_often_than_one_alone() {
    let t = Scene::free_after(S(100));
    let policy = RetryPolicy::of_typescript_2();
    let waiters: Vec<_> = (0..500).map(|_| t.wait(policy)).collect();
    for waiter in waiters {
        let (guard, _) = waiter.await.unwrap();
        assert_eq!(guard.unwrap_err().kind(), ErrorKind::AcquisitionTimeout);
    }
    assert!(t.asked() < 30, "{}", t.asked());
}

#[tokio::test(start_paused = true)]
async fn by_default_the_time_alone_limits_the_waiting() {
    let t = Scene::free_after(S(500));
    let policy = RetryPolicy {
        timeout_ms: 600_000.0,
        ..RetryPolicy::default()
    };
    let (guard, at) = t.wait(policy).await.unwrap();
    assert!(guard.is_ok());
    // No pause is longer than five seconds.
    assert!((S(500)..S(505)).contains(&at), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_backend_is_closed_all_who_wait_end_at_once() {
    let t = Scene::free_after(S(500));
    let policy = RetryPolicy {
        wait: Wait::Poll,
        ..growing(60_000.0)
    };
    let waiters = [policy, policy, growing(60_000.0)].map(|policy| t.wait(policy));
    sleep(S(20)).await;
    t.store.close().await;
    for waiter in waiters {
        let (guard, at) = waiter.await.unwrap();
        let error = guard.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(error.message(), "the backend is closed");
        assert_eq!(at, S(20));
    }
}
