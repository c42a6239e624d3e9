//! Counts what is under way on a backend, so that closing the backend can wait for it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::heartbeats::Heartbeats;
use crate::heartbeats::looks::Looks;
use crate::heartbeats::sets::Sets;
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::waiting::queue::Queues;

/// The bit that is set when no operation may start any more. The other bits count the running operations.
const CLOSING: usize = 1 << (usize::BITS - 1);

/// How many background releases of one backend may have a request at the store at a time. After an outage there can be thousands of
/// them, and the store has other things to do as well. The limit is for each backend, so that a store that hangs does not hold up
/// releases on another.
const RELEASES_AT_ONCE: usize = 64;

/// How many background releases there are in this process, on all stores together.
static RELEASING: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The operations and background releases of one backend, which gives it by [`Backend::work`].
///
/// The functions in [`operation`](crate::operation) count here what they run, and what they still do in the background afterwards.
/// [`Backend::close`] waits for both. Clones share the same counts.
///
/// [`Backend::work`]: crate::Backend::work
/// [`Backend::close`]: crate::Backend::close
#[derive(Clone)]
pub struct Work(Arc<WorkCounts>);

struct WorkCounts {
    operations: AtomicUsize,
    background: AtomicUsize,
    /// Set when nothing may be sent to the store any more.
    shut: AtomicBool,
    /// Notified when a count that `close` may wait for has become zero.
    done: Notify,
    /// Notified when no operation may start any more.
    closing: Notify,
    releases: Semaphore,
    /// Counts the background releases of all backends of the process.
    releasing: Arc<AtomicUsize>,
    queues: Queues,
    heartbeats: Heartbeats,
    looks: Looks,
    sets: Sets,
}

/// Counts as a running operation until it is dropped.
pub(crate) struct Running(Arc<WorkCounts>);

/// Counts as something that runs in the background until it is dropped.
pub(crate) struct Background(Arc<WorkCounts>);

/// Counts as a background release that is not done yet, however long it takes, until it is dropped.
pub(crate) struct Releasing(Arc<WorkCounts>);

impl Default for Work {
    fn default() -> Self {
        Self::counting(&RELEASING)
    }
}

impl Work {
    /// Makes one that counts its background releases in `releasing`, together with those of others.
    pub(crate) fn counting(releasing: &Arc<AtomicUsize>) -> Self {
        Self(Arc::new(WorkCounts {
            operations: AtomicUsize::new(0),
            background: AtomicUsize::new(0),
            shut: AtomicBool::new(false),
            done: Notify::new(),
            closing: Notify::new(),
            releases: Semaphore::new(RELEASES_AT_ONCE),
            releasing: Arc::clone(releasing),
            queues: Queues::default(),
            heartbeats: Heartbeats::default(),
            looks: Looks::default(),
            sets: Sets::default(),
        }))
    }

    /// Counts an operation that starts. Fails once the backend is being closed.
    pub(crate) fn start(&self) -> Result<Running, Error> {
        let running = Running(Arc::clone(&self.0));
        // If the backend is being closed, dropping `Running` undoes the count.
        if self.0.operations.fetch_add(1, SeqCst) & CLOSING == 0 {
            Ok(running)
        } else {
            Err(Error::closed())
        }
    }

    /// Counts a task that an operation starts as one more operation. This also works while the backend is being
    /// closed, because running operations may finish.
    pub(crate) fn start_beside(&self) -> Running {
        self.0.operations.fetch_add(1, SeqCst);
        Running(Arc::clone(&self.0))
    }

    /// Counts something that starts in the background. It may do so while the backend is being closed.
    pub(crate) fn start_in_background(&self) -> Background {
        self.0.background.fetch_add(1, SeqCst);
        Background(Arc::clone(&self.0))
    }

    /// Counts a release that is to be done in the background.
    pub(crate) fn start_releasing(&self) -> Releasing {
        self.0.releasing.fetch_add(1, Relaxed);
        Releasing(Arc::clone(&self.0))
    }

    /// The queues of those who wait for locks.
    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    /// The locks that extend themselves.
    pub(crate) fn heartbeats(&self) -> &Heartbeats {
        &self.0.heartbeats
    }

    /// The locks that do not extend themselves.
    pub(crate) fn looks(&self) -> &Looks {
        &self.0.looks
    }

    /// Calls `ask` whenever another server may have taken over, or the same one may have lost its data. This is for whoever holds
    /// locks that do not extend themselves and of which this crate knows nothing. Only the first `ask` counts.
    pub fn when_another_server(&self, ask: impl Fn() + Send + Sync + 'static) {
        self.0.looks.ask_others(Box::new(ask));
    }

    /// Gives the function to call when another server may have taken over, or the same one may have lost its data. It asks the store
    /// after all locks at once.
    pub(crate) fn asking_after_all(&self) -> impl Fn() + Send + Sync + use<> {
        // The reference is weak, because whoever calls the function may live longer than the backend.
        let work = Arc::downgrade(&self.0);
        move || {
            if let Some(work) = work.upgrade() {
                work.heartbeats.hurry();
                work.looks.ask();
            }
        }
    }

    /// Sends no more heartbeats for these locks, because somebody releases them. Other locks of the same grant go on.
    pub fn stop_heartbeats(&self, lock_ids: &[LockId]) {
        self.0.heartbeats.stop(lock_ids);
    }

    /// The holders of several locks that were granted together.
    pub(crate) fn sets(&self) -> &Sets {
        &self.0.sets
    }

    /// Whether something runs in the background that is worth waiting for.
    pub fn is_in_background(&self) -> bool {
        self.0.background.load(SeqCst) > 0
    }

    /// Waits until nothing counts as running in the background any more. A background release counts for no longer than one operation
    /// may take.
    pub async fn background_done(&self) {
        until(&self.0.done, || !self.is_in_background()).await;
    }

    /// Completes as soon as no operation may start any more, so that nobody need wait for a lock any longer.
    pub(crate) async fn closing(&self) {
        let is_closing = || self.0.operations.load(SeqCst) & CLOSING != 0;
        until(&self.0.closing, is_closing).await;
    }

    /// Ends all waits for locks, and all that begin later, with this error.
    pub fn refuse_waiters(&self, error: Error) {
        self.0.queues.refuse(error);
    }

    /// Lets no further operation start, and waits for at most `limit` for those that run, and for the background. After that, nothing
    /// is sent to the store any more.
    pub(crate) async fn finish(&self, limit: Duration) {
        self.0.operations.fetch_or(CLOSING, SeqCst);
        self.0.closing.notify_waiters();
        let idle = || self.0.operations.load(SeqCst) == CLOSING && !self.is_in_background();
        let _ = timeout(limit, until(&self.0.done, idle)).await;
        self.0.shut.store(true, SeqCst);
    }

    /// Names everything of which something is still noted.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> Vec<&'static str> {
        let shared = &self.0;
        let notes = [
            ("operations", shared.operations.load(SeqCst) & !CLOSING > 0),
            ("background", self.is_in_background()),
            ("queues", !shared.queues.is_empty()),
            ("heartbeats", !shared.heartbeats.is_empty()),
            ("looks", !shared.looks.is_empty()),
            ("sets", !shared.sets.is_empty()),
        ];
        let kept = notes.into_iter().filter(|(_, is_kept)| *is_kept);
        kept.map(|(what, _)| what).collect()
    }
}

/// Waits until `holds` is true. `changed` must be notified after each change.
async fn until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        let mut change = pin!(changed.notified());
        // Enabled before the check, so that a notification between the two is not missed.
        change.as_mut().enable();
        if holds() {
            return;
        }
        change.await;
    }
}

impl Releasing {
    /// Waits for permission to send a request to the store; `None` when the backend is closed.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.0.releases.acquire().await.ok()?;
        (!self.0.shut.load(SeqCst)).then_some(permit)
    }

    /// How many background releases the process has to do, including this one.
    pub(crate) fn count(&self) -> usize {
        self.0.releasing.load(Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.operations.fetch_sub(1, SeqCst) == CLOSING + 1 {
            self.0.done.notify_waiters();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.0.background.fetch_sub(1, SeqCst) == 1 {
            self.0.done.notify_waiters();
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("operations", &(self.0.operations.load(Relaxed) & !CLOSING))
            .field("background", &self.0.background.load(Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;
    use tokio::time::Instant;

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_what_runs_and_lets_nothing_start() {
        let work = Work::default();
        let running = work.start().unwrap();
        let background = work.start_in_background();
        let start = Instant::now();
        tokio::join!(work.finish(LONG), async {
            tokio::task::yield_now().await;
            assert_eq!(work.start().err().unwrap().kind(), ErrorKind::Aborted);
            tokio::time::sleep(Duration::from_secs(1)).await;
            // What is given up still has to be undone.
            let undo = work.start_in_background();
            drop((running, background));
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(undo);
        });
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        work.finish(LONG).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_what_an_operation_started() {
        let work = Work::default();
        let running = work.start().unwrap();
        let start = Instant::now();
        tokio::join!(work.finish(LONG), async {
            tokio::task::yield_now().await;
            let beside = work.start_beside();
            drop(running);
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(beside);
        });
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_wait_for_ever() {
        let work = Work::default();
        let _running = work.start().unwrap();
        let start = Instant::now();
        work.finish(LONG).await;
        assert_eq!(start.elapsed(), LONG);
    }

    #[tokio::test(start_paused = true)]
    async fn the_background_alone_can_be_waited_for() {
        let work = Work::default();
        let _running = work.start().unwrap();
        work.background_done().await;
        let background = work.start_in_background();
        assert!(work.is_in_background());
        tokio::join!(work.background_done(), async { drop(background) });
    }

    #[tokio::test]
    async fn releases_wait_for_a_permit_until_the_backend_is_closed() {
        let work = Work::default();
        let releasing = work.start_releasing();
        let permits = all_permits(&releasing).await;
        assert!(
            timeout(Duration::from_millis(20), releasing.permit())
                .await
                .is_err()
        );
        drop(permits);
        assert!(releasing.permit().await.is_some());
        work.finish(LONG).await;
        assert!(releasing.permit().await.is_none());
    }

    async fn all_permits(releasing: &Releasing) -> Vec<SemaphorePermit<'_>> {
        let mut permits = Vec::new();
        for _ in 0..RELEASES_AT_ONCE {
            permits.push(releasing.permit().await.unwrap());
        }
        permits
    }
}
