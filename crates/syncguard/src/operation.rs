//! How to call a [`Backend`]: with a time limit, cancellable, and with nothing left behind.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::backend::{
    AcquireOutcome, AcquireRequest, Backend, ExtendOutcome, Limit, LockRecord, Lookup, Operation,
    Outcome, ReleaseOutcome, Sent, Ttl,
};
use crate::error::{Error, ErrorKind};
use crate::holding::Hold;
use crate::inspection::{Facts, LockPage, PageRequest};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::undo::{self, Answer, Lock};

/// Bounds of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallOptions {
    /// A limit below the backend's own.
    pub timeout: Option<Duration>,
}

impl CallOptions {
    fn limit(&self, backend: &dyn Backend) -> Duration {
        let own = backend.operation_timeout();
        self.timeout.map_or(own, |asked| asked.min(own))
    }
}

/// Takes the lock if nobody holds it: one attempt.
///
/// When `cancelled` completes, time runs out or this future is dropped, the attempt goes on in the
/// background, and what the store may have granted is released: see [`release_in_background`].
///
/// # Errors
/// `Aborted` when cancelled and once the backend is being closed, `NetworkTimeout` when time runs out, else as the
/// backend says.
pub async fn acquire(
    backend: &Arc<dyn Backend>,
    mut request: AcquireRequest,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<AcquireOutcome, Error> {
    let _running = backend.work().start()?;
    backend.prepare(&mut request);
    let wanted = Wanted::of(&mut request);
    let limit = options.limit(backend.as_ref());
    let ends = Arc::new(Limit::after(limit));
    request.limit = Some(Arc::clone(&ends));
    let mut attempt = Attempt::start(backend, request);
    let answer = bounded(backend, &mut attempt.running, limit, cancelled)
        .await
        .map_err(|error| match ends.waits_for.get() {
            Some(what) if error.kind() == ErrorKind::NetworkTimeout => error.followed_by(what),
            _ => error,
        })?;
    attempt.state = match &answer {
        Err(error) if error.is_outcome_unknown() => State::AnswerLost,
        _ => State::Answered,
    };
    if let (Some(wanted), Ok(AcquireOutcome::Acquired(grant))) = (wanted, &answer) {
        wanted.start(backend, &grant.lock_id);
    }
    answer
}

/// Frees the lock that `lock_id` owns. From the call on, the lock does not extend itself any more.
///
/// # Errors
/// As [`acquire`].
pub async fn release(
    backend: &Arc<dyn Backend>,
    lock_id: &LockId,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<ReleaseOutcome, Error> {
    backend.work().heartbeats().stop(lock_id);
    let _running = backend.work().start()?;
    let _under_way = backend.work().releases().start(lock_id);
    let limit = options.limit(backend.as_ref());
    bounded(backend, &mut backend.release(lock_id), limit, cancelled).await?
}

/// Makes the lock that `lock_id` owns end `ttl` from now.
///
/// # Errors
/// As [`acquire`].
pub async fn extend(
    backend: &Arc<dyn Backend>,
    lock_id: &LockId,
    ttl: Ttl,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<ExtendOutcome, Error> {
    let _running = backend.work().start()?;
    let extending = backend.work().heartbeats().extending(lock_id, ttl);
    let limit = options.limit(backend.as_ref());
    let answer = bounded(backend, &mut backend.extend(lock_id, ttl), limit, cancelled).await?;
    if let (Some(extending), Ok(outcome)) = (extending, &answer) {
        extending.done(&Ok(*outcome));
    }
    answer
}

/// [`extend`] for a heartbeat, within `limit`.
pub(crate) async fn extend_with_others(
    backend: &Arc<dyn Backend>,
    lock_id: &LockId,
    ttl: Ttl,
    limit: Duration,
) -> Result<ExtendOutcome, Error> {
    let _running = backend.work().start()?;
    let limit = limit.min(backend.operation_timeout());
    let mut extension = backend.extend_with_others(lock_id, ttl);
    bounded(backend, &mut extension, limit, pending()).await?
}

/// Whether somebody holds the key.
///
/// # Errors
/// As [`acquire`].
pub async fn is_locked(
    backend: &Arc<dyn Backend>,
    key: &Key,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<bool, Error> {
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    bounded(backend, &mut backend.is_locked(key), limit, cancelled).await?
}

/// The live lock that fits.
///
/// # Errors
/// As [`acquire`].
pub async fn lookup(
    backend: &Arc<dyn Backend>,
    lookup: &Lookup,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<Option<LockRecord>, Error> {
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    bounded(backend, &mut backend.lookup(lookup), limit, cancelled).await?
}

/// Frees the key whoever holds it.
///
/// # Errors
/// As [`acquire`].
pub async fn force_release(
    backend: &Arc<dyn Backend>,
    key: &Key,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<bool, Error> {
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    bounded(backend, &mut backend.force_release(key), limit, cancelled).await?
}

/// Some of the live locks.
///
/// # Errors
/// As [`Backend::list`], and those of every operation.
pub async fn list(
    backend: &Arc<dyn Backend>,
    page: &PageRequest,
    cancelled: impl Future<Output = ()>,
) -> Result<LockPage, Error> {
    let _running = backend.work().start()?;
    let limit = backend.operation_timeout();
    bounded(backend, &mut backend.list(page), limit, cancelled).await?
}

/// How the store is set up.
///
/// # Errors
/// As [`Backend::facts`], and those of every operation.
pub async fn facts(
    backend: &Arc<dyn Backend>,
    cancelled: impl Future<Output = ()>,
) -> Result<Vec<Facts>, Error> {
    let _running = backend.work().start()?;
    let limit = backend.operation_timeout();
    bounded(backend, &mut backend.facts(), limit, cancelled).await?
}

/// Carries out any operation.
///
/// # Errors
/// As [`acquire`].
pub async fn run(
    backend: &Arc<dyn Backend>,
    operation: Operation,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    Ok(match operation {
        Operation::Acquire(request) => {
            Outcome::Acquire(acquire(backend, request, options, cancelled).await?)
        }
        Operation::Release(id) => {
            Outcome::Release(release(backend, &id, options, cancelled).await?)
        }
        Operation::Extend(id, ttl) => {
            Outcome::Extend(extend(backend, &id, ttl, options, cancelled).await?)
        }
        Operation::IsLocked(key) => {
            Outcome::IsLocked(is_locked(backend, &key, options, cancelled).await?)
        }
        Operation::Lookup(what) => {
            Outcome::Lookup(lookup(backend, &what, options, cancelled).await?)
        }
        Operation::ForceRelease(key) => {
            Outcome::ForceRelease(force_release(backend, &key, options, cancelled).await?)
        }
    })
}

/// How an operation went that was given to [`send`].
pub enum Ended {
    /// With this answer, or with the errors of [`run`].
    Done(Result<Outcome, Error>),
    /// The backend could not send it from the calling thread: it is for [`run`] to carry out, with these options, which
    /// leave it the rest of its time.
    NotSent(Operation, CallOptions),
}

/// Carries out any operation without a task: the calling thread sends it, no runtime is needed there, and
/// `on_end` is called once, on any thread. It cannot be cancelled; for the rest it is as [`run`].
///
/// Gives whether [`Backend::flush`] must be called soon: see [`Backend::send`].
pub fn send(
    backend: &Arc<dyn Backend>,
    mut operation: Operation,
    options: CallOptions,
    on_end: impl FnOnce(Ended) + Send + 'static,
) -> bool {
    let heartbeats = backend.work().heartbeats();
    let running = backend.work().start();
    let (mut granted, mut wanted, mut extending) = (None, None, None);
    match &mut operation {
        Operation::Acquire(request) => {
            backend.prepare(request);
            granted = Some((request.lock_id.clone(), request.ttl));
            wanted = Wanted::of(request);
        }
        Operation::Release(lock_id) => heartbeats.stop(lock_id),
        Operation::Extend(lock_id, ttl) if running.is_ok() => {
            extending = heartbeats.extending(lock_id, *ttl);
        }
        _ => {}
    }
    let running = match running {
        Ok(running) => running,
        Err(closed) => {
            on_end(Ended::Done(Err(closed)));
            return false;
        }
    };
    let limit = options.limit(backend.as_ref());
    let by = Instant::now() + limit;
    let store = Arc::clone(backend);
    let on_sent = move |sent| {
        let undo = |lock| {
            if let Some((lock_id, ttl)) = granted {
                undo::release_in_background(&store, &lock_id, ttl, lock);
            }
        };
        let answer = match sent {
            Sent::NotSent(mut operation) => {
                if let (Operation::Acquire(request), Some(wanted)) = (&mut operation, wanted) {
                    request.hold = Some(wanted.hold);
                }
                drop((running, extending));
                let mut rest = options;
                rest.timeout = Some(by.saturating_duration_since(Instant::now()));
                return on_end(Ended::NotSent(operation, rest));
            }
            Sent::Answered(answer) => {
                if answer.as_ref().is_err_and(Error::is_outcome_unknown) {
                    undo(Lock::Unknown);
                }
                answer
            }
            Sent::Late(answer) => {
                undo(Lock::Awaited(Box::pin(async {
                    match answer.await? {
                        Outcome::Acquire(outcome) => Ok(outcome),
                        _ => Ok(AcquireOutcome::Locked { free_in: None }),
                    }
                })));
                Err(timed_out(store.as_ref(), limit))
            }
        };
        match (&answer, wanted, extending) {
            (Ok(Outcome::Acquire(AcquireOutcome::Acquired(grant))), Some(wanted), _) => {
                wanted.start(&store, &grant.lock_id);
            }
            (Ok(Outcome::Extend(outcome)), _, Some(extending)) => extending.done(&Ok(*outcome)),
            _ => {}
        }
        on_end(Ended::Done(answer));
        drop(running);
    };
    backend.send(operation, by, Box::new(on_sent))
}

/// Frees the lock that `lock_id` owns, which lasts `ttl` at most, without waiting for it.
///
/// When the store cannot be reached, it is tried again for as long as the lock lasts, at most for an
/// hour. It counts as work of the backend for as long as one operation may take, and [`Backend::close`]
/// waits for it that long. Outside a tokio runtime nothing can be sent, and the lock ends with its TTL.
pub fn release_in_background(backend: &Arc<dyn Backend>, lock_id: &LockId, ttl: Ttl) {
    undo::release_in_background(backend, lock_id, ttl, Lock::Granted);
}

/// `operation`'s answer, or the outer error when `cancelled` completes or `limit` passes first.
async fn bounded<T>(
    backend: &Arc<dyn Backend>,
    operation: &mut Pin<Box<dyn Future<Output = Result<T, Error>> + Send + '_>>,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Result<T, Error>, Error> {
    tokio::select! {
        // An answer that is there wins over a cancellation that came with it.
        biased;
        answer = timeout(limit, operation) => answer.map_err(|_| timed_out(backend.as_ref(), limit)),
        () = cancelled => Err(Error::new(ErrorKind::Aborted, "Operation aborted by signal")),
    }
}

/// The error of an operation whose time is over: the reason where one is known, else that it took too long.
fn timed_out(backend: &dyn Backend, limit: Duration) -> Error {
    let message = format!("Operation timed out after {} ms", limit.as_millis());
    match backend.trouble() {
        Some(trouble) => {
            let message = format!("{message}: {}", trouble.message());
            Error::new(trouble.kind(), message).with_source(trouble)
        }
        None => Error::new(ErrorKind::NetworkTimeout, message),
    }
}

/// A lock that is to extend itself once it is granted.
struct Wanted {
    hold: Box<Hold>,
    ttl: Ttl,
    sent: Instant,
}

impl Wanted {
    /// What `request`, which is about to be sent, asks for. The backend need not know.
    fn of(request: &mut AcquireRequest) -> Option<Self> {
        let hold = request.hold.take()?;
        Some(Self {
            hold,
            ttl: request.ttl,
            sent: Instant::now(),
        })
    }

    fn start(self, backend: &Arc<dyn Backend>, lock_id: &LockId) {
        let heartbeats = backend.work().heartbeats();
        heartbeats.start(backend, lock_id, &self.hold, self.ttl, self.sent);
    }
}

/// An acquisition that leaves no lock behind when it is dropped before its answer is known.
struct Attempt {
    backend: Arc<dyn Backend>,
    lock_id: LockId,
    ttl: Ttl,
    running: Answer,
    state: State,
}

enum State {
    Running,
    Answered,
    AnswerLost,
}

impl Attempt {
    fn start(backend: &Arc<dyn Backend>, mut request: AcquireRequest) -> Self {
        let (lock_id, ttl) = (request.lock_id.clone(), request.ttl);
        let behind = request.behind.take();
        let store = Arc::clone(backend);
        Self {
            backend: Arc::clone(backend),
            lock_id,
            ttl,
            running: Box::pin(async move {
                if let Some(released) = behind {
                    store.work().releases().ended(&released).await;
                }
                store.acquire(&request).await
            }),
            state: State::Running,
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let lock = match self.state {
            State::Answered => return,
            State::AnswerLost => Lock::Unknown,
            State::Running => Lock::Awaited(std::mem::replace(
                &mut self.running,
                Box::pin(std::future::pending()),
            )),
        };
        undo::release_in_background(&self.backend, &self.lock_id, self.ttl, lock);
    }
}

#[cfg(test)]
mod tests;
