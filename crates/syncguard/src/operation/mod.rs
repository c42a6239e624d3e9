//! Calls a [`Backend`] with a time limit, lets the caller cancel, and leaves nothing behind.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::asking::hold::{Extender, Hold};
use crate::asking::limit::Limit;
use crate::asking::outcome::{
    AcquireOutcome, EvalOutcome, ExtendOutcome, FromOutcome, Outcome, ReleaseOutcome,
};
use crate::asking::request::{AcquireRequest, Eval, Extension, Operation};
use crate::asking::sending::Sending;
use crate::background::backend::Backend;
use crate::background::undo::{self, Freeing, Lock};
use crate::clock;
use crate::heartbeats::end_of;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::due::Due;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::{TIME_TOLERANCE_MS, TimeAuthority};
use crate::values::ttl::Ttl;

/// Bounds of one call.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// A limit below the backend's own.
    pub timeout: Option<Duration>,
    /// For a release: how long the locks can last, if the caller knows. If the release has failed by the end of the call, it
    /// goes on in the background for that time.
    pub lasts: Option<Ttl>,
    /// For a release: nobody else is to get the locks before this time. A release that is sent before makes them end at this time, and
    /// whoever waits for them is told nothing.
    pub hold_until: Option<Instant>,
    /// For a release: the keys that it frees, as far as the caller knows. Waiters of this process for them hear of it.
    pub keys: Batch<Key>,
}

impl CallOptions {
    /// The backend's own limits.
    pub const DEFAULT: Self = Self {
        timeout: None,
        lasts: None,
        hold_until: None,
        keys: Batch::new_const(),
    };

    fn limit(&self, backend: &dyn Backend) -> Duration {
        let own = backend.operation_timeout();
        self.timeout.map_or(own, |asked| asked.min(own))
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Carries out an operation: one attempt, which fails when its time runs out or `cancelled` completes. The answer is an
/// [`Outcome`], or what one of that kind holds: `let is_locked: bool = run(…)`.
///
/// # Acquisitions
///
/// When `cancelled` completes, time runs out or this future is dropped, the attempt goes on in the background, and what the
/// store may have granted is released: see [`release_in_background`]. A lock is also released if its TTL is over when the answer
/// comes, by the monotonic clock and counted from before the request was sent. A TTL of less than a second counts as a second
/// here, unless the lock extends itself. Several locks of one request are undone together.
///
/// # Releases
///
/// From the call on, the lock does not extend itself any more. If it is to [end later](CallOptions::hold_until), the call waits for a
/// heartbeat that is on its way. When the store cannot be reached or its answer is lost, the release is repeated while the call has
/// time. That does no harm, because a lock id is never given twice.
///
/// If an earlier try may have released the lock and the store then says that there is none, the outcome is `Released` if
/// [`lasts`](CallOptions::lasts) is given, because then the lock was held. Otherwise nobody knows whether there was a lock, and the
/// error says so. For a release with something [done](crate::ReleaseRequest::done), the store itself tells whether an earlier try has
/// stored it. If it cannot tell, because a later period is done by now, the error says that the outcome is unknown.
///
/// After an error the lock may still be held. It is released in the background if [`lasts`](CallOptions::lasts) is given, and ends
/// with its TTL otherwise.
///
/// # Scripts
///
/// A caller's script is sent at most once. If [`is_outcome_unknown`](Error::is_outcome_unknown) is true of an error, it may have run.
///
/// # Errors
/// `Aborted` when cancelled and once the backend is being closed, `NetworkTimeout` when time runs out or a lock was granted too
/// late, and otherwise the error of the backend.
pub async fn run<T: FromOutcome>(
    backend: &Arc<dyn Backend>,
    operation: Operation,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<T, Error> {
    // Boxed, so that a small operation needs no room for the largest.
    let outcome = match operation {
        Operation::Acquire(request) => {
            Outcome::Acquire(Box::pin(acquire(backend, request, options, cancelled)).await?)
        }
        Operation::Release(request) => {
            let freeing = Box::new(Freeing::new(request, options.hold_until));
            Outcome::Release(Box::pin(release(backend, freeing, options, cancelled)).await?)
        }
        Operation::Extend(extension) => {
            Outcome::Extend(Box::pin(extend(backend, extension, options, cancelled)).await?)
        }
        Operation::Eval(script) => {
            Outcome::Eval(Box::pin(eval(backend, script, options, cancelled)).await?)
        }
        ref other => Box::pin(attempt(backend, other, options, cancelled)).await?,
    };
    T::of(outcome)
}

/// Carries out an operation that leaves nothing behind, so that it can be given up at any time.
async fn attempt(
    backend: &Arc<dyn Backend>,
    operation: &Operation,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    bounded(backend, backend.run(operation), limit, cancelled).await?
}

/// Acquires the locks if nobody holds any of them.
pub(crate) async fn acquire(
    backend: &Arc<dyn Backend>,
    mut request: AcquireRequest,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<AcquireOutcome, Error> {
    request.check()?;
    let _running = backend.work().start()?;
    backend.prepare(&mut request);
    let limit = options.limit(backend.as_ref());
    let ends = Arc::new(Limit::after(limit));
    request.limit = Some(Arc::clone(&ends));
    let mut attempt = Attempt::start(backend, request);
    let answer = bounded(backend, &mut attempt.running, limit, cancelled)
        .await
        .map_err(|error| ends.explain(error))?;
    attempt.answered(answer)
}

/// Carries out `release`: frees locks by their ids, or makes them end later. Repeats it while the call has time.
async fn release(
    backend: &Arc<dyn Backend>,
    release: Box<Freeing>,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<Batch<ReleaseOutcome>, Error> {
    release.check()?;
    backend.work().sets().leave(release.lock_ids());
    let settled = release.end_heartbeats(backend.as_ref());
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    let by = Instant::now() + limit;
    let mut cancelled = pin!(cancelled);
    let first = match settled {
        None => {
            let notice = ReleaseNotice {
                backend,
                keys: options.keys,
            };
            let running = pin!(release.run(backend.as_ref()));
            bounded(backend, notice.of(running), limit, cancelled.as_mut()).await
        }
        Some(settled) => {
            let running = Box::pin(async {
                settled.await;
                release.run(backend.as_ref()).await
            });
            bounded(backend, running, limit, cancelled.as_mut()).await
        }
    };
    let failure = match first {
        Ok(Ok(outcomes)) => return Ok(outcomes),
        Ok(Err(failure)) | Err(failure) => failure,
    };
    let (tell, answered) = oneshot::channel();
    undo::repeat_release(backend, release, options.lasts, failure, by, |answer| {
        // The caller may have cancelled, so that nobody hears this.
        drop(tell.send(answer));
    });
    tokio::select! {
        biased;
        answer = answered => answer.unwrap_or_else(|_| Err(timed_out(backend.as_ref(), limit))),
        () = cancelled => Err(aborted()),
    }
}

/// Tells waiters of this process that locks are being released, and when it is dropped, that the release is over.
struct ReleaseNotice<'a> {
    backend: &'a Arc<dyn Backend>,
    keys: Batch<Key>,
}

impl ReleaseNotice<'_> {
    /// Runs `release`, and tells the waiters once it has been polled, because by then it is sent.
    async fn of<T>(&self, mut release: impl Future<Output = T> + Unpin) -> T {
        if self.keys.is_empty() {
            return release.await;
        }
        let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut release).poll(cx))).await;
        let queues = self.backend.work().queues();
        for key in &self.keys {
            queues.release_sent(key, self.backend.lane());
        }
        match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => release.await,
        }
    }
}

impl Drop for ReleaseNotice<'_> {
    fn drop(&mut self) {
        for key in &self.keys {
            self.backend.work().queues().release_ended(key);
        }
    }
}

/// Makes locks end later.
pub(crate) async fn extend(
    backend: &Arc<dyn Backend>,
    mut extension: Extension,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<ExtendOutcome, Error> {
    let _running = backend.work().start()?;
    let heartbeats = backend.work().heartbeats();
    let extending = heartbeats.extending(&extension.lock_ids, extension.ttl);
    // From now on the store may carry out the extension, even if its answer is lost, so a shorter end counts at once.
    let end = end_of(clock::now(), extension.ttl);
    backend.work().sets().may_end(&extension.lock_ids, end);
    let limit = options.limit(backend.as_ref());
    let ends = Arc::new(Limit::after(limit));
    extension.limit = Some(Arc::clone(&ends));
    let operation = Operation::Extend(extension);
    let answer = bounded(backend, backend.run(&operation), limit, cancelled)
        .await
        .map_err(|error| ends.explain(error))?;
    let answer = answer.and_then(ExtendOutcome::of);
    if let (Some(extending), Ok(outcome)) = (extending, &answer) {
        extending.done(&Ok(*outcome));
    }
    answer
}

/// Runs a caller's script. It is sent at most once, because a second run may do harm.
async fn eval(
    backend: &Arc<dyn Backend>,
    mut script: Eval,
    options: CallOptions,
    cancelled: impl Future<Output = ()>,
) -> Result<EvalOutcome, Error> {
    let _running = backend.work().start()?;
    let limit = options.limit(backend.as_ref());
    let sending = Sending::noted();
    script.sending = sending.clone();
    let operation = Operation::Eval(script);
    let error = match bounded(backend, backend.run(&operation), limit, cancelled).await {
        Ok(Ok(outcome)) => return EvalOutcome::of(outcome),
        Ok(Err(error)) => error,
        Err(error) if sending.is_waiting() => error,
        Err(error) => error.with_unknown_outcome(),
    };
    Err(match error.is_outcome_unknown() {
        true => error.followed_by("the script may have run"),
        false => error,
    })
}

impl Extender for Arc<dyn Backend> {
    fn begin(&self) -> Result<Box<dyn Send>, Error> {
        Ok(Box::new(self.work().start()?))
    }

    fn extend<'a>(
        &'a self,
        lock_ids: Batch<LockId>,
        ttl: Ttl,
        end: Instant,
    ) -> (Arc<Limit>, BoxFuture<'a, Result<ExtendOutcome, Error>>) {
        let (limit, end) = (self.operation_timeout(), clock::of_tokio(end));
        let mut ends = Limit::after(limit);
        ends.at = ends.at.min(end);
        let ends = Arc::new(ends);
        let operation = Operation::Extend(Extension {
            is_heartbeat: true,
            needed_by: Some(end),
            limit: Some(Arc::clone(&ends)),
            ..Extension::new(lock_ids, ttl)
        });
        let known = Arc::clone(&ends);
        let extending = async move {
            let answer = bounded(self, self.run(&operation), limit, pending()).await;
            answer
                .map_err(|error| known.explain(error))?
                .and_then(ExtendOutcome::of)
        };
        (ends, Box::pin(extending))
    }

    fn at_once(&self) -> usize {
        self.heartbeats_at_once()
    }

    fn time_authority(&self) -> TimeAuthority {
        self.capabilities().time_authority
    }

    fn timed_out(&self, after: Duration) -> Error {
        timed_out(self.as_ref(), after)
    }
}

/// Frees locks in the background. They last `ttl` at most.
///
/// When the store cannot be reached, the release is tried again for as long as the locks last, at most for an hour. It counts as
/// work of the backend for as long as one operation may take, and [`Backend::close`] waits for it that long. Outside a tokio runtime
/// nothing can be sent, and the locks end with their TTL.
pub fn release_in_background(backend: &Arc<dyn Backend>, lock_ids: &[LockId], ttl: Ttl) {
    let release = Freeing::new(lock_ids.iter().cloned().collect::<Batch<_>>().into(), None);
    undo::release_in_background(backend, Box::new(release), ttl, Lock::Granted);
}

/// Gives the answer of `operation`, or the outer error if `cancelled` completes or `limit` passes first.
async fn bounded<T>(
    backend: &Arc<dyn Backend>,
    operation: impl Future<Output = Result<T, Error>>,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Result<T, Error>, Error> {
    tokio::select! {
        // If both are ready, the answer wins over the cancellation.
        biased;
        answer = timeout(limit, operation) => answer.map_err(|_| timed_out(backend.as_ref(), limit)),
        () = cancelled => Err(aborted()),
    }
}

pub(crate) fn aborted() -> Error {
    Error::new(ErrorKind::Aborted, "Operation aborted by signal")
}

/// The error of an operation whose time is over. It has the reason if one is known, and otherwise says that it took too long.
pub(crate) fn timed_out(backend: &dyn Backend, limit: Duration) -> Error {
    let message = format!("Operation timed out after {} ms", limit.as_millis());
    match backend.trouble() {
        Some(trouble) => {
            let message = format!("{message}: {}", trouble.message());
            Error::new(trouble.kind(), message).with_source(trouble)
        }
        None => Error::new(ErrorKind::NetworkTimeout, message),
    }
}

/// Whether a lock that was asked for at the time `sent` has ended by now, when its grant is read. A very short lock counts as held for as
/// long as the tolerance, because nobody else gets it before. It does not if it extends itself: its heartbeats would come too late.
pub(crate) fn is_over(sent: Instant, ttl: Ttl, extends_itself: bool) -> bool {
    let shortest = match extends_itself {
        true => Duration::ZERO,
        false => Duration::from_millis(TIME_TOLERANCE_MS.unsigned_abs()),
    };
    clock::now() >= end_of(sent, ttl).max(sent + shortest)
}

/// An acquisition that leaves no locks behind when it is dropped before its answer is known.
struct Attempt {
    backend: Arc<dyn Backend>,
    lock_ids: Batch<LockId>,
    ttl: Ttl,
    /// The period for which something is to be done.
    due: Option<Due>,
    /// How to extend the locks once they are granted. The backend need not know.
    hold: Option<Box<Hold>>,
    started: Instant,
    running: undo::Answer,
    sending: Sending,
    state: State,
}

enum State {
    Running,
    Answered,
    AnswerLost,
    TooLate,
}

impl Attempt {
    fn start(backend: &Arc<dyn Backend>, mut request: AcquireRequest) -> Self {
        let (store, sending) = (Arc::clone(backend), Sending::noted());
        request.sending = sending.clone();
        let (lock_ids, ttl) = (request.lock_ids(), request.ttl);
        let due = request.due.clone();
        let hold = request.hold.take();
        let operation = Operation::Acquire(request);
        Self {
            backend: Arc::clone(backend),
            lock_ids,
            ttl,
            due,
            hold,
            started: clock::now(),
            running: Box::pin(async move {
                let outcome = store.run(&operation).await?;
                AcquireOutcome::of(outcome)
            }),
            sending,
            state: State::Running,
        }
    }

    /// Judges the store's answer. A lock whose time is over becomes an error. Any other lock extends itself from now on, if that was
    /// asked for.
    fn answered(&mut self, answer: Result<AcquireOutcome, Error>) -> Result<AcquireOutcome, Error> {
        self.state = match &answer {
            Err(error) if error.is_outcome_unknown() => State::AnswerLost,
            _ => State::Answered,
        };
        if let Ok(AcquireOutcome::Acquired(_)) = &answer {
            let sent = self.sending.sent().unwrap_or(self.started);
            if is_over(sent, self.ttl, self.hold.is_some()) {
                self.state = State::TooLate;
                return Err(self.too_late());
            }
            if let Some(hold) = &self.hold {
                let heartbeats = self.backend.work().heartbeats();
                let extender = Arc::new(Arc::clone(&self.backend));
                heartbeats.start(extender, self.lock_ids.clone(), hold, self.ttl, sent);
            }
        }
        if let (Ok(AcquireOutcome::Done(mark)), Some(due)) = (&answer, &self.due)
            && !mark.due.is_of_kind(due)
        {
            return Err(Error::invalid(
                "due is a number where a text is stored as done for this key, or the other way round: neither comes \
                 before the other",
            ));
        }
        answer
    }

    fn too_late(&self) -> Error {
        let message = format!(
            "the lock was granted too late: when the answer came, its time of {} ms was over",
            self.ttl.as_millis()
        );
        Error::new(ErrorKind::NetworkTimeout, message)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let lock = match self.state {
            State::Answered => return,
            State::Running if self.sending.is_waiting() => return,
            State::AnswerLost => Lock::Unknown,
            State::TooLate => Lock::Granted,
            State::Running => Lock::Awaited(std::mem::replace(
                &mut self.running,
                Box::pin(std::future::pending()),
            )),
        };
        let release = Freeing::new(self.lock_ids.clone().into(), None);
        undo::release_in_background(&self.backend, Box::new(release), self.ttl, lock);
    }
}

#[cfg(test)]
mod tests;
