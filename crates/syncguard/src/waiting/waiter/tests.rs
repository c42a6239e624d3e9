use std::collections::HashSet;
use std::future::pending;
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::*;
use crate::backend::{
    Absence, Capabilities, ExtendOutcome, LockRecord, Lookup, ReleaseOutcome, TimeAuthority,
};
use crate::event_loop::Lane;
use crate::fence::Fence;
use crate::guard::LockGuard;
use crate::key::Key;
use crate::lock::{LockOptions, lock};
use crate::waiting::listener::{Heard, Listen, Listener};
use crate::waiting::retry::Jitter;
use crate::waiting::wakeups::{Wakeups, Watch};
use crate::work::Work;

/// A store. Until a moment, somebody far away holds all locks; after it, all that it has granted are.
struct Store {
    work: Work,
    free_at: Mutex<Instant>,
    held: Mutex<HashSet<LockId>>,
    asked: Mutex<Vec<Instant>>,
    /// What it fails with.
    fails: Mutex<Option<ErrorKind>>,
    /// How it tells of releases, if it does.
    wakeups: Option<Wakeups>,
    messages: Messages,
    /// Whether releases are answered at once; else with a permit each.
    answers: Option<Semaphore>,
    lane: Option<Lane>,
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

    fn lane(&self) -> Option<Lane> {
        self.lane
    }

    fn watch(&self, key: &Key) -> Option<Watch> {
        self.wakeups
            .as_ref()
            .map(|wakeups| wakeups.watch(key.as_str()))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.asked.lock().unwrap().push(Instant::now());
        // Those who come meanwhile stand behind.
        yield_now().await;
        if let Some(kind) = *self.fails.lock().unwrap() {
            return Err(Error::new(kind, "the store fails"));
        }
        let mut held = self.held.lock().unwrap();
        if Instant::now() < *self.free_at.lock().unwrap() || !held.is_empty() {
            return Ok(AcquireOutcome::Locked { free_in: None });
        }
        held.insert(request.lock_id.clone());
        Ok(AcquireOutcome::Acquired(Grant {
            lock_id: request.lock_id.clone(),
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
        Self::with(limit, |_| {})
    }

    fn with(limit: Duration, change: impl FnOnce(&mut Store)) -> Self {
        let start = Instant::now();
        let mut store = Store {
            work: Work::default(),
            free_at: Mutex::new(start + limit),
            held: Mutex::default(),
            asked: Mutex::default(),
            fails: Mutex::default(),
            wakeups: None,
            messages: Messages::default(),
            answers: None,
            lane: None,
        };
        change(&mut store);
        let store = Arc::new(store);
        Self { store, start }
    }

    fn wait(&self, retry: RetryPolicy) -> JoinHandle<Got> {
        self.wait_for("k", retry)
    }

    fn wait_for(&self, key: &'static str, retry: RetryPolicy) -> JoinHandle<Got> {
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

    fn turns_are_over(&self) -> bool {
        self.store.work.turns().is_empty()
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
    assert!(t.turns_are_over());
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
    assert!(t.turns_are_over());
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_others_is_told_why_the_store_fails() {
    let t = Scene::free_after(S(0));
    *t.store.fails.lock().unwrap() = Some(ErrorKind::ServiceUnavailable);
    let policy = RetryPolicy {
        timeout_ms: 1000.0,
        ..RetryPolicy::default()
    };
    for waiter in [(); 3].map(|()| t.wait(policy)) {
        let error = waiter.await.unwrap().0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(error.message().contains("the store fails"), "{error}");
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
    let turns = t.store.work.turns();
    let Entered::First(first) = turns.enter(&key(), &patient()) else {
        panic!("nobody else is there");
    };
    let [behind, last] = [(); 2].map(|()| match turns.enter(&key(), &patient()) {
        Entered::Behind(place) => place,
        Entered::First(_) => panic!("somebody is there"),
    });
    drop(first);
    // It has the turn, and has not noticed.
    drop(behind);
    let mut last = last;
    assert!(last.turn().await.is_ok());
    assert!(t.turns_are_over());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_says_so_and_leaves_the_queue() {
    let t = Scene::free_after(S(500));
    let request = AcquireRequest::new(key(), Ttl::DEFAULT).unwrap();
    let mut waiter = Waiter::new(&t.backend(), request, patient()).unwrap();
    let error = waiter.acquire(sleep(S(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!((waiter.attempts(), waiter.wakeups()), (1, 0));
    assert!(t.turns_are_over());
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
    t.store.work.turns().release_ended(&key());
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

/// A store that tells of releases when it is told to, and answers them when it is told to. Some want its lock.
struct Relay {
    t: Scene,
    holders: Vec<LockGuard>,
    waiters: Vec<JoinHandle<Got>>,
    releases: Vec<JoinHandle<()>>,
}

impl Relay {
    async fn of(count: usize, is_free: bool, lane: Option<Lane>) -> Self {
        let server = Messages::default();
        let t = Scene::with(S(if is_free { 0 } else { 500 }), |store| {
            store.wakeups = Some(Wakeups::new(Server(Arc::clone(&server))));
            store.answers = Some(Semaphore::new(0));
            store.messages = Arc::clone(&server);
            store.lane = lane;
        });
        let waiters = (0..count).map(|_| t.wait(patient())).collect();
        settle().await;
        let mut relay = Self {
            t,
            holders: Vec::new(),
            waiters,
            releases: Vec::new(),
        };
        relay.look().await;
        relay
    }

    /// Looks who has got the lock.
    async fn look(&mut self) {
        settle().await;
        if self.waiters.first().is_some_and(JoinHandle::is_finished) {
            let (guard, _) = self.waiters.remove(0).await.unwrap();
            self.holders.push(guard.unwrap());
        }
    }

    /// Lets the holder go; the release is not answered yet.
    async fn release(&mut self) {
        let guard = self.holders.pop().unwrap();
        self.releases.push(tokio::spawn(async move {
            assert!(guard.release().await.unwrap());
        }));
        self.look().await;
    }

    async fn answer(&mut self) {
        self.t.store.answers.as_ref().unwrap().add_permits(1);
        self.look().await;
    }

    async fn tell(&mut self) {
        let freed = Heard::Freed("k".to_owned());
        let messages = self.t.store.messages.lock().unwrap().clone();
        messages.unwrap().send(freed).unwrap();
        self.look().await;
    }

    /// The first release is one of which all hear.
    async fn open(&mut self) {
        let asked = self.t.asked();
        self.release().await;
        self.answer().await;
        assert!(
            self.holders.is_empty(),
            "nobody asks before the store tells"
        );
        assert_eq!(self.t.asked(), asked);
        self.tell().await;
        assert_eq!(self.holders.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn in_one_lane_the_next_asks_right_behind_the_release() {
    let mut relay = Relay::of(4, true, Some(Lane::EventLoop)).await;
    relay.open().await;
    let asked = relay.t.asked();
    relay.release().await;
    assert_eq!(relay.holders.len(), 1, "before the release is answered");
    // The message of that release comes late, and wakes nobody.
    relay.answer().await;
    relay.tell().await;
    assert_eq!(relay.t.asked(), asked + 1);
    // A message that comes later is of something else, such as a forced release.
    sleep(Duration::from_millis(100)).await;
    relay.tell().await;
    assert_eq!(relay.t.asked(), asked + 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_lane_the_next_asks_when_the_release_has_ended() {
    let mut relay = Relay::of(3, true, None).await;
    relay.open().await;
    relay.release().await;
    assert!(relay.holders.is_empty());
    relay.answer().await;
    assert_eq!(relay.holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_in_another_lane_is_heard_of_when_it_has_ended() {
    let mut relay = Relay::of(3, true, Some(Lane::Runtime)).await;
    relay.open().await;
    let turns = relay.t.store.work.turns();
    let asked = relay.t.asked();
    turns.release_sent(&key(), Some(Lane::EventLoop));
    settle().await;
    assert_eq!(relay.t.asked(), asked);
    turns.release_ended(&key());
    settle().await;
    assert_eq!(relay.t.asked(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn four_times_a_second_all_processes_have_the_same_chance() {
    let mut relay = Relay::of(10, true, Some(Lane::EventLoop)).await;
    relay.open().await;
    for _ in 0..4 {
        relay.release().await;
        assert_eq!(relay.holders.len(), 1);
    }
    sleep(Duration::from_millis(250)).await;
    relay.open().await;
    relay.release().await;
    assert_eq!(relay.holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_others_want_the_lock_it_is_never_handed_over() {
    let mut relay = Relay::of(5, false, Some(Lane::EventLoop)).await;
    assert!(relay.holders.is_empty(), "somebody else has it");
    *relay.t.store.free_at.lock().unwrap() = relay.t.start;
    relay.tell().await;
    relay.open().await;
    relay.open().await;
    // After a second without them, it is.
    sleep(S(1)).await;
    relay.open().await;
    relay.release().await;
    assert_eq!(relay.holders.len(), 1);
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

/// Tells of a lock when it is told to.
struct Server(Messages);

type Messages = Arc<Mutex<Option<UnboundedSender<Heard>>>>;

struct Connection(Vec<Heard>, UnboundedReceiver<Heard>);

#[async_trait]
impl Listen for Server {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let (sender, heard) = unbounded_channel();
        *self.0.lock().unwrap() = Some(sender);
        Ok(Box::new(Connection(Vec::new(), heard)))
    }
}

#[async_trait]
impl Listener for Connection {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            if *is_wanted {
                self.0.push(Heard::Listening(name.as_ref().to_owned()));
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, Error> {
        if let Some(heard) = self.0.pop() {
            return Ok(heard);
        }
        match self.1.recv().await {
            Some(heard) => Ok(heard),
            None => pending().await,
        }
    }
}
