//! Gives locks back: at once by a release, or later by an extension that makes them end at a given time.

use std::time::Duration;

use tokio::time::Instant;

use crate::asking::outcome::{ExtendOutcome, FromOutcome as _, ReleaseOutcome};
use crate::asking::request::{Extension, Operation, ReleaseRequest};
use crate::background::backend::Backend;
use crate::clock;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;
use crate::waiting::queue::Queues;

/// The result of giving locks back.
pub(super) type Released = Result<Batch<ReleaseOutcome>, Error>;

/// A way of giving locks back, which can be tried again.
pub(crate) struct Freeing {
    release: Operation,
    /// Before this time, the locks are not freed, but made to end then.
    hold_until: Option<Instant>,
    /// The keys whose waiters in this process hear of it in the end.
    keys: Batch<Key>,
}

impl Freeing {
    pub(crate) fn new(request: ReleaseRequest, hold_until: Option<Instant>) -> Self {
        Self {
            release: Operation::Release(request),
            hold_until,
            keys: Batch::new(),
        }
    }

    /// Tells the waiters for `keys` in the end, where a background release does this.
    pub(crate) fn telling(self, keys: Batch<Key>) -> Self {
        Self { keys, ..self }
    }

    /// Tells the waiters that the release is over.
    pub(super) fn tell(&self, queues: &Queues) {
        for key in &self.keys {
            queues.release_sent(key, None);
            queues.release_ended(key);
        }
    }

    /// # Errors
    /// As [`ReleaseRequest::check`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.release {
            Operation::Release(request) => request.check(),
            _ => Ok(()),
        }
    }

    pub(crate) fn lock_ids(&self) -> &[LockId] {
        match &self.release {
            Operation::Release(request) => &request.lock_ids,
            _ => &[],
        }
    }

    /// Whether something is stored with the release.
    pub(super) fn stores(&self) -> bool {
        matches!(&self.release, Operation::Release(request) if request.done.is_some())
    }

    /// Ends the heartbeats of the locks. If these are made to end later, gives what must be waited for before that.
    pub(crate) fn end_heartbeats(
        &self,
        backend: &dyn Backend,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let heartbeats = backend.work().heartbeats();
        if self.is_release() {
            heartbeats.stop(self.lock_ids());
            return None;
        }
        Some(heartbeats.finish(self.lock_ids()))
    }

    /// Whether this frees the locks if it is sent now.
    pub(super) fn is_release(&self) -> bool {
        self.left_to_hold().is_none()
    }

    /// Asks the store once.
    pub(crate) async fn run(&self, backend: &dyn Backend) -> Released {
        if self.is_release() {
            return backend.run(&self.release).await.and_then(Batch::of);
        }
        Box::pin(self.end_later(backend)).await
    }

    /// Makes the locks end when they have been held for long enough. A store extends all or none, so a lock that it calls gone is left
    /// out of the next try.
    async fn end_later(&self, backend: &dyn Backend) -> Released {
        let mut outcomes: Batch<_> = self
            .lock_ids()
            .iter()
            .map(|_| ReleaseOutcome::Released)
            .collect();
        let mut asked: Vec<usize> = (0..outcomes.len()).collect();
        while !asked.is_empty() {
            let Some(ttl) = self.left_to_hold() else {
                return backend.run(&self.release).await.and_then(Batch::of);
            };
            let lock_ids = asked.iter().map(|place| self.lock_ids()[*place].clone());
            let extend = Operation::Extend(Extension {
                gives_back: true,
                ..Extension::new(lock_ids.collect(), ttl)
            });
            match ExtendOutcome::of(backend.run(&extend).await?)? {
                ExtendOutcome::Extended { .. } => break,
                ExtendOutcome::Absent { lock, absence } if lock < asked.len() => {
                    outcomes[asked.remove(lock)] = ReleaseOutcome::Absent(absence);
                }
                ExtendOutcome::Absent { .. } => {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        "a store has named a lock that was not asked for",
                    ));
                }
            }
        }
        Ok(outcomes)
    }

    /// How much longer the locks are to be held, in whole milliseconds. `None` if that time is over.
    fn left_to_hold(&self) -> Option<Ttl> {
        let left = self.hold_until?.checked_duration_since(clock::now())?;
        let rounded_up = left.saturating_add(Duration::from_nanos(999_999));
        Ttl::from_duration(rounded_up).ok()
    }
}
