use std::collections::HashSet;
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::*;
use crate::asking::outcome::{Absence, Outcome, ReleaseOutcome};
use crate::asking::request::Operation;
use crate::background::backend::Capabilities;
use crate::background::work::Work;
use crate::holding::guard::LockGuard;
use crate::holding::lock::{LockOptions, lock};
use crate::network::event_loop::Lane;
use crate::values::claim::Claim;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::time::TimeAuthority;
use crate::waiting::listener::StoreMessage;
use crate::waiting::retry::Jitter;
use crate::waiting::wakeups::{Wakeups, Watch};

mod crowd;
mod gathering;
mod hand_over;
mod scene;
mod several;
mod told;
mod yielding;

/// A store. Until a moment, somebody far away holds all locks; after it, all that it has granted are.
struct Store {
    work: Work,
    free_at: Mutex<Instant>,
    held: Mutex<HashSet<LockId>>,
    /// When the lock ends by itself, if it says so.
    ends: Mutex<Option<Instant>>,
    asked: Mutex<Vec<Instant>>,
    /// What it fails with.
    fails: Mutex<Option<ErrorKind>>,
    /// How it tells of releases, if it does.
    wakeups: Option<Wakeups>,
    messages: Messages,
    /// Whether releases are answered at once; else with a permit each.
    answers: Option<Semaphore>,
    /// How long it takes for a question, if it answers one after another.
    serving: Option<(Semaphore, Duration)>,
    lane: Option<Lane>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.asked.lock().unwrap().push(Instant::now());
        // Those who come meanwhile stand behind.
        yield_now().await;
        if let Some((one, time)) = &self.serving {
            let _served = one.acquire().await.unwrap();
            sleep(*time).await;
        }
        if let Some(kind) = *self.fails.lock().unwrap() {
            return Err(Error::new(kind, "the store fails"));
        }
        let mut held = self.held.lock().unwrap();
        if Instant::now() < *self.free_at.lock().unwrap() || !held.is_empty() {
            let ends = *self.ends.lock().unwrap();
            return Ok(AcquireOutcome::Locked {
                claim: 0,
                free_in: ends.map(|end| end.saturating_duration_since(Instant::now())),
                labels: crate::values::labels::Labels::default(),
                is_shared: false,
            });
        }
        held.insert(request.claims[0].lock_id.clone());
        Ok(AcquireOutcome::one(Grant {
            lock_id: request.claims[0].lock_id.clone(),
            slot: None,
            fence: Fence::from_counter(1).unwrap(),
            expires_at_ms: 1,
        }))
    }

    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        let was_held = self.held.lock().unwrap().remove(lock_id);
        if let Some(answers) = &self.answers {
            answers.acquire().await.unwrap().forget();
        }
        Ok(match was_held {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::Absent(Absence::NotFound),
        })
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

    fn lane(&self) -> Option<Lane> {
        self.lane
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        self.wakeups
            .as_ref()
            .map(|wakeups| wakeups.watch(claim.key.as_str()))
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(request).await?),
            Operation::Release(release) => {
                Outcome::Release([self.release(&release.lock_ids[0]).await?].into())
            }
            other => panic!("{other:?} is not asked here"),
        })
    }

    async fn shut_down(&self) {}
}

/// What somebody who waits gets, and when.
type WaitResult = (Result<LockGuard, Error>, Duration);

struct Scene {
    store: Arc<Store>,
    start: Instant,
}

impl Scene {
    fn free_after(limit: Duration) -> Self {
        Self::with(limit, |_| {})
    }

    fn with(limit: Duration, change: impl FnOnce(&mut Store)) -> Self {
        let start = Instant::now();
        let mut store = Store {
            work: Work::default(),
            free_at: Mutex::new(start + limit),
            held: Mutex::default(),
            ends: Mutex::default(),
            asked: Mutex::default(),
            fails: Mutex::default(),
            wakeups: None,
            messages: Messages::default(),
            answers: None,
            serving: None,
            lane: None,
        };
        change(&mut store);
        let store = Arc::new(store);
        Self { store, start }
    }

    fn wait(&self, retry: RetryPolicy) -> JoinHandle<WaitResult> {
        self.wait_for("k", retry)
    }

    fn wait_for(&self, key: &'static str, retry: RetryPolicy) -> JoinHandle<WaitResult> {
        let (backend, start) = (Arc::clone(&self.store) as Arc<dyn Backend>, self.start);
        tokio::spawn(async move {
            let options = LockOptions {
                retry,
                ..LockOptions::default()
            };
            let guard = lock(&backend, &Key::new(key).unwrap(), &options).await;
            (guard, start.elapsed())
        })
    }

    fn asked(&self) -> usize {
        self.store.asked.lock().unwrap().len()
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.store) as _
    }

    fn queues_are_over(&self) -> bool {
        self.store.work.queues().is_empty()
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
    sleep(Duration::from_millis(4990)).await;
    assert!(t.asked() < 30, "{}", t.asked());
    for waiter in waiters {
        let (guard, _) = waiter.await.unwrap();
        assert_eq!(guard.unwrap_err().kind(), ErrorKind::AcquisitionTimeout);
    }
    // When their time is over, one asks for all.
    assert!(t.asked() < 35, "{}", t.asked());
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

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_as_they_came_each_as_soon_as_the_lock_is_free() {
    let t = Scene::free_after(S(0));
    let first = t.wait(patient()).await.unwrap().0.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let waiters: Vec<_> = (0..5)
        .map(|number| {
            let (backend, served) = (t.backend(), Arc::clone(&served));
            tokio::spawn(async move {
                let guard = lock(&backend, &key(), &waits(patient())).await.unwrap();
                served.lock().unwrap().push(number);
                assert!(guard.release().await.unwrap());
            })
        })
        .collect();
    settle().await;
    assert!(first.release().await.unwrap());
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(t.start.elapsed(), Duration::ZERO, "no timer has to fire");
    // One when they came, and one each after a release: nobody asks while it is known that the lock is held.
    assert_eq!(t.asked(), 7);
    assert!(t.queues_are_over());
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_others_gives_up_when_its_own_time_is_over() {
    let t = Scene::free_after(S(500));
    let first = t.wait(patient());
    settle().await;
    for (waiter, ms) in [300.0, 100.0, 200.0].map(|ms| (t.wait(growing(ms)), ms as u64)) {
        let (guard, at) = waiter.await.unwrap();
        let error = guard.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
        // Tokio's timers are up to a millisecond late.
        assert!((ms..=ms + 1).contains(&(at.as_millis() as u64)), "{at:?}");
    }
    first.abort();
    assert!(first.await.is_err());
    assert!(t.queues_are_over());
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_others_is_told_why_the_store_fails() {
    for kind in [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout] {
        let t = Scene::free_after(S(0));
        *t.store.fails.lock().unwrap() = Some(kind);
        for waiter in [(); 3].map(|()| t.wait(until(1000.0))) {
            let error = waiter.await.unwrap().0.unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.message().contains("the store fails"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_cancelled_makes_way_first_or_not() {
    let t = Scene::free_after(S(0));
    let first = t.wait(patient()).await.unwrap().0.unwrap();
    let [a, b, c] = [(); 3].map(|()| t.wait(patient()));
    let last = t.wait(patient());
    settle().await;
    for cancelled in [b, a, c] {
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
    }
    assert!(first.release().await.unwrap());
    assert!(last.await.unwrap().0.is_ok());
    assert_eq!(t.start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn who_is_cancelled_in_the_moment_of_its_turn_passes_it_on() {
    let t = Scene::free_after(S(0));
    let queues = t.store.work.queues();
    let claims = [Claim::new(key()).unwrap()];
    let enter = || Ticket::new(queues, queues.next_number(), &claims, &patient());
    let [mut first, mut behind, mut last] = [(); 3].map(|()| enter());
    assert!(first.asks().unwrap());
    assert!(!behind.asks().unwrap() && !last.asks().unwrap());
    drop(first);
    // It may ask, and has not noticed.
    drop(behind);
    assert!(last.asks().unwrap());
    drop(last);
    assert!(t.queues_are_over());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_says_so_and_leaves_the_queue() {
    let t = Scene::free_after(S(500));
    let request = AcquireRequest::new(key(), Ttl::DEFAULT).unwrap();
    let mut waiter = Waiter::new(&t.backend(), request, patient()).unwrap();
    let error = waiter.acquire(sleep(S(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!((waiter.attempts(), waiter.wakeups()), (1, 0));
    assert!(t.queues_are_over());
}

#[tokio::test(start_paused = true)]
async fn who_is_cancelled_with_a_release_does_not_ask_once_more() {
    let t = Scene::free_after(S(500));
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    let request = AcquireRequest::new(key(), Ttl::DEFAULT).unwrap();
    let mut waiter = Waiter::new(&t.backend(), request, patient()).unwrap();
    let waiting = tokio::spawn(async move {
        let cancelled = async { drop(cancelled.await) };
        waiter.acquire(cancelled).await.unwrap_err().kind()
    });
    settle().await;
    t.store.work.queues().release_ended(&key());
    cancel.send(()).unwrap();
    assert_eq!(waiting.await.unwrap(), ErrorKind::Aborted);
    assert_eq!(t.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_does_not_queue() {
    let t = Scene::free_after(S(500));
    let first = t.wait(patient());
    settle().await;
    assert_eq!(t.asked(), 1);
    for (retries, ms) in [(0.0, 5000.0), (10.0, 0.0)] {
        let policy = RetryPolicy {
            max_retries: retries,
            timeout_ms: ms,
            ..RetryPolicy::default()
        };
        let (guard, at) = t.wait(policy).await.unwrap();
        let error = guard.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
        assert_eq!(at, Duration::ZERO);
    }
    assert_eq!(t.asked(), 3);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn another_key_and_another_backend_have_queues_of_their_own() {
    let t = Scene::free_after(S(500));
    let waiter = t.wait(patient());
    settle().await;
    *t.store.free_at.lock().unwrap() = t.start;
    assert!(t.wait_for("other", patient()).await.unwrap().0.is_ok());
    let other = Scene::free_after(S(0));
    assert!(other.wait(patient()).await.unwrap().0.is_ok());
    assert_eq!(t.start.elapsed(), Duration::ZERO);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn what_those_behind_ask_for_is_no_retry_of_the_first() {
    let t = Scene::free_after(S(1));
    let few = RetryPolicy {
        max_retries: 2.0,
        retry_delay_ms: 900.0,
        ..growing(60_000.0)
    };
    let eager = RetryPolicy {
        max_retries: f64::INFINITY,
        retry_delay_ms: 20.0,
        backoff: crate::Backoff::Fixed,
        ..growing(60_000.0)
    };
    let (first, second) = (t.wait(few), t.wait(eager));
    let (guard, at) = first.await.unwrap();
    assert!(at < Duration::from_millis(1050), "{at:?}");
    assert!(guard.unwrap().release().await.unwrap());
    assert!(second.await.unwrap().0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn nobody_may_wait_once_waiters_are_refused() {
    let t = Scene::free_after(S(500));
    let waiters = [(); 3].map(|()| t.wait(patient()));
    settle().await;
    let refusal = Error::new(ErrorKind::Aborted, "no more");
    t.store.work.refuse_waiters(refusal);
    for waiter in waiters.into_iter().chain([t.wait(patient())]) {
        let error = waiter.await.unwrap().0.unwrap_err();
        assert_eq!(error.message(), "no more");
    }
    assert_eq!(t.start.elapsed(), Duration::ZERO);
}

fn key() -> Key {
    Key::new("k").unwrap()
}

/// Waits for long, and is not going to ask without a reason.
fn patient() -> RetryPolicy {
    RetryPolicy {
        max_retries: f64::INFINITY,
        retry_delay_ms: 24.0 * 3_600_000.0,
        max_retry_delay_ms: f64::INFINITY,
        timeout_ms: f64::INFINITY,
        ..RetryPolicy::default()
    }
}

fn until(timeout_ms: f64) -> RetryPolicy {
    RetryPolicy {
        timeout_ms,
        ..RetryPolicy::default()
    }
}

fn waits(retry: RetryPolicy) -> LockOptions {
    LockOptions {
        retry,
        ..LockOptions::default()
    }
}

/// Lets everything run that waits for no timer.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

type Messages = Arc<Mutex<Option<UnboundedSender<StoreMessage>>>>;
