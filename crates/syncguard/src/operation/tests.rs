use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::*;
use crate::asking::outcome::{Absence, Grant, Outcome};
use crate::asking::request::{Operation, ReleaseRequest};
use crate::background::backend::Capabilities;
use crate::background::work::Work;
use crate::values::fence::Fence;
use crate::values::time::TimeAuthority;

/// Whether an operation does what it is to do, or fails.
type Answer = oneshot::Receiver<Result<(), Error>>;

/// A store that answers one operation as the test says, and the others at once.
#[derive(Default)]
struct Store {
    work: Work,
    /// What the next operation waits for; for ever if it is dropped.
    next: Mutex<Option<Answer>>,
    acquisitions: AtomicUsize,
    /// Those that did not wait for the test's answer.
    releases: AtomicUsize,
    /// Those of them that found a lock.
    released: AtomicUsize,
    /// From an acquisition on until it is granted, or may be.
    is_free: AtomicBool,
    /// Whether acquisitions wait for a connection for ever.
    has_no_connection: AtomicBool,
    /// Held by a test, it holds up releases.
    way_out: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// The next operation waits for what is sent here.
    fn answers_next(&self) -> oneshot::Sender<Result<(), Error>> {
        let (sender, answer) = oneshot::channel();
        *self.next.lock().unwrap() = Some(answer);
        sender
    }

    /// The test's answer, if it gives one.
    async fn answer(&self) -> Option<Result<(), Error>> {
        let answer = self.next.lock().unwrap().take()?;
        match answer.await {
            Ok(answer) => Some(answer),
            Err(_) => pending().await,
        }
    }

    fn has_asked(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }
}

impl Store {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.acquisitions.fetch_add(1, SeqCst);
        if self.has_no_connection.load(SeqCst) {
            request.sending.before(pending::<()>()).await;
        }
        self.is_free.store(true, SeqCst);
        let answer = self.answer().await;
        self.is_free.store(answer.is_none(), SeqCst);
        match answer {
            Some(answer) => answer.map(|()| {
                AcquireOutcome::one(Grant {
                    lock_id: request.claims[0].lock_id.clone(),
                    slot: None,
                    fence: Fence::from_counter(1).unwrap(),
                    expires_at_ms: 1,
                })
            }),
            None => Ok(AcquireOutcome::Locked {
                claim: 0,
                free_in: None,
                labels: crate::values::labels::Labels::default(),
                is_shared: false,
            }),
        }
    }

    async fn release(&self) -> Result<ReleaseOutcome, Error> {
        if let Some(answer) = self.answer().await {
            return answer.map(|()| ReleaseOutcome::Released);
        }
        let _way_out = self.way_out.lock().await;
        self.releases.fetch_add(1, SeqCst);
        if self.is_free.load(SeqCst) {
            return Ok(ReleaseOutcome::Absent(Absence::NotFound));
        }
        self.released.fetch_add(1, SeqCst);
        Ok(ReleaseOutcome::Released)
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

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(request).await?),
            Operation::Release(_) => Outcome::Release([self.release().await?].into()),
            Operation::IsLocked(_) => Outcome::IsLocked(false),
            other => panic!("{other:?} is not asked here"),
        })
    }

    async fn shut_down(&self) {}
}

fn request(ttl: Ttl) -> AcquireRequest {
    AcquireRequest::new(Key::new("key").unwrap(), ttl).unwrap()
}

fn acquisition() -> Operation {
    Operation::Acquire(request(Ttl::DEFAULT))
}

fn a_release() -> Operation {
    Operation::Release([LockId::generate().unwrap()].into())
}

fn lost() -> Error {
    Error::new(ErrorKind::ServiceUnavailable, "lost").with_unknown_outcome()
}

/// Starts an operation, and lets the store be asked.
async fn start(
    store: &Arc<Store>,
    operation: Operation,
    options: CallOptions,
) -> JoinHandle<Result<Outcome, Error>> {
    let backend: Arc<dyn Backend> = Arc::clone(store) as _;
    let running = tokio::spawn(async move { run(&backend, operation, options, pending()).await });
    yield_now().await;
    assert!(store.has_asked());
    running
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_in_time_stays() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let running = start(&store, acquisition(), CallOptions::default()).await;
    answer.send(Ok(())).unwrap();
    let Ok(Outcome::Acquire(AcquireOutcome::Acquired(_))) = running.await.unwrap() else {
        panic!("not granted");
    };
    assert!(!store.work.is_in_background());
    store.work.finish(Duration::from_secs(9)).await;
    assert_eq!(store.releases.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_undone() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let running = start(&store, acquisition(), CallOptions::default()).await;
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    yield_now().await;
    assert_eq!(store.released.load(SeqCst), 0);
    answer.send(Ok(())).unwrap();
    store.work.background_done().await;
    assert_eq!(store.released.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_any_more_is_undone() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let running = start(&store, acquisition(), CallOptions::default()).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    yield_now().await;
    assert_eq!(store.released.load(SeqCst), 0);
    answer.send(Ok(())).unwrap();
    store.work.background_done().await;
    assert_eq!(store.released.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_after_its_time_is_undone() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let operation = Operation::Acquire(request(Ttl::from_millis(400).unwrap()));
    let running = start(&store, operation, CallOptions::default()).await;
    tokio::time::advance(Duration::from_millis(1000)).await;
    answer.send(Ok(())).unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    assert!(error.message().contains("granted too late"), "{error}");
    store.work.background_done().await;
    assert_eq!(store.releases.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_repeated() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let running = start(&store, a_release(), CallOptions::default()).await;
    answer.send(Err(lost())).unwrap();
    let outcome = running.await.unwrap().and_then(ReleaseOutcome::of);
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    assert_eq!(store.releases.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_comes_too_late_goes_on_if_the_lock_may_last() {
    for lasts in [None, Some(Ttl::DEFAULT)] {
        let store = Arc::<Store>::default();
        let _never = store.answers_next();
        let call = CallOptions {
            lasts,
            ..CallOptions::default()
        };
        let error = start(&store, a_release(), call).await.await.unwrap();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NetworkTimeout);
        store.work.background_done().await;
        assert_eq!(store.releases.load(SeqCst), usize::from(lasts.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_undone() {
    let store = Arc::<Store>::default();
    let answer = store.answers_next();
    let running = start(&store, acquisition(), CallOptions::default()).await;
    answer.send(Err(lost())).unwrap();
    assert!(running.await.unwrap().unwrap_err().is_outcome_unknown());
    store.work.background_done().await;
    assert_eq!(store.released.load(SeqCst), 1);
}

/// A second for all that a call does.
const A_SECOND: CallOptions = CallOptions {
    timeout: Some(Duration::from_secs(1)),
    lasts: None,
    hold_until: None,
    keys: Batch::new_const(),
};

fn assert_took_a_second(since: Instant) {
    let took = since.elapsed();
    let second = Duration::from_secs(1);
    assert!(
        (second..second + Duration::from_millis(20)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_has_only_the_rest_of_its_time() {
    let store = Arc::<Store>::default();
    let _never = store.way_out.lock().await;
    let answer = store.answers_next();
    let began = Instant::now();
    let running = start(&store, a_release(), A_SECOND).await;
    sleep(Duration::from_millis(800)).await;
    answer.send(Err(lost())).unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.kind().is_transient(), "{error:?}");
    assert_took_a_second(began);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_it_and_then_nothing_is_sent() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let answer = store.answers_next();
    let running = start(&store, a_release(), CallOptions::default()).await;
    let began = Instant::now();
    tokio::join!(store.work.finish(Duration::from_secs(9)), async {
        sleep(Duration::from_secs(1)).await;
        answer.send(Ok(())).unwrap();
    });
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    running.await.unwrap().unwrap();

    for operation in [a_release(), acquisition()] {
        let error = run::<Outcome>(&backend, operation, CallOptions::default(), pending()).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Aborted);
    }
    assert_eq!(store.releases.load(SeqCst), 0);
    assert_eq!(store.acquisitions.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_not_undone() {
    let store = Arc::<Store>::default();
    store.has_no_connection.store(true, SeqCst);
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    for gives_up in [false, true] {
        let request = request(Ttl::DEFAULT);
        let cancelled = async {
            if !gives_up {
                pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let error = acquire(&backend, request, CallOptions::default(), cancelled).await;
        let kind = match gives_up {
            true => ErrorKind::Aborted,
            false => ErrorKind::NetworkTimeout,
        };
        assert_eq!(error.unwrap_err().kind(), kind);
    }
    // It counts no more.
    assert!(!store.work.is_in_background());
    let start = Instant::now();
    store.work.finish(Duration::from_secs(9)).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.acquisitions.load(SeqCst), 2);
    assert_eq!(store.releases.load(SeqCst), 0);
}
/// Most calls are made for one lock, and what is larger than this is not what malloc has at hand.
#[test]
fn a_call_takes_less_than_a_kilobyte() {
    let backend: Arc<dyn Backend> = Arc::<Store>::default();
    let request = request(Ttl::DEFAULT);
    let released = ReleaseRequest::from(request.lock_ids());
    let operation = Operation::Release(released.clone());
    let call = || CallOptions::DEFAULT;
    let freeing = Box::new(Freeing::new(released, None));
    let release = release(&backend, freeing, call(), pending());
    assert!(size_of_val(&release) < 1024);
    let again = request.clone();
    let acquired = acquire(&backend, request, call(), pending());
    assert!(size_of_val(&acquired) < 1024);
    let run = run::<Outcome>(&backend, operation.clone(), call(), pending());
    assert!(size_of_val(&run) < 1024);
    let policy = crate::RetryPolicy::default();
    let mut waiter = crate::Waiter::new(&backend, again, policy).unwrap();
    assert!(size_of_val(&waiter.acquire(pending())) < 1024);
}
