mod crossing;
mod ending;
mod hurried;
mod losing;
mod stopped;
mod together;

use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::*;
use crate::asking::hold::AutoExtend;
use crate::asking::hold::Holder;
use crate::asking::outcome::ExtendOutcome;
use crate::asking::outcome::{
    Absence, AcquireOutcome, FromOutcome, Grant, Outcome, ReleaseOutcome,
};
use crate::asking::request::{AcquireRequest, Extension, Operation};
use crate::background::backend::{Backend, Capabilities};
use crate::background::work::Work;
use crate::operation;
use crate::operation::CallOptions;
use crate::text::error::{Error, ErrorKind};
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::time::TimeAuthority;

/// A store that grants everything, and notes when it was asked to extend.
#[derive(Default)]
struct Store {
    work: Work,
    extends: Mutex<Vec<(Instant, Ttl)>>,
    /// What the last extension named.
    extended: Mutex<Batch<LockId>>,
    releases: AtomicUsize,
    answer: Mutex<Answer>,
    delay: Mutex<Duration>,
    is_client_timed: AtomicBool,
    one_at_a_time: AtomicBool,
}

#[derive(Default, Clone, Copy)]
enum Answer {
    #[default]
    Extended,
    Absent,
    Fails,
    Never,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// When it was asked to extend, in milliseconds since `start`.
    fn extended(&self, start: Instant) -> Vec<u128> {
        let extends = self.extends.lock().unwrap();
        extends
            .iter()
            .map(|(at, _)| (*at - start).as_millis())
            .collect()
    }

    fn count(&self) -> usize {
        self.extends.lock().unwrap().len()
    }
}

impl Store {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let delay = *self.delay.lock().unwrap();
        sleep(delay).await;
        let grant = |lock_id| Grant {
            lock_id,
            slot: None,
            fence: Fence::from_counter(1).unwrap(),
            expires_at_ms: 1,
        };
        let grants = request.lock_ids().into_iter().map(grant);
        Ok(AcquireOutcome::Acquired(grants.collect()))
    }

    async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome, Error> {
        let extended = (Instant::now(), extension.ttl);
        self.extends.lock().unwrap().push(extended);
        self.extended
            .lock()
            .unwrap()
            .clone_from(&extension.lock_ids);
        let (answer, delay) = (*self.answer.lock().unwrap(), *self.delay.lock().unwrap());
        sleep(delay).await;
        match answer {
            Answer::Extended => Ok(ExtendOutcome::Extended { expires_at_ms: 2 }),
            Answer::Absent => Ok(ExtendOutcome::Absent {
                lock: extension.lock_ids.len() - 1,
                absence: Absence::NotFound,
            }),
            Answer::Fails => Err(Error::new(ErrorKind::ServiceUnavailable, "refused")),
            Answer::Never => pending().await,
        }
    }
}

#[async_trait]
impl Backend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "test",
            supports_fencing: true,
            time_authority: if self.is_client_timed.load(SeqCst) {
                TimeAuthority::Client
            } else {
                TimeAuthority::Server
            },
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn heartbeats_at_once(&self) -> usize {
        match self.one_at_a_time.load(SeqCst) {
            true => 1,
            false => 64,
        }
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(request).await?),
            Operation::Release(_) => {
                self.releases.fetch_add(1, SeqCst);
                Outcome::Release([ReleaseOutcome::Released].into())
            }
            Operation::Extend(extension) => Outcome::Extend(self.extend(extension).await?),
            other => panic!("{other:?} is not asked here"),
        })
    }

    async fn shut_down(&self) {}
}

/// A holder that passes on what it hears.
struct Listener {
    heard: UnboundedSender<Result<i64, Error>>,
    is_stalled: AtomicBool,
    is_gone: AtomicBool,
    /// Which of several locks is gone.
    gone: Mutex<Option<usize>>,
    /// Until when it is held.
    until: Mutex<Option<Instant>>,
}

impl Holder for Listener {
    fn presence(&self) -> Presence {
        if self.is_gone.load(SeqCst) {
            Presence::Gone
        } else if self.is_stalled.load(SeqCst) {
            Presence::Stalled(Error::new(ErrorKind::Internal, "it hangs"))
        } else {
            Presence::Present
        }
    }

    fn held_until(&self, end: Instant) {
        *self.until.lock().unwrap() = Some(end);
    }

    fn extended(&self, expires_at_ms: i64) {
        let _ = self.heard.send(Ok(expires_at_ms));
    }

    fn lost(&self, error: Error, place: Option<usize>) {
        *self.gone.lock().unwrap() = place;
        let _ = self.heard.send(Err(error));
    }
}

struct Scene {
    store: Arc<Store>,
    backend: Arc<dyn Backend>,
    listener: Arc<Listener>,
    heard: UnboundedReceiver<Result<i64, Error>>,
    start: Instant,
}

fn scene() -> Scene {
    let store = Arc::<Store>::default();
    let (sender, heard) = unbounded_channel();
    Scene {
        backend: Arc::clone(&store) as _,
        store,
        listener: Arc::new(Listener {
            heard: sender,
            is_stalled: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            gone: Mutex::default(),
            until: Mutex::default(),
        }),
        heard,
        start: Instant::now(),
    }
}

fn ttl(ms: i64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Scene {
    fn request(&self, ttl_ms: i64, auto_extend: AutoExtend) -> AcquireRequest {
        let mut request = AcquireRequest::new(Key::new("key").unwrap(), ttl(ttl_ms)).unwrap();
        request.hold = Some(Box::new(Hold {
            auto_extend,
            holder: Arc::clone(&self.listener) as _,
            runtime: Handle::current(),
        }));
        request
    }

    async fn run<T: FromOutcome>(&self, operation: Operation) -> T {
        let answer = operation::run(&self.backend, operation, CallOptions::DEFAULT, pending());
        answer.await.unwrap()
    }

    async fn acquire(&self, ttl_ms: i64, auto_extend: AutoExtend) -> LockId {
        let request = self.request(ttl_ms, auto_extend);
        match self.run(Operation::Acquire(request)).await {
            AcquireOutcome::Acquired(mut grants) => grants.remove(0).lock_id,
            other => panic!("{other:?}"),
        }
    }

    async fn release(&self, lock_id: &LockId) {
        let released: ReleaseOutcome = self.run(Operation::Release([lock_id.clone()].into())).await;
        assert_eq!(released, ReleaseOutcome::Released);
    }

    async fn extend(&self, lock_id: &LockId, ttl_ms: i64) {
        let extension = Extension::new([lock_id.clone()].into(), ttl(ttl_ms));
        let extended = self.run(Operation::Extend(extension)).await;
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    }

    /// Waits for the loss; gives its error and the milliseconds since the start.
    async fn lost(&mut self) -> (Error, u128) {
        loop {
            if let Err(error) = self.heard.recv().await.unwrap() {
                return (error, self.start.elapsed().as_millis());
            }
        }
    }

    /// Nothing is held and nothing will be sent any more.
    async fn assert_quiet(&self) {
        let before = self.store.count();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(self.store.count(), before);
        assert!(!self.backend.work().heartbeats().0.lock().is_running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_at_a_third_of_its_ttl_until_it_is_released() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    sleep(ms(3500)).await;
    assert_eq!(t.store.extended(t.start), [1000, 2000, 3000]);
    assert_eq!(t.heard.recv().await.unwrap().unwrap(), 2);
    t.release(&lock_id).await;
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_answer_counts_as_used_up() {
    let t = scene();
    *t.store.delay.lock().unwrap() = ms(400);
    t.acquire(3000, AutoExtend::default()).await;
    sleep(ms(2000)).await;
    // The acquisition was sent at 0, and the first extension at 1000.
    assert_eq!(t.store.extended(t.start), [1000, 2000]);
}

#[tokio::test(start_paused = true)]
async fn a_distant_store_is_asked_without_a_pause() {
    let mut t = scene();
    // Longer than from a heartbeat to the end, and answered within the grace.
    *t.store.delay.lock().unwrap() = ms(400);
    let lock_id = t.acquire(500, AutoExtend::default()).await;
    sleep(ms(20_000)).await;
    t.release(&lock_id).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_within_the_grace_keeps_the_lock() {
    let mut t = scene();
    let lock_id = t.acquire(500, AutoExtend::default()).await;
    // As when the connection has to be made anew: the first is sent at 167, and its end passes before its answer.
    *t.store.delay.lock().unwrap() = ms(600);
    sleep(ms(500)).await;
    *t.store.delay.lock().unwrap() = ms(1);
    sleep(ms(5000)).await;
    t.release(&lock_id).await;
    while let Ok(heard) = t.heard.try_recv() {
        heard.unwrap();
    }
    let times = t.store.extended(t.start);
    assert_eq!(times[..3], [167, 767, 934]);
}

#[tokio::test(start_paused = true)]
async fn locks_that_are_due_together_go_together() {
    let t = scene();
    for _ in 0..10 {
        t.acquire(30_000, AutoExtend::default()).await;
        sleep(ms(100)).await;
    }
    sleep(ms(30_000)).await;
    let mut times = t.store.extended(t.start);
    assert_eq!(times.len(), 30);
    times.dedup();
    assert_eq!(times, [10_000, 20_000, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_until_it_works() {
    let mut t = scene();
    let lock_id = t.acquire(3000, AutoExtend::default()).await;
    t.store.answers(Answer::Fails);
    sleep(ms(2700)).await;
    let failures = t.store.count();
    assert!((4..=12).contains(&failures), "{failures}");
    t.store.answers(Answer::Extended);
    sleep(ms(10_000)).await;
    assert!(t.heard.recv().await.unwrap().is_ok());
    t.release(&lock_id).await;
    t.assert_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn for_a_holder_that_is_gone_nothing_is_sent() {
    let t = scene();
    t.acquire(3000, AutoExtend::default()).await;
    t.listener.is_gone.store(true, SeqCst);
    t.assert_quiet().await;
    assert_eq!(t.store.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_way_to_release_it_ends_its_heartbeats_first() {
    let t = scene();
    let hold = AutoExtend::default;
    t.store.answers(Answer::Never);
    let ids = [
        t.acquire(3000, hold()).await,
        t.acquire(3000, hold()).await,
        t.acquire(3000, hold()).await,
    ];
    // Their heartbeats are on their way.
    sleep(ms(1100)).await;
    assert_eq!(t.store.count(), 3);
    t.release(&ids[0]).await;
    operation::release_in_background(&t.backend, &ids[1..2], ttl(3000));
    let release = Operation::Release([ids[2].clone()].into());
    let call = CallOptions::default();
    let released = operation::run(&t.backend, release, call, pending()).await;
    assert!(matches!(released, Ok(ReleaseOutcome::Released)));
    t.assert_quiet().await;
    assert_eq!(t.store.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_cancelled_leaves_no_heartbeats() {
    let t = scene();
    *t.store.delay.lock().unwrap() = ms(100);
    let request = t.request(3000, AutoExtend::default());
    let cancelled = sleep(ms(50));
    let call = CallOptions::default();
    let error =
        operation::run::<AcquireOutcome>(&t.backend, Operation::Acquire(request), call, cancelled)
            .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Aborted);
    t.assert_quiet().await;
    assert_eq!(t.store.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn bad_settings_are_refused_by_their_names() {
    let error = |every, max| {
        let auto_extend = AutoExtend { every, max };
        let error = auto_extend.check(ttl(1000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    assert_eq!(
        error(Some(ms(1000)), None),
        "auto_extend.every must be shorter than the ttl"
    );
    assert_eq!(
        error(Some(ms(0)), None),
        "auto_extend.every must be positive"
    );
    assert_eq!(error(None, Some(ms(0))), "auto_extend.max must be positive");
    AutoExtend::default().check(ttl(1)).unwrap();
}
