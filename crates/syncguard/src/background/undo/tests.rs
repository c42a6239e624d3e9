//! On a clock that stands still unless all wait.

mod releases;

use std::future::{pending, ready};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::*;
use crate::asking::outcome::AcquireOutcome;
use crate::asking::outcome::ReleaseOutcome;
use crate::asking::outcome::{Absence, Grant, Outcome};
use crate::asking::request::{AcquireRequest, Operation};
use crate::background::backend::Capabilities;
use crate::background::work::Work;
use crate::operation::{self, CallOptions};
use crate::text::error::ErrorKind;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;

/// How long an operation may take.
const LIMIT: Duration = Duration::from_secs(5);

/// A store that acts on acquisitions when it is told to.
#[derive(Debug)]
struct Store {
    work: Work,
    /// When it grants what it is asked for; never otherwise.
    grants_at: Option<Instant>,
    /// When it is asked once more for the same lock, and grants it if it is free: the client had no answer.
    asked_again_at: Option<Instant>,
    /// What it then says; nothing if this is not set.
    answer: Option<AcquireOutcome>,
    /// Until then it answers nothing at all, and acts on what it was asked in the meantime.
    stands_still_until: Instant,
    /// Until then there is no connection to it.
    unreachable_until: Instant,
    /// The answers to so many releases are lost.
    lost_answers: Mutex<usize>,
    /// After so many tries it answers nothing any more.
    silent_after: Option<usize>,
    tries: AtomicUsize,
    released_at: Mutex<Option<Instant>>,
}

impl Store {
    fn new(change: impl FnOnce(&mut Self, Instant)) -> Arc<Self> {
        let now = Instant::now();
        let mut store = Self {
            work: Work::default(),
            grants_at: None,
            asked_again_at: None,
            answer: None,
            stands_still_until: now,
            unreachable_until: now,
            lost_answers: Mutex::new(0),
            silent_after: None,
            tries: AtomicUsize::new(0),
            released_at: Mutex::new(None),
        };
        change(&mut store, now);
        Arc::new(store)
    }

    fn tries(&self) -> usize {
        self.tries.load(SeqCst)
    }

    /// How long the lock was held; `None` if it still is, or was never granted.
    fn held(&self) -> Option<Duration> {
        let granted = self.asked_again_at.max(self.grants_at)?;
        (*self.released_at.lock().unwrap())?.checked_duration_since(granted)
    }
}

impl Store {
    async fn acquire(&self) -> Result<AcquireOutcome, Error> {
        if let Some(asked_last) = self.asked_again_at.max(self.grants_at) {
            sleep_until(asked_last).await;
        }
        match &self.answer {
            Some(answer) => Ok(answer.clone()),
            None => pending().await,
        }
    }

    async fn release(&self) -> Result<ReleaseOutcome, Error> {
        let before = self.tries.fetch_add(1, SeqCst);
        if self.silent_after.is_some_and(|tries| before >= tries) {
            return pending().await;
        }
        sleep_until(self.stands_still_until).await;
        let now = Instant::now();
        if now < self.unreachable_until {
            return Err(Error::new(ErrorKind::ServiceUnavailable, "no connection"));
        }
        let mut released_at = self.released_at.lock().unwrap();
        let mut outcome = ReleaseOutcome::Absent(Absence::NotFound);
        let granted = [self.grants_at, self.asked_again_at].into_iter().flatten();
        let granted = granted.filter(|at| *at <= now).max();
        if granted.is_some_and(|at| released_at.is_none_or(|released| released < at)) {
            *released_at = Some(now);
            outcome = ReleaseOutcome::Released;
        }
        let mut lost = self.lost_answers.lock().unwrap();
        if *lost > 0 {
            *lost -= 1;
            let error = Error::new(ErrorKind::ServiceUnavailable, "the connection was lost");
            return Err(error.with_unknown_outcome());
        }
        Ok(outcome)
    }
}

#[async_trait]
impl Backend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "double",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn operation_timeout(&self) -> Duration {
        LIMIT
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(_) => Outcome::Acquire(self.acquire().await?),
            Operation::Release(_) => Outcome::Release([self.release().await?].into()),
            other => panic!("{other:?} is not asked here"),
        })
    }

    async fn shut_down(&self) {}
}

fn request(ttl: Ttl) -> AcquireRequest {
    AcquireRequest::new(Key::new("k").unwrap(), ttl).unwrap()
}

/// Gives an acquisition up at once, and waits until nothing more is done about it.
async fn give_up(store: &Arc<Store>, ttl: Ttl) {
    let backend: Arc<dyn Backend> = Arc::clone(store) as _;
    let attempt = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(request(ttl)),
        CallOptions::default(),
        ready(()),
    );
    assert_eq!(attempt.await.unwrap_err().kind(), ErrorKind::Aborted);
    drop(backend);
    while Arc::strong_count(store) > 1 {
        sleep(Duration::from_millis(10)).await;
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_late_stays_for_no_more_than_a_pause() {
    for after in [0.0, 0.05, 0.7, 3.6, 5.0, 7.6, 12.0, 20.0, 30.9] {
        let store = Store::new(|store, now| store.grants_at = Some(now + secs(after)));
        give_up(&store, Ttl::DEFAULT).await;
        let held = store.held().expect("a lock that is still held");
        assert!(held <= PAUSE, "{held:?} after {after} s");
        assert!(store.tries() < 40, "{}", store.tries());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_again_after_its_release_does_not_stay() {
    let granted = AcquireOutcome::one(Grant {
        lock_id: LockId::generate().unwrap(),
        slot: None,
        fence: Fence::from_counter(1).unwrap(),
        expires_at_ms: 0,
    });
    // The first release frees the lock. While the client may still ask again, that proves nothing, also when the time for its
    // answer is over.
    for again in [0.02, 0.1, 0.6, 4.9, 5.1, 20.0] {
        for answer in [None, Some(granted.clone())] {
            let store = Store::new(|store, now| {
                store.grants_at = Some(now);
                store.asked_again_at = Some(now + secs(again));
                store.answer = answer;
            });
            give_up(&store, Ttl::DEFAULT).await;
            let held = store.held().expect("a lock that is still held");
            assert!(held <= PAUSE, "{held:?} after {again} s");
            assert!(store.tries() < 40, "{}", store.tries());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_follows_the_last_word_of_the_client_ends_the_tries() {
    let store = Store::new(|store, now| store.grants_at = Some(now));
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let id = LockId::generate().unwrap();
    release_in_background(
        &backend,
        Box::new(Freeing::new([id].into(), None)),
        Ttl::DEFAULT,
        Lock::Unknown,
    );
    backend.close().await;
    assert_eq!((store.held(), store.tries()), (Some(Duration::ZERO), 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stands_still_is_asked_until_it_goes_on() {
    for stop in [4.0, 12.0, 29.0] {
        let store = Store::new(|store, now| {
            store.stands_still_until = now + secs(stop);
            store.grants_at = Some(now + secs(stop + 0.01));
        });
        give_up(&store, Ttl::DEFAULT).await;
        let held = store.held().expect("a lock that is still held");
        assert!(held <= PAUSE, "{held:?} after {stop} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_end_the_tries() {
    let store = Store::new(|store, now| {
        store.unreachable_until = now + secs(20.0);
        store.grants_at = Some(now);
    });
    give_up(&store, Ttl::DEFAULT).await;
    assert!(store.held().unwrap() <= secs(20.0) + PAUSE);
}

#[tokio::test(start_paused = true)]
async fn tries_end_when_what_can_be_held_is_over() {
    let store = Store::new(|_, _| {});
    let start = Instant::now();
    give_up(&store, Ttl::from_millis(10_000).unwrap()).await;
    let past = start.elapsed();
    assert!(past >= secs(11.0) && past < secs(11.1), "{past:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_ttl_takes_few_tries() {
    let store = Store::new(|store, now| store.grants_at = Some(now + secs(3000.0)));
    give_up(&store, Ttl::from_millis(86_400_000).unwrap()).await;
    assert!(store.held().unwrap() <= secs(3000.0 / 60.0) + PAUSE);
    let store = Store::new(|_, _| {});
    let start = Instant::now();
    give_up(&store, Ttl::from_millis(86_400_000).unwrap()).await;
    assert!(start.elapsed() < LONGEST + PAUSE);
    assert!(store.tries() < 500, "{}", store.tries());
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_acquisition_ends_the_tries() {
    let granted = AcquireOutcome::one(Grant {
        lock_id: LockId::generate().unwrap(),
        slot: None,
        fence: Fence::from_counter(1).unwrap(),
        expires_at_ms: 0,
    });
    for (answer, tries) in [
        (
            AcquireOutcome::Locked {
                claim: 0,
                free_in: None,
                labels: crate::values::labels::Labels::default(),
                is_shared: false,
            },
            1..=3,
        ),
        (granted, 2..=4),
    ] {
        let was_granted = !answer.is_locked();
        let store = Store::new(|store, now| {
            store.grants_at = Some(now + secs(0.25));
            store.answer = Some(answer);
        });
        if !was_granted {
            // There is nothing for a release to find.
            *store.released_at.lock().unwrap() = store.grants_at;
        }
        let start = Instant::now();
        give_up(&store, Ttl::DEFAULT).await;
        assert!(start.elapsed() < secs(0.3), "{:?}", start.elapsed());
        assert!(tries.contains(&store.tries()), "{}", store.tries());
        if was_granted {
            let held = store.held().expect("a lock that is still held");
            assert!(held < secs(0.01), "{held:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_at_a_time_do_not_become_a_storm_on_all_stores_together() {
    let together = Arc::default();
    let stores = [(); 2].map(|()| Store::new(|store, _| store.work = Work::counting(&together)));
    let backends = stores.clone().map(|store| -> Arc<dyn Backend> { store });
    for _ in 0..750 {
        for backend in &backends {
            let id = LockId::generate().unwrap();
            release_in_background(
                backend,
                Box::new(Freeing::new([id].into(), None)),
                Ttl::DEFAULT,
                Lock::Unknown,
            );
        }
    }
    let tries = || stores.iter().map(|store| store.tries()).sum::<usize>();
    // Each of them is tried once without delay.
    sleep(secs(0.09)).await;
    assert_eq!(tries(), 1500);
    for _ in 0..3 {
        let before = tries();
        sleep(secs(6.0)).await;
        let in_a_second = (tries() - before) / 6;
        assert!((200..=550).contains(&in_a_second), "{in_a_second}");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_it_as_long_as_for_an_operation() {
    // Granted at once, and reachable after a while.
    let store = Store::new(|store, now| {
        store.grants_at = Some(now);
        store.unreachable_until = now + secs(3.0);
    });
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let id = LockId::generate().unwrap();
    operation::release_in_background(&backend, std::slice::from_ref(&id), Ttl::DEFAULT);
    backend.close().await;
    assert!(store.held().is_some());

    // Never reachable.
    let store = Store::new(|store, now| store.unreachable_until = now + secs(1e6));
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    operation::release_in_background(&backend, std::slice::from_ref(&id), Ttl::DEFAULT);
    let start = Instant::now();
    let closing = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { backend.close().await }
    });
    tokio::task::yield_now().await;
    let key = Key::new("k").unwrap();
    let late = operation::run::<bool>(
        &backend,
        Operation::IsLocked(key.clone()),
        CallOptions::default(),
        pending(),
    );
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::Aborted);
    closing.await.unwrap();
    assert_eq!(start.elapsed(), LIMIT);
    // Nothing is asked of a backend that is closed.
    let tries = store.tries();
    sleep(secs(60.0)).await;
    assert_eq!(store.tries(), tries);
    drop(backend);
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_after_its_time_is_none() {
    let store = Store::new(|store, now| {
        store.grants_at = Some(now + secs(3.0));
        store.answer = Some(AcquireOutcome::one(Grant {
            lock_id: LockId::generate().unwrap(),
            slot: None,
            fence: Fence::after(0, 0).unwrap(),
            expires_at_ms: 0,
        }));
    });
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let (call, ttl) = (CallOptions::default(), Ttl::from_millis(400).unwrap());
    let error = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(request(ttl)),
        call,
        pending(),
    )
    .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    assert_eq!(
        error.message(),
        "the lock was granted too late: when the answer came, its time of 400 ms was over"
    );
    backend.close().await;
    assert_eq!(store.held(), Some(Duration::ZERO));
}
