//! Several keys at once, and slots.

use std::future::pending;
use std::io;
use std::slice::from_ref;
use std::time::{Duration, Instant};

use syncguard::operation;
use syncguard::{
    AcquireOutcome, AcquireRequest, Batch, Claim, Error, ErrorKind, ExtendOutcome, Extension,
    Grant, Key, LockId, Operation, ReleaseOutcome, Slots, Ttl,
};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::recording::{Ends, Sent, granted_key, keys_of};
use super::sharing::is_shared;
use super::{CALL, Failed, Loop};
use crate::writer::Writer;

/// How many slots there are of each key that has some.
const SLOTS: u16 = 2;

/// The slots of so many keys.
pub(crate) fn slots(keys: usize) -> impl Iterator<Item = Result<Key, Error>> {
    let each = |number| {
        let key = slots_key(number);
        (1..=SLOTS).map(move |slot| Ok(key.clone()?.slot(slot)))
    };
    (0..keys).flat_map(each)
}

fn slots_key(number: usize) -> Result<Key, Error> {
    Key::new(&format!("slots:{number}"))
}

/// Locks that were granted: the key of each, and its grant.
pub(super) type Locks = Vec<(Key, Grant)>;

impl Loop {
    /// Takes several locks, works under them, and lets go of them.
    pub(super) async fn work_together(&mut self, register: &mut Writer) -> Result<(), Failed> {
        // What is cancelled has a long TTL, so that a lock that was not undone would be seen for long.
        let is_cancelled = self.waits && self.random.u8(..20) == 0;
        let granted = if is_cancelled {
            let turns = self.random.u32(..20);
            let cancelled = async move {
                for _ in 0..turns {
                    yield_now().await;
                }
            };
            self.acquire_together(Ttl::from_millis(20_000)?, cancelled)
                .await?
        } else {
            let ttl = self.ttl()?;
            self.acquire_together(ttl, pending()).await?
        };
        let Some(granted) = granted else {
            sleep(Duration::from_millis(self.random.u64(0..3))).await;
            return Ok(());
        };
        let mut numbers = Vec::new();
        for (key, grant) in &granted {
            let number = register.read(key, grant).await?;
            // Others may share the key.
            numbers.push(number.filter(|_| !is_shared(key)));
        }
        match self.random.u8(..100) {
            // Forgets them: they end by themselves.
            0 if !is_cancelled => return Ok(()),
            1..30 => {
                let ttl = self.ttl()?;
                self.extend_together(&granted, ttl).await?;
            }
            30..40 => {
                let (key, grant) = &granted[self.random.usize(..granted.len())];
                self.look_up_lock(key, &grant.lock_id).await?;
            }
            40..45 => {
                let (key, grant) = &granted[self.random.usize(..granted.len())];
                self.release(key, &grant.lock_id).await?;
                let ttl = self.ttl()?;
                self.extend_together(&granted, ttl).await?;
            }
            45..60 => sleep(Duration::from_millis(self.random.u64(..20))).await,
            _ => {}
        }
        for ((key, grant), number) in granted.iter().zip(numbers) {
            register.write_after(key, grant, number).await?;
        }
        self.release_together(&granted).await?;
        Ok(())
    }

    /// What to ask for.
    fn claims(&mut self) -> Result<Vec<Claim>, Failed> {
        let mut claims = Vec::new();
        let kind = self.random.u8(..10);
        if kind < 7 {
            let count = self.random.usize(1..=self.keys.min(3));
            let first = self.random.usize(..self.keys);
            for number in (0..count).map(|more| (first + more) % self.keys) {
                claims.push(Claim::new(Key::new(&format!("key:{number}"))?)?);
            }
        }
        if kind >= 5 {
            let key = slots_key(self.random.usize(..self.keys))?;
            for _ in 0..self.random.u8(1..=2) {
                claims.push(Claim::slot(key.clone(), Slots::new(SLOTS)?)?);
            }
        }
        // Where a clock may be set back, readers who forget their locks keep others out for long.
        if self.waits && self.random.u8(..4) == 0 {
            let key = self.key_for_set()?;
            claims.push(match self.random.u8(..4) {
                0 => Claim::new(key)?,
                _ => Claim::shared(key)?,
            });
        }
        Ok(claims)
    }

    async fn acquire_together(
        &mut self,
        ttl: Ttl,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Option<Locks>, Failed> {
        let mut request = AcquireRequest::of(self.claims()?, ttl)?;
        self.backend.prepare(&mut request);
        let claims = request.claims.clone();
        let sent = Sent::acquire(&self.recorder, &request, self.is_spread)?;
        let answer = operation::run::<AcquireOutcome>(
            &self.backend,
            Operation::Acquire(request),
            CALL,
            cancelled,
        )
        .await;
        if let Ok(AcquireOutcome::Acquired(grants)) = &answer {
            let mut ends = grants.iter().map(|grant| grant.expires_at_ms);
            let first = ends.next();
            if !self.is_spread && ends.any(|end| Some(end) != first) {
                return Err("a set was granted at more than one instant".into());
            }
        }
        self.end_all(sent.acquired(&claims, answer.as_ref()), &answer)?;
        if matches!(&answer, Err(error) if error.kind() == ErrorKind::Aborted) {
            let now = Instant::now();
            for claim in &claims {
                let known = keys_of(claim).into_iter();
                let known = known.map(|key| (now, key, claim.lock_id.clone()));
                self.cancelled.extend(known);
            }
        }
        Ok(match answer {
            Ok(AcquireOutcome::Acquired(grants)) => Some(with_keys(&claims, grants)),
            _ => None,
        })
    }

    pub(super) async fn extend_together(
        &mut self,
        granted: &Locks,
        ttl: Ttl,
    ) -> Result<(), Failed> {
        let sent = Sent::of_locks(&self.recorder, locks(granted), Some(ttl), self.is_spread)?;
        let answer = operation::run::<ExtendOutcome>(
            &self.backend,
            Operation::Extend(Extension::new(ids(granted), ttl)),
            CALL,
            pending(),
        )
        .await;
        Ok(self.end_all(sent.extended(answer.as_ref()), &answer)?)
    }

    pub(super) async fn release_together(&mut self, granted: &Locks) -> io::Result<()> {
        let sent = Sent::of_locks(&self.recorder, locks(granted), None, self.is_spread)?;
        let answer = operation::run::<Batch<ReleaseOutcome>>(
            &self.backend,
            Operation::Release(ids(granted).into()),
            CALL,
            pending(),
        )
        .await;
        self.end_all(sent.released(answer.as_ref()), &answer)
    }

    /// Records how the calls of an operation have ended.
    fn end_all<T>(&mut self, ends: Ends, answer: &Result<T, Error>) -> io::Result<()> {
        for (running, outcome) in ends {
            self.end(running, answer, outcome)?;
        }
        Ok(())
    }
}

/// What was granted, with the keys of the locks.
pub(super) fn with_keys(claims: &[Claim], grants: Batch<Grant>) -> Locks {
    let with_key = |(claim, grant)| (granted_key(claim, &grant), grant);
    claims.iter().zip(grants).map(with_key).collect()
}

fn locks(granted: &Locks) -> impl Iterator<Item = (&[Key], &LockId)> {
    granted
        .iter()
        .map(|(key, grant)| (from_ref(key), &grant.lock_id))
}

fn ids(granted: &Locks) -> Batch<LockId> {
    let lock_id = |(_, grant): &(Key, Grant)| grant.lock_id.clone();
    granted.iter().map(lock_id).collect()
}
