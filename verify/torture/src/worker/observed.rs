//! A store as one waiter sees it: each operation that the waiter sends is recorded, and what it takes piece by piece is watched.
//!
//! Whoever waits for several things may gather them. What it has by then is known here alone, and so are the promises about it: it
//! holds nothing while it asks for all at once or once it has given up, and nothing is granted that was not extended as a whole.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Capabilities, Claim, Error, ErrorKind, ExtendOutcome,
    Extension, Grant, Key, Lane, LockId, Operation, Outcome, Ttl, Watch, Work,
};
use tokio::task::try_id;

use super::recording::{Ends, Sent, granted_key, keys_of};
use crate::lease::TOLERANCE_MS;
use crate::record::Recorder;

/// The longest time for which one who gathers takes what it does not have as a whole yet.
const PART_MS: i64 = 3_000;

pub(super) struct Observed {
    inner: Arc<dyn Backend>,
    recorder: Arc<Recorder>,
    is_spread: bool,
    /// How many things the waiter wants.
    wanted: usize,
    seen: Mutex<HeldParts>,
}

#[derive(Default)]
struct HeldParts {
    /// Of which key each lock is that was asked for: of slots of which one, until it is granted.
    keys: HashMap<LockId, Vec<Key>>,
    /// What was taken by itself, and nobody has asked to release.
    parts: Vec<LockId>,
    /// What was extended last, for how long, and until when.
    extended: Option<(Vec<LockId>, Ttl, i64)>,
}

impl HeldParts {
    fn asked(&mut self, claims: &[Claim]) {
        let keys = claims
            .iter()
            .map(|claim| (claim.lock_id.clone(), keys_of(claim)));
        self.keys.extend(keys);
    }

    fn granted(&mut self, claims: &[Claim], grants: &[Grant]) {
        for (claim, grant) in claims.iter().zip(grants) {
            let key = granted_key(claim, grant);
            self.keys.insert(grant.lock_id.clone(), vec![key]);
        }
    }

    fn locks<'a>(&'a self, ids: &'a [LockId]) -> impl Iterator<Item = (&'a [Key], &'a LockId)> {
        let keys = |id| self.keys.get(id).map_or(&[][..], Vec::as_slice);
        ids.iter().map(move |id| (keys(id), id))
    }

    /// The gates of a pool say nothing of what is wanted of it.
    fn is_gate(&self, id: &LockId) -> bool {
        let keys = self.keys.get(id).into_iter().flatten();
        keys.map(Key::slot_number).eq([Some(0)])
    }
}

impl Observed {
    pub(super) fn new(
        inner: &Arc<dyn Backend>,
        recorder: &Arc<Recorder>,
        is_spread: bool,
        wanted: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            recorder: Arc::clone(recorder),
            is_spread,
            wanted,
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> MutexGuard<'_, HeldParts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The waiter was granted this, and asked for that TTL.
    pub(super) fn was_granted(&self, grants: &[Grant], ttl: Ttl) -> io::Result<()> {
        let mut seen = self.seen();
        let parts = grants
            .iter()
            .filter(|one| seen.parts.contains(&one.lock_id));
        if parts.count() == 0 {
            return Ok(());
        }
        self.counts(true)?;
        // They are the caller's from now on. What is left are gates, which it does not keep.
        seen.parts
            .retain(|id| grants.iter().all(|one| one.lock_id != *id));
        let is_confirmed = seen
            .extended
            .as_ref()
            .is_some_and(|(ids, for_ttl, ends_ms)| {
                let others = ids.iter().filter(|id| !seen.is_gate(id)).count();
                let is_in =
                    |one: &Grant| ids.contains(&one.lock_id) && one.expires_at_ms == *ends_ms;
                *for_ttl == ttl && others == grants.len() && grants.iter().all(is_in)
            });
        match is_confirmed {
            true => Ok(()),
            false => self
                .recorder
                .broken("what was gathered was granted before it was extended"),
        }
    }

    /// One lock behind its gate is not gathered.
    fn counts(&self, is_granted: bool) -> io::Result<()> {
        match self.wanted {
            1 => Ok(()),
            _ => self.recorder.gathered(is_granted),
        }
    }

    /// The waiter has given up, or got what it wanted, and all that goes on in the background was sent.
    pub(super) fn has_ended(&self) -> io::Result<()> {
        self.holds_nothing(
            "a part was kept by one who had given up, or a gate by one who had got all",
        )
    }

    fn holds_nothing(&self, else_broken: &str) -> io::Result<()> {
        match self.seen().parts.is_empty() {
            true => Ok(()),
            false => self.recorder.broken(else_broken),
        }
    }

    fn sends_acquire(&self, request: &AcquireRequest) -> io::Result<Sent> {
        if !self.is_part(request) {
            self.holds_nothing("a part was kept by one who asked for all")?;
        } else if request.ttl.as_millis() > PART_MS {
            self.recorder
                .broken("a part was asked for longer than it may last")?;
        }
        self.seen().asked(&request.claims);
        Sent::acquire(&self.recorder, request, self.is_spread)
    }

    /// Whether it is asked for by itself, or with the others. One lock is a part behind its gate.
    fn is_part(&self, request: &AcquireRequest) -> bool {
        let is_gate = |claim: &Claim| claim.key.slot_number() == Some(0);
        request.claims.len() < self.wanted
            || self.wanted == 1
                && (request.claims.iter().any(is_gate) || !self.seen().parts.is_empty())
    }

    fn sends_release(&self, ids: &[LockId]) -> io::Result<Sent> {
        let mut seen = self.seen();
        let in_vain = seen
            .parts
            .iter()
            .any(|id| ids.contains(id) && !seen.is_gate(id));
        if in_vain {
            self.counts(false)?;
        }
        seen.parts.retain(|id| !ids.contains(id));
        Sent::of_locks(&self.recorder, seen.locks(ids), None, self.is_spread)
    }

    fn sends(&self, operation: &Operation) -> io::Result<Option<Sent>> {
        Ok(Some(match operation {
            Operation::Acquire(request) => self.sends_acquire(request)?,
            Operation::Extend(Extension { lock_ids, ttl, .. }) => {
                let seen = self.seen();
                let locks = seen.locks(lock_ids);
                Sent::of_locks(&self.recorder, locks, Some(*ttl), self.is_spread)?
            }
            Operation::Release(release) => self.sends_release(&release.lock_ids)?,
            _ => return Ok(None),
        }))
    }

    /// Notes what the waiter is told. What goes on without it is undone.
    fn hears(&self, operation: &Operation, outcome: &Outcome) {
        match (operation, outcome) {
            (Operation::Acquire(request), Outcome::Acquire(AcquireOutcome::Acquired(grants)))
                if self.is_part(request) =>
            {
                let ids = grants.iter().map(|grant| grant.lock_id.clone());
                self.seen().parts.extend(ids);
            }
            (
                Operation::Extend(extension),
                Outcome::Extend(ExtendOutcome::Extended { expires_at_ms }),
            ) => {
                let ids = extension.lock_ids.to_vec();
                self.seen().extended = Some((ids, extension.ttl, *expires_at_ms));
            }
            _ => {}
        }
    }

    /// How it has ended, if the operation is one that is recorded.
    fn ends(&self, operation: &Operation, sent: &Sent, answer: &Result<Outcome, Error>) -> Ends {
        match (operation, answer) {
            (Operation::Acquire(request), Ok(Outcome::Acquire(answer))) => {
                if let AcquireOutcome::Acquired(grants) = answer {
                    self.seen().granted(&request.claims, grants);
                }
                sent.acquired(&request.claims, Ok(answer))
            }
            (Operation::Extend(_), Ok(Outcome::Extend(answer))) => sent.extended(Ok(answer)),
            (_, Ok(Outcome::Release(answer))) => sent.released(Ok(answer)),
            (Operation::Acquire(request), Err(error)) => sent.acquired(&request.claims, Err(error)),
            (Operation::Extend(_), Err(error)) => sent.extended(Err(error)),
            (_, Err(error)) => sent.released(Err(error)),
            _ => sent.unknown(),
        }
    }
}

/// Whether the time of what is asked for there is over, as for a process that was stopped meanwhile: the waiter hears of no grant then.
fn is_over(operation: &Operation, sent_at: Instant) -> bool {
    match operation {
        Operation::Acquire(request) => {
            let lasts_ms = request.ttl.as_millis().max(TOLERANCE_MS);
            sent_at.elapsed() >= Duration::from_millis(lasts_ms.unsigned_abs())
        }
        _ => false,
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

/// One that is given up before its end may have its effect yet.
struct Recording<'a>(&'a Recorder, Option<Sent>);

impl Recording<'_> {
    fn end(&self, ends: Ends) -> Result<(), Error> {
        for (number, outcome) in ends {
            self.0.end(number, outcome).map_err(not_recorded)?;
        }
        Ok(())
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(sent) = self.1.take() {
            // Whoever cannot write it now has failed to before.
            let _ = self.end(sent.unknown());
        }
    }
}

fn not_recorded(error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, "an operation could not be recorded").with_source(error)
}

#[async_trait]
impl Backend for Observed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn work(&self) -> &Work {
        self.inner.work()
    }

    fn trouble(&self) -> Option<Error> {
        self.inner.trouble()
    }

    fn operation_timeout(&self) -> Duration {
        self.inner.operation_timeout()
    }

    fn prepare(&self, request: &mut AcquireRequest) {
        self.inner.prepare(request);
    }

    fn lane(&self) -> Option<Lane> {
        self.inner.lane()
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        self.inner.watch(claim)
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        let sent = self.sends(operation).map_err(not_recorded)?;
        let mut recording = Recording(&self.recorder, sent);
        let (task, sent_at) = (try_id(), Instant::now());
        let answer = self.inner.run(operation).await;
        // What was given up goes on in a task of its own. What was granted too late is undone.
        if let Ok(outcome) = &answer
            && try_id() == task
            && !is_over(operation, sent_at)
        {
            self.hears(operation, outcome);
        }
        if let Some(sent) = recording.1.take() {
            recording.end(self.ends(operation, &sent, &answer))?;
        }
        answer
    }

    async fn shut_down(&self) {
        self.inner.shut_down().await;
    }
}
