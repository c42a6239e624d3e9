//! Keeps the parts of a gathering, which are the locks that the waiter has so far. They become the grant, or are given back.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Granted;
use crate::asking::outcome::{ExtendOutcome, Grant, ReleaseOutcome};
use crate::asking::request::{AcquireRequest, Extension, Operation};
use crate::background::backend::Backend;
use crate::background::undo::{self, Freeing, Lock};
use crate::background::work::Running;
use crate::clock;
use crate::heartbeats::end_of;
use crate::operation::{self, CallOptions};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::key::{GATE, Key};
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// The longest TTL of a part. If a process dies while it gathers, others wait for this time and the tolerance at most.
pub(super) const PART_TTL: Duration = Duration::from_secs(3);
/// Parts of the longest TTL are extended each time this has passed.
const EXTENDED_EVERY: Duration = Duration::from_secs(1);
/// When an extension fails, the next one follows after this time, for as long as the parts last.
const EXTENDED_AGAIN: Duration = Duration::from_millis(250);
/// The shortest time that the extension of parts gets for its answer.
pub(super) const SHORTEST_CALL: Duration = Duration::from_millis(100);

/// How long the release of parts gets for its answer although the waiter's time is over: its last attempt is not to meet them.
const LAST_RELEASE: Duration = Duration::from_millis(1);

/// The parts that a waiter has so far. They are given back when this is dropped.
pub(super) struct Gathered {
    backend: Arc<dyn Backend>,
    taken: Vec<Part>,
    /// When the first part was asked for.
    since: Option<Instant>,
    /// The longest TTL that was asked for. The store keeps no part for longer from now on.
    lasts: Ttl,
    /// When the first part ends, by this process' clock.
    end: Option<Instant>,
    /// When to extend the parts after an extension that has failed.
    again_at: Option<Instant>,
    /// When the time of the waiter is over.
    limit: Option<Instant>,
    /// Lets the closing of the backend wait until the parts are released.
    running: Option<Running>,
}

struct Part {
    key: Key,
    grant: Grant,
}

impl Part {
    fn is_gate(&self) -> bool {
        self.key.slot_number() == Some(GATE)
    }
}

impl Gathered {
    /// Starts without parts, for a waiter who wants locks of this TTL and waits until `limit`.
    pub(super) fn new(backend: &Arc<dyn Backend>, ttl: Ttl, limit: Option<Instant>) -> Self {
        Self {
            backend: Arc::clone(backend),
            taken: Vec::new(),
            since: None,
            lasts: ttl,
            end: None,
            again_at: None,
            limit,
            running: None,
        }
    }

    fn lock_ids(&self) -> Batch<LockId> {
        self.lock_ids_of(|_| true)
    }

    fn lock_ids_of(&self, is_wanted: impl Fn(&Part) -> bool) -> Batch<LockId> {
        let wanted = self.taken.iter().filter(|part| is_wanted(part));
        wanted.map(|part| part.grant.lock_id.clone()).collect()
    }

    pub(super) fn add(&mut self, claim: &Claim, granted: Granted, ttl: Ttl) {
        let work = self.backend.work();
        self.running.get_or_insert_with(|| work.start_beside());
        self.since.get_or_insert(granted.asked);
        let end = end_of(granted.asked, ttl);
        self.end = Some(self.end.map_or(end, |first| first.min(end)));
        self.lasts = self.lasts.max(ttl);
        for grant in granted.grants {
            let key = grant.key_of(claim);
            self.taken.push(Part { key, grant });
        }
    }

    /// How long the waiter has had its first part.
    pub(super) fn had_for(&self) -> Duration {
        self.since
            .map(|since| clock::now().saturating_duration_since(since))
            .unwrap_or_default()
    }

    /// When to extend the parts. `None` if there are none, or if their TTL covers the window.
    pub(super) fn extended_at(&self, ttl: Ttl) -> Option<Instant> {
        let is_long = ttl.as_duration() >= PART_TTL;
        let end = self.end.filter(|_| is_long)?;
        if self.again_at.is_some() {
            return self.again_at;
        }
        let extended = clock::of_tokio(end).checked_sub(PART_TTL)?;
        Some(extended + EXTENDED_EVERY)
    }

    /// Extends the parts while the waiter waits for others. Gives whether it still has them: a store that fails now may answer before they end.
    pub(super) async fn keep(&mut self, ttl: Ttl) -> bool {
        let extended = self.extend(self.lock_ids(), ttl).await;
        self.again_at = extended.is_err().then(|| Instant::now() + EXTENDED_AGAIN);
        !matches!(extended, Ok(None))
    }

    /// Extends parts, all or none of them, so that they end `ttl` from now. Gives when the extension was sent, and the end by the store's
    /// clock. `None` if one of them is gone.
    async fn extend(
        &mut self,
        lock_ids: Batch<LockId>,
        ttl: Ttl,
    ) -> Result<Option<(Instant, i64)>, Error> {
        let sent = clock::now();
        let left = self.end.and_then(|end| end.checked_duration_since(sent));
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            return Ok(None);
        };
        self.lasts = self.lasts.max(ttl);
        let extension = Extension {
            needed_by: self.end,
            ..Extension::new(lock_ids, ttl)
        };
        let call = CallOptions {
            timeout: Some(self.time_left(left).max(SHORTEST_CALL)),
            ..CallOptions::default()
        };
        Ok(
            match operation::extend(&self.backend, extension, call, pending()).await? {
                ExtendOutcome::Extended { expires_at_ms } => {
                    self.end = Some(end_of(sent, ttl));
                    Some((sent, expires_at_ms))
                }
                ExtendOutcome::Absent { .. } => None,
            },
        )
    }

    /// Extends all parts by the TTL of the request, and makes them the grant. Gates are no part of it: they are given back, and are not
    /// extended, so that none stays for that time if nobody hears that it is given back. `None` if a part may be gone.
    pub(super) async fn confirm(&mut self, request: &AcquireRequest) -> Option<Granted> {
        let lock_ids = self.lock_ids_of(|part| !part.is_gate());
        let (asked, expires_at_ms) = self.extend(lock_ids, request.ttl).await.ok()??;
        let hold = request.hold.as_deref();
        if operation::is_over(asked, request.ttl, hold.is_some()) {
            return None;
        }
        let taken = std::mem::take(&mut self.taken);
        let (gates, parts): (Vec<_>, Vec<_>) = taken.into_iter().partition(Part::is_gate);
        self.taken = gates;
        let granted = |part: Part| Grant {
            expires_at_ms,
            ..part.grant
        };
        let grants: Batch<_> = parts.into_iter().map(granted).collect();
        if let Some(hold) = hold {
            let extender = Arc::new(Arc::clone(&self.backend));
            let lock_ids = grants.iter().map(|grant| grant.lock_id.clone()).collect();
            let heartbeats = self.backend.work().heartbeats();
            heartbeats.start(extender, lock_ids, hold, request.ttl, asked);
        }
        Some(Granted { grants, asked })
    }

    /// What is left of the waiter's time, at most `most`.
    fn time_left(&self, most: Duration) -> Duration {
        let left = self
            .limit
            .map(|limit| limit.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }

    fn keys(&self) -> Batch<Key> {
        self.taken.iter().map(|part| part.key.clone()).collect()
    }

    /// Releases all parts in one step. If that fails, or takes longer than the waiter can wait, they are released in the background.
    pub(super) async fn give_back(mut self) {
        if self.taken.is_empty() {
            return;
        }
        let left = self.time_left(self.backend.operation_timeout());
        let release = Operation::Release(self.lock_ids().into());
        let call = CallOptions {
            timeout: Some(left.max(LAST_RELEASE)),
            keys: self.keys(),
            ..CallOptions::default()
        };
        let released =
            operation::run::<Batch<ReleaseOutcome>>(&self.backend, release, call, pending());
        if released.await.is_ok() {
            self.taken.clear();
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            let release = Freeing::new(self.lock_ids().into(), None).telling(self.keys());
            let backend = &self.backend;
            undo::release_in_background(backend, Box::new(release), self.lasts, Lock::Granted);
        }
    }
}
