//! A backend with faults, around a sound one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Capabilities, Error, ErrorKind, ExtendOutcome, Key,
    LockId, LockRecord, Lookup, ReleaseOutcome, Ttl, Work,
};
use tokio::sync::Semaphore;

/// What goes wrong; all but the last three concerns acquisitions alone.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The first so many fail like this, before the store sees them.
    First(usize, ErrorKind),
    /// The store does it, and its answer is kept until the semaphore has a permit.
    HeldBack(Arc<Semaphore>),
    /// The store does it, and its answer is lost.
    AnswerLost,
    /// No operation is ever answered.
    Silence,
    /// Extensions fail, before the store sees them.
    NoExtensions,
    /// The store does the first so many releases, and its answers are lost.
    ReleasesLost(AtomicUsize),
}

#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Backend>,
    fault: Fault,
    acquisitions: AtomicUsize,
    extensions: AtomicUsize,
    /// Gets a permit for each acquisition that the store has done.
    pub done: Semaphore,
}

impl Faulty {
    pub(crate) fn new(inner: &Arc<dyn Backend>, fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            fault,
            acquisitions: AtomicUsize::new(0),
            extensions: AtomicUsize::new(0),
            done: Semaphore::new(0),
        })
    }

    async fn speak(&self) {
        if matches!(self.fault, Fault::Silence) {
            std::future::pending().await
        }
    }

    pub(crate) fn acquisitions(&self) -> usize {
        self.acquisitions.load(Ordering::SeqCst)
    }

    pub(crate) fn extensions(&self) -> usize {
        self.extensions.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn work(&self) -> &Work {
        self.inner.work()
    }

    fn operation_timeout(&self) -> Duration {
        self.inner.operation_timeout()
    }

    fn prepare(&self, request: &mut AcquireRequest) {
        self.inner.prepare(request);
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.speak().await;
        let number = self.acquisitions.fetch_add(1, Ordering::SeqCst);
        if let Fault::First(count, kind) = self.fault
            && number < count
        {
            return Err(Error::new(kind, "the store is not well"));
        }
        let answer = self.inner.acquire(request).await;
        self.done.add_permits(1);
        match &self.fault {
            Fault::HeldBack(permits) => {
                permits.acquire().await.unwrap().forget();
                answer
            }
            Fault::AnswerLost => Err(lost()),
            _ => answer,
        }
    }

    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error> {
        self.speak().await;
        let answer = self.inner.release(lock_id).await;
        match &self.fault {
            Fault::ReleasesLost(left) if left.load(Ordering::SeqCst) > 0 => {
                left.fetch_sub(1, Ordering::SeqCst);
                Err(lost())
            }
            _ => answer,
        }
    }

    async fn extend(&self, lock_id: &LockId, ttl: Ttl) -> Result<ExtendOutcome, Error> {
        self.speak().await;
        self.extensions.fetch_add(1, Ordering::SeqCst);
        if matches!(self.fault, Fault::NoExtensions) {
            let kind = ErrorKind::ServiceUnavailable;
            return Err(Error::new(kind, "the store is not well"));
        }
        self.inner.extend(lock_id, ttl).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        self.speak().await;
        self.inner.is_locked(key).await
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error> {
        self.speak().await;
        self.inner.lookup(lookup).await
    }

    async fn force_release(&self, key: &Key) -> Result<bool, Error> {
        self.speak().await;
        self.inner.force_release(key).await
    }

    async fn shut_down(&self) {
        self.inner.shut_down().await;
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::ServiceUnavailable, "connection was lost").with_unknown_outcome()
}
