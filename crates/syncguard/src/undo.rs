//! Releases in the background: of locks whose holder is gone, and of locks that an acquisition with an unknown
//! outcome may have been granted.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::backend::{AcquireOutcome, Backend, ReleaseOutcome, Ttl};
use crate::error::Error;
use crate::lock_id::LockId;
use crate::time::TIME_TOLERANCE_MS;
use crate::work::Releasing;

/// The pause after the first try. It doubles with each, up to [`PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries, and so the longest time that a lock stays which was granted late. The
/// pause grows beyond this only if the tries go on for more than a minute, or if more than a thousand releases
/// are to be done: then all of them together make a thousand tries a second.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES_PER_PAUSE: u32 = 1000;
const PAUSES_TILL_LONGER: u32 = 60;

/// The longest time for which to try.
const LONGEST: Duration = Duration::from_secs(3600);

/// The answer that a backend is going to give to an acquisition.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<AcquireOutcome, Error>> + Send>>;

/// What is known about the lock to be released.
pub(crate) enum Lock {
    /// It was granted.
    Granted,
    /// The acquisition is still running.
    Awaited(Answer),
    /// The answer to the acquisition is lost.
    Unknown,
}

/// Releases a lock in the background. Tries for as long as the lock can be held: for its TTL, at most for an hour.
///
/// The schedule and its reasons: docs/decisions/undo.md.
///
/// It counts as work of the backend for as long as one operation may take, and closing the backend waits for it
/// that long. Outside a tokio runtime nothing can be sent: the lock ends with its TTL.
pub(crate) fn release_in_background(
    backend: &Arc<dyn Backend>,
    lock_id: &LockId,
    ttl: Ttl,
    lock: Lock,
) {
    backend.work().heartbeats().stop(lock_id);
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let counted = backend.work().start_in_background();
    let releasing = backend.work().start_releasing();
    let (backend, lock_id) = (Arc::clone(backend), lock_id.clone());
    runtime.spawn(async move {
        let mut undoing = pin!(undo(backend.as_ref(), &lock_id, ttl, lock, &releasing));
        if timeout(backend.operation_timeout(), &mut undoing)
            .await
            .is_err()
        {
            drop(counted);
            undoing.await;
        }
    });
}

/// How an acquisition ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Granted,
    NotGranted,
    Unknown,
}

/// The result of one try to release.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Try {
    Released,
    /// The store has no such lock.
    Absent,
    Failed,
}

/// Tries until the lock is known to be gone.
///
/// If it is not known whether the lock was granted, one answer "absent" is not enough: after a stall of the
/// network or the server, the store may still carry out the acquisition. A lock that was granted before this
/// starts has ended once the TTL and the tolerance have passed.
async fn undo(
    backend: &dyn Backend,
    lock_id: &LockId,
    ttl: Ttl,
    lock: Lock,
    releasing: &Releasing,
) {
    let start = Instant::now();
    let patience = backend.operation_timeout();
    let last_for = lasts(ttl);
    let mut pause = FIRST_PAUSE;
    let (mut end, running) = match lock {
        Lock::Granted => (Some(End::Granted), None),
        Lock::Unknown => (Some(End::Unknown), None),
        Lock::Awaited(running) => (None, Some(running)),
    };
    // The acquisition's future is polled on, because the transport may need that to finish it. Its answer may
    // never come, hence the time limit.
    let mut attempt = pin!(async {
        match running {
            Some(running) => end_of(timeout(patience, running).await.ok()),
            None => End::Unknown,
        }
    });
    loop {
        let was_granted = end == Some(End::Granted);
        let came = {
            let mut release = pin!(try_release(backend, lock_id, releasing));
            loop {
                tokio::select! {
                    biased;
                    came = &mut release => break came,
                    ended = &mut attempt, if end.is_none() => end = Some(ended),
                }
            }
        };
        match (came, end) {
            (None | Some(Try::Released), _) | (_, Some(End::NotGranted)) => return,
            (Some(Try::Absent), Some(End::Granted)) => {
                if was_granted {
                    return;
                }
                // This release was sent before it was known that the lock was granted: try once more.
                continue;
            }
            _ => {}
        }
        let past = start.elapsed();
        if past >= last_for {
            return;
        }
        let longest = PAUSE
            .max(past / PAUSES_TILL_LONGER)
            .max(rate_limited_pause(releasing));
        tokio::select! {
            biased;
            ended = &mut attempt, if end.is_none() => end = Some(ended),
            () = sleep(pause.min(longest).min(last_for - past)) => pause = (pause * 2).min(longest),
        }
        if end == Some(End::NotGranted) {
            return;
        }
    }
}

/// How long a lock with that TTL can be held, at most [`LONGEST`].
fn lasts(ttl: Ttl) -> Duration {
    let ms = ttl.as_millis().saturating_add(TIME_TOLERANCE_MS);
    Duration::from_millis(ms.unsigned_abs()).min(LONGEST)
}

/// The pause between two tries of one release that keeps all of them together below
/// [`TRIES_PER_PAUSE`] tries in a [`PAUSE`].
fn rate_limited_pause(releasing: &Releasing) -> Duration {
    let count = u32::try_from(releasing.count()).unwrap_or(u32::MAX);
    PAUSE / TRIES_PER_PAUSE * count
}

fn end_of(answer: Option<Result<AcquireOutcome, Error>>) -> End {
    match answer {
        Some(Ok(AcquireOutcome::Acquired(_))) => End::Granted,
        Some(Ok(AcquireOutcome::Locked { .. })) => End::NotGranted,
        Some(Err(error)) if !error.is_outcome_unknown() => End::NotGranted,
        Some(Err(_)) | None => End::Unknown,
    }
}

/// `None` when the backend is closed.
async fn try_release(
    backend: &dyn Backend,
    lock_id: &LockId,
    releasing: &Releasing,
) -> Option<Try> {
    let _permit = releasing.permit().await?;
    let answer = timeout(backend.operation_timeout(), backend.release(lock_id)).await;
    Some(match answer {
        Ok(Ok(ReleaseOutcome::Released)) => Try::Released,
        Ok(Ok(ReleaseOutcome::Absent(_))) => Try::Absent,
        Ok(Err(_)) | Err(_) => Try::Failed,
    })
}

#[cfg(test)]
mod tests;
