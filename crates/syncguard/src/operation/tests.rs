use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::sync::oneshot;

use super::*;
use crate::backend::{Absence, Capabilities, Grant, OnSent, TimeAuthority};
use crate::fence::Fence;
use crate::sending::before_sending;
use crate::work::Work;

/// A store that keeps what it is sent, for the test to answer.
#[derive(Default)]
struct Store {
    work: Work,
    sent: Mutex<Vec<(Operation, OnSent)>>,
    acquisitions: AtomicUsize,
    releases: AtomicUsize,
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

    fn send(&self, operation: Operation, _deadline: Instant, on_sent: OnSent) -> bool {
        self.sent.lock().unwrap().push((operation, on_sent));
        true
    }

    async fn acquire(&self, _: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.acquisitions.fetch_add(1, SeqCst);
        if self.has_no_connection.load(SeqCst) {
            before_sending(pending::<()>()).await;
        }
        Ok(AcquireOutcome::Locked { free_in: None })
    }

    async fn release(&self, _: &LockId) -> Result<ReleaseOutcome, Error> {
        let _way_out = self.way_out.lock().await;
        self.releases.fetch_add(1, SeqCst);
        Ok(ReleaseOutcome::Released)
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

/// Sends an acquisition, lets `answer` tell how it went, and gives what the caller hears.
async fn ended(store: &Arc<Store>, answer: impl FnOnce(Operation, OnSent)) -> Ended {
    let backend: Arc<dyn Backend> = Arc::clone(store) as _;
    let key = Key::new("key").unwrap();
    let request = AcquireRequest::new(key, Ttl::DEFAULT).unwrap();
    let (sender, receiver) = oneshot::channel();
    let must_flush = send(
        &backend,
        Operation::Acquire(request),
        CallOptions::default(),
        move |ended| assert!(sender.send(ended).is_ok()),
    );
    assert!(must_flush);
    let (operation, on_sent) = store.sent.lock().unwrap().pop().unwrap();
    answer(operation, on_sent);
    receiver.await.unwrap()
}

fn grant(operation: Operation) -> Outcome {
    let Operation::Acquire(request) = operation else {
        panic!("{operation:?}");
    };
    Outcome::Acquire(AcquireOutcome::Acquired(Grant {
        lock_id: request.lock_id,
        fence: Fence::from_counter(1).unwrap(),
        expires_at_ms: 1,
    }))
}

fn error(ended: Ended) -> Error {
    match ended {
        Ended::Done(answer) => answer.unwrap_err(),
        Ended::NotSent(..) => panic!("not sent"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_in_time_stays() {
    let store = Arc::<Store>::default();
    let ended = ended(&store, |operation, on_sent| {
        on_sent(Sent::Answered(Ok(grant(operation))));
    })
    .await;
    assert!(matches!(ended, Ended::Done(Ok(Outcome::Acquire(_)))));
    store.work.finish(Duration::from_secs(9)).await;
    assert_eq!(store.releases.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_undone() {
    let store = Arc::<Store>::default();
    let ended = ended(&store, |operation, on_sent| {
        on_sent(Sent::Late(Box::pin(async { Ok(grant(operation)) })));
    })
    .await;
    assert_eq!(error(ended).kind(), ErrorKind::NetworkTimeout);
    store.work.background_done().await;
    assert!(store.releases.load(SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_after_its_time_is_undone() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let ttl = Ttl::from_millis(400).unwrap();
    let request = AcquireRequest::new(Key::new("key").unwrap(), ttl).unwrap();
    let (sender, receiver) = oneshot::channel();
    let call = CallOptions::default();
    send(&backend, Operation::Acquire(request), call, |ended| {
        assert!(sender.send(ended).is_ok());
    });
    let (operation, on_sent) = store.sent.lock().unwrap().pop().unwrap();
    tokio::time::advance(Duration::from_millis(1000)).await;
    on_sent(Sent::Answered(Ok(grant(operation))));
    let error = error(receiver.await.unwrap());
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    store.work.background_done().await;
    assert_eq!(store.releases.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_repeated() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let (sender, receiver) = oneshot::channel();
    let release = Operation::Release(LockId::generate().unwrap());
    send(&backend, release, CallOptions::default(), |ended| {
        assert!(sender.send(ended).is_ok());
    });
    let (_, on_sent) = store.sent.lock().unwrap().pop().unwrap();
    let lost = Error::new(ErrorKind::ServiceUnavailable, "lost").with_unknown_outcome();
    on_sent(Sent::Answered(Err(lost)));
    let Ended::Done(Ok(Outcome::Release(ReleaseOutcome::Released))) = receiver.await.unwrap()
    else {
        panic!("not released");
    };
    assert_eq!(store.releases.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_comes_too_late_goes_on_if_the_lock_may_last() {
    for lasts in [None, Some(Ttl::DEFAULT)] {
        let store = Arc::<Store>::default();
        let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
        let call = CallOptions {
            lasts,
            ..CallOptions::default()
        };
        let (sender, receiver) = oneshot::channel();
        let release = Operation::Release(LockId::generate().unwrap());
        send(&backend, release, call, |ended| {
            assert!(sender.send(ended).is_ok());
        });
        let (_, on_sent) = store.sent.lock().unwrap().pop().unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        on_sent(Sent::Late(Box::pin(pending())));
        let error = error(receiver.await.unwrap());
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
        store.work.background_done().await;
        assert_eq!(store.releases.load(SeqCst), usize::from(lasts.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_undone() {
    let store = Arc::<Store>::default();
    let ended = ended(&store, |_, on_sent| {
        let lost = Error::new(ErrorKind::ServiceUnavailable, "lost").with_unknown_outcome();
        on_sent(Sent::Answered(Err(lost)));
    })
    .await;
    assert!(error(ended).is_outcome_unknown());
    store.work.background_done().await;
    assert!(store.releases.load(SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_comes_back_and_counts_no_more() {
    let store = Arc::<Store>::default();
    let ended = ended(&store, |operation, on_sent| {
        on_sent(Sent::NotSent(operation));
    })
    .await;
    assert!(matches!(ended, Ended::NotSent(Operation::Acquire(_), _)));
    let start = Instant::now();
    store.work.finish(Duration::from_secs(9)).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_has_only_the_rest_of_its_time() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let _never = store.way_out.lock().await;
    let limit = Duration::from_secs(1);
    let options = CallOptions {
        timeout: Some(limit),
        ..CallOptions::default()
    };
    let start = Instant::now();
    let (sender, receiver) = oneshot::channel();
    let release = Operation::Release(LockId::generate().unwrap());
    send(&backend, release, options, |ended| {
        assert!(sender.send(ended).is_ok());
    });
    // The store has lost its scripts, and takes its time to say so.
    tokio::time::sleep(limit * 9 / 10).await;
    let (operation, on_sent) = store.sent.lock().unwrap().pop().unwrap();
    on_sent(Sent::NotSent(operation));
    let Ended::NotSent(operation, rest) = receiver.await.unwrap() else {
        panic!("it was sent");
    };
    let error = run(&backend, operation, rest, pending()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    let took = start.elapsed();
    assert!(took < limit + Duration::from_millis(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_it_and_then_nothing_is_sent() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let release = || Operation::Release(LockId::generate().unwrap());
    send(&backend, release(), CallOptions::default(), drop);
    let start = Instant::now();
    tokio::join!(store.work.finish(Duration::from_secs(9)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, on_sent) = store.sent.lock().unwrap().pop().unwrap();
        let done = Outcome::Release(ReleaseOutcome::Released);
        on_sent(Sent::Answered(Ok(done)));
    });
    assert_eq!(start.elapsed(), Duration::from_secs(1));

    let (sender, receiver) = oneshot::channel();
    send(&backend, release(), CallOptions::default(), |ended| {
        assert!(sender.send(ended).is_ok());
    });
    let error = error(receiver.await.unwrap());
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

#[tokio::test(start_paused = true)]
async fn who_goes_behind_a_release_asks_when_that_has_ended() {
    let store = Arc::<Store>::default();
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    let lock_id = LockId::generate().unwrap();
    let slow = store.way_out.lock().await;
    let options = CallOptions::default();
    let mut release = Box::pin(release(&backend, &lock_id, options, pending()));
    assert!(release.as_mut().now_or_never().is_none());
    let mut request = AcquireRequest::new(Key::new("key").unwrap(), Ttl::DEFAULT).unwrap();
    request.behind = Some(lock_id.clone());
    let mut behind = Box::pin(acquire(&backend, request, options, pending()));
    assert!(behind.as_mut().now_or_never().is_none());
    assert_eq!(store.acquisitions.load(SeqCst), 0);
    drop(slow);
    release.await.unwrap();
    behind.await.unwrap();
    assert_eq!(store.acquisitions.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_not_undone() {
    let store = Arc::<Store>::default();
    store.has_no_connection.store(true, SeqCst);
    let backend: Arc<dyn Backend> = Arc::clone(&store) as _;
    for gives_up in [false, true] {
        let request = AcquireRequest::new(Key::new("key").unwrap(), Ttl::DEFAULT).unwrap();
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
    assert!(!store.work.is_in_background());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.acquisitions.load(SeqCst), 2);
    assert_eq!(store.releases.load(SeqCst), 0);
}
