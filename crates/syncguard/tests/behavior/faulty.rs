//! A backend with faults, around a sound one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::{
    AcquireRequest, Backend, Capabilities, Claim, Error, ErrorKind, Operation, Outcome, Watch, Work,
};
use tokio::sync::Semaphore;

/// What goes wrong; all but the last four concerns acquisitions alone.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing, and those who wait are told of releases, too.
    Nothing,
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
    /// Releases fail, before the store sees them.
    NoReleases,
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

    async fn acquire(&self, operation: &Operation) -> Result<Outcome, Error> {
        let number = self.acquisitions.fetch_add(1, Ordering::SeqCst);
        if let Fault::First(count, kind) = self.fault
            && number < count
        {
            return Err(Error::new(kind, "the store is not well"));
        }
        let answer = self.inner.run(operation).await;
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

    async fn release(&self, operation: &Operation) -> Result<Outcome, Error> {
        if matches!(self.fault, Fault::NoReleases) {
            return Err(lost());
        }
        let answer = self.inner.run(operation).await;
        match &self.fault {
            Fault::ReleasesLost(left) if left.load(Ordering::SeqCst) > 0 => {
                left.fetch_sub(1, Ordering::SeqCst);
                Err(lost())
            }
            _ => answer,
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

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        match self.fault {
            Fault::Nothing => self.inner.watch(claim),
            _ => None,
        }
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        if matches!(self.fault, Fault::Silence) {
            std::future::pending().await
        }
        match operation {
            Operation::Acquire(_) => self.acquire(operation).await,
            Operation::Release(_) => self.release(operation).await,
            Operation::Extend(_) => {
                self.extensions.fetch_add(1, Ordering::SeqCst);
                if matches!(self.fault, Fault::NoExtensions) {
                    let kind = ErrorKind::ServiceUnavailable;
                    return Err(Error::new(kind, "the store is not well"));
                }
                self.inner.run(operation).await
            }
            _ => self.inner.run(operation).await,
        }
    }

    async fn shut_down(&self) {
        self.inner.shut_down().await;
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::ServiceUnavailable, "connection was lost").with_unknown_outcome()
}
