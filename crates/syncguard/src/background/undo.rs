//! Releases locks in the background: those whose holder is gone, those that an acquisition with an unknown outcome may have been
//! granted, and those whose release has failed.

use std::future::{Future, pending, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::asking::outcome::{Absence, AcquireOutcome, ReleaseOutcome};
use crate::background::backend::Backend;
use crate::background::work::Releasing;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::time::TIME_TOLERANCE_MS;
use crate::values::ttl::Ttl;

mod freeing;

pub(crate) use freeing::Freeing;
use freeing::Released;

/// The pause after the first try. It doubles with each, up to [`PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries, and so the longest time for which a lock stays that was granted late. The pause grows beyond
/// this only if the tries go on for more than a minute, or if the process has more than [`TRIES_PER_PAUSE`] releases to do on all
/// stores together. Then all of them make so many tries a second.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES_PER_PAUSE: u32 = 500;
const PAUSES_TILL_LONGER: u32 = 60;

/// The longest time for which to try.
const LONGEST: Duration = Duration::from_secs(3600);

/// The answer that a backend is going to give to an acquisition.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<AcquireOutcome, Error>> + Send>>;

/// What is known of the acquisition whose locks are to be released.
pub(crate) enum Lock {
    /// It has granted them.
    Granted,
    /// It is still running.
    Awaited(Answer),
    /// Its answer is lost.
    Unknown,
}

/// Releases a lock in the background. It tries for as long as the lock can be held, which is its TTL, but for an hour at most.
/// docs/decisions/undo.md explains the schedule.
///
/// The release counts as work of the backend for as long as one operation may take, and closing the backend waits for it that long.
/// Outside a tokio runtime nothing can be sent, and the lock ends with its TTL.
pub(crate) fn release_in_background(
    backend: &Arc<dyn Backend>,
    release: Box<Freeing>,
    ttl: Ttl,
    lock: Lock,
) {
    let heartbeats = release.end_heartbeats(backend.as_ref());
    let settled = async {
        if let Some(heartbeats) = heartbeats {
            heartbeats.await;
        }
    };
    start(backend, release, Some(ttl), lock, None, settled);
}

/// Goes on with a release that has failed with `failure`. A lock is released by its id, so a second release does no harm if the first
/// was carried out.
///
/// `tell` hears the result, at the time `by` at the latest. If another try may help, that is the store's answer to such a try.
/// Afterwards the release goes on in the background if `lasts` says how long the lock can be held.
#[expect(
    clippy::too_many_arguments,
    reason = "what is released, and all that is known of it"
)]
pub(crate) fn repeat_release(
    backend: &Arc<dyn Backend>,
    release: Box<Freeing>,
    lasts: Option<Ttl>,
    failure: Error,
    by: Instant,
    tell: impl FnOnce(Released) + Send + 'static,
) {
    let kind = failure.kind();
    let mut caller = Some(Caller {
        by,
        may_be_done: failure.is_outcome_unknown(),
        knows: lasts.is_some() && !release.stores(),
        failure,
        tell: Some(Box::new(tell)),
    });
    if !kind.is_transient() || by <= Instant::now() {
        caller = None;
    }
    let lasts = lasts.filter(|_| kind != ErrorKind::InvalidArgument);
    if caller.is_some() || lasts.is_some() {
        start(backend, release, lasts, Lock::Granted, caller, ready(()));
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "what is released, and all that is known of it"
)]
fn start(
    backend: &Arc<dyn Backend>,
    release: Box<Freeing>,
    lasts: Option<Ttl>,
    lock: Lock,
    caller: Option<Caller>,
    settled: impl Future<Output = ()> + Send + 'static,
) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let counted = backend.work().start_in_background();
    let releasing = backend.work().start_releasing();
    let backend = Arc::clone(backend);
    runtime.spawn(async move {
        let mut undoing = pin!(async {
            settled.await;
            let (end, running) = match lock {
                Lock::Granted => (Some(End::Granted), None),
                Lock::Unknown => (Some(End::Unknown), None),
                Lock::Awaited(running) => (None, Some(running)),
            };
            let undo = Undo {
                backend: backend.as_ref(),
                release: &release,
                releasing: &releasing,
                last_for: lasts.map(longest),
                caller,
                end,
                start: Instant::now(),
                pause: FIRST_PAUSE,
            };
            undo.run(running).await;
            release.tell(backend.work().queues());
        });
        if timeout(backend.operation_timeout(), &mut undoing)
            .await
            .is_err()
        {
            drop(counted);
            undoing.await;
        }
    });
}

/// The caller who waits for a release that is repeated. If this is dropped, the caller hears of the failure.
struct Caller {
    /// Until when the caller waits.
    by: Instant,
    /// The error that the caller hears then.
    failure: Error,
    /// Whether an earlier try, or one that is under way, may have released the lock.
    may_be_done: bool,
    /// Whether a lock that is not there any more must have been released by an earlier try, because it was held. This is not known for a
    /// release that stores something, because the lock may have been lost before.
    knows: bool,
    tell: Option<Box<dyn FnOnce(Released) + Send>>,
}

impl Caller {
    /// Tells the caller the store's answer. `is_release` is false for an extension that makes the locks end later: an earlier one of
    /// those cannot have taken them away.
    fn answered(mut self, outcomes: Batch<ReleaseOutcome>, is_release: bool) {
        let may_be_done = self.may_be_done && is_release;
        let answer = |outcome| match outcome {
            ReleaseOutcome::Absent(Absence::NotFound) if may_be_done => match self.knows {
                // The lock was held, so an earlier try has released it.
                true => Ok(ReleaseOutcome::Released),
                // Either that, or there was no such lock.
                false => Err(self.failure.clone().with_unknown_outcome()),
            },
            other => Ok(other),
        };
        let answer = outcomes.into_iter().map(answer).collect();
        if let Some(tell) = self.tell.take() {
            tell(answer);
        }
    }

    fn failed(&mut self, failure: Error) {
        self.may_be_done |= failure.is_outcome_unknown();
        // The reason why another try failed says more than that this one took too long.
        if failure.kind() != ErrorKind::NetworkTimeout {
            self.failure = failure;
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            let failure = self.failure.clone();
            tell(Err(match self.may_be_done {
                true => failure.with_unknown_outcome(),
                false => failure,
            }));
        }
    }
}

/// How an acquisition ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Granted,
    NotGranted,
    Unknown,
}

/// A lock that is being released in the background.
///
/// This tries until the lock is known to be gone or `last_for` has passed, which is the TTL and the tolerance. Without `last_for`, it
/// tries for as long as the caller waits.
///
/// The answer to a release proves nothing if the acquisition was still running when that was sent, even if it says that the lock was
/// released: a client that lost its connection may send the acquisition again, and the store grants it once more. If the answer to
/// the acquisition is lost, "absent" proves nothing either: after a stall of the network or the server, the store may still carry the
/// acquisition out.
struct Undo<'a> {
    backend: &'a dyn Backend,
    release: &'a Freeing,
    releasing: &'a Releasing,
    last_for: Option<Duration>,
    caller: Option<Caller>,
    /// How the acquisition ended, once that is known.
    end: Option<End>,
    start: Instant,
    /// The pause after the next try.
    pause: Duration,
}

/// Whether a try is followed by another one.
enum Repeat {
    Never,
    AtOnce,
    AfterPause,
}

impl Undo<'_> {
    async fn run(mut self, running: Option<Answer>) {
        let mut attempt = pin!(end_within(self.backend.operation_timeout(), running));
        loop {
            let ended = self.end;
            let Some(came) = self.try_once(attempt.as_mut()).await else {
                return;
            };
            match self.repeat(ended, came) {
                Repeat::Never => return,
                Repeat::AtOnce => continue,
                Repeat::AfterPause => {}
            }
            let Some(wait) = self.next_pause() else {
                return;
            };
            tokio::select! {
                biased;
                end = &mut attempt, if self.end.is_none() => self.end = Some(end),
                () = sleep(wait) => {}
            }
            if self.end == Some(End::NotGranted) {
                return;
            }
        }
    }

    /// Sends one release, and notes how the acquisition ends meanwhile. `None` if the backend is closed, or if the caller has gone and
    /// nothing is to go on without it.
    async fn try_once(
        &mut self,
        mut attempt: Pin<&mut impl Future<Output = End>>,
    ) -> Option<Released> {
        let mut release = pin!(try_release(self.backend, self.release, self.releasing));
        loop {
            let by = self.caller.as_ref().map_or(self.start, |caller| caller.by);
            tokio::select! {
                biased;
                came = &mut release => return came,
                end = &mut attempt, if self.end.is_none() => self.end = Some(end),
                () = sleep_until(by), if self.caller.is_some() => {
                    if let Some(mut caller) = self.caller.take() {
                        // The store may still carry out the try that is under way.
                        caller.may_be_done = true;
                    }
                    // Without `last_for`, nothing goes on once the caller is gone.
                    self.last_for?;
                }
            }
        }
    }

    /// Whether another try follows. `ended` says how the acquisition had ended when the last try was sent, and `came` is its result.
    fn repeat(&mut self, ended: Option<End>, came: Released) -> Repeat {
        match came {
            Ok(outcomes) => {
                let is_released = |outcome: &_| *outcome == ReleaseOutcome::Released;
                let all_released = outcomes.iter().all(is_released);
                if ended == Some(End::Granted) || ended.is_some() && all_released {
                    if let Some(caller) = self.caller.take() {
                        caller.answered(outcomes, self.release.is_release());
                    }
                    return Repeat::Never;
                }
                // The last try was sent before it was known that the lock was granted, so try once more.
                if self.end == Some(End::Granted) {
                    return Repeat::AtOnce;
                }
            }
            Err(failure) => {
                if let Some(caller) = &mut self.caller {
                    caller.failed(failure);
                }
            }
        }
        match self.end {
            Some(End::NotGranted) => Repeat::Never,
            _ => Repeat::AfterPause,
        }
    }

    /// How long to wait before the next try; `None` if there is no time for one.
    fn next_pause(&mut self) -> Option<Duration> {
        let past = self.start.elapsed();
        let mut wait = self.pause;
        match self.caller.as_ref().map(|caller| caller.by) {
            Some(by) if Instant::now() + wait >= by => self.caller = None,
            Some(_) => {}
            None => wait = wait.max(rate_limited_pause(self.releasing)),
        }
        self.pause = (self.pause * 2).min(PAUSE.max(past / PAUSES_TILL_LONGER));
        match self.last_for {
            Some(last_for) if past < last_for => Some(wait.min(last_for - past)),
            None if self.caller.is_some() => Some(wait),
            _ => None,
        }
    }
}

/// Waits for the end of an acquisition that is still running. Its future must be polled, because the transport may need that to finish
/// it. If the answer has not come within `patience`, this never completes, because nobody knows whether a client still goes on with it.
async fn end_within(patience: Duration, running: Option<Answer>) -> End {
    if let Some(running) = running
        && let Ok(answer) = timeout(patience, running).await
    {
        return end_of(answer);
    }
    pending().await
}

/// How long a lock with this TTL can be held, but no longer than [`LONGEST`].
fn longest(ttl: Ttl) -> Duration {
    let ms = ttl.as_millis().saturating_add(TIME_TOLERANCE_MS);
    Duration::from_millis(ms.unsigned_abs()).min(LONGEST)
}

/// The pause between two tries of one release with which all releases of this process together stay below [`TRIES_PER_PAUSE`] tries
/// in a [`PAUSE`].
fn rate_limited_pause(releasing: &Releasing) -> Duration {
    let count = u32::try_from(releasing.count()).unwrap_or(u32::MAX);
    PAUSE / TRIES_PER_PAUSE * count
}

fn end_of(answer: Result<AcquireOutcome, Error>) -> End {
    match answer {
        Ok(AcquireOutcome::Acquired(_)) => End::Granted,
        Ok(AcquireOutcome::Locked { .. } | AcquireOutcome::Done(_)) => End::NotGranted,
        Err(error) if !error.is_outcome_unknown() => End::NotGranted,
        Err(_) => End::Unknown,
    }
}

/// Sends one release. `None` if the backend is closed.
async fn try_release(
    backend: &dyn Backend,
    release: &Freeing,
    releasing: &Releasing,
) -> Option<Released> {
    let _permit = releasing.permit().await?;
    let answer = timeout(backend.operation_timeout(), release.run(backend)).await;
    let answer = answer.unwrap_or_else(|_| {
        let late = Error::new(ErrorKind::NetworkTimeout, "the release was not answered");
        Err(late.with_unknown_outcome())
    });
    Some(answer)
}

#[cfg(test)]
mod tests;
