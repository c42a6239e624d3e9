//! Several keys at once, and slots.
//!
//! Each key is checked for itself. A set is a lease on each of its keys, granted, extended and freed in one call; a slot is a
//! key of its own, and an acquisition of any slot is one of each: granted on one of them and without effect on the
//! others, or refused on all.

use std::future::pending;
use std::io;
use std::time::{Duration, Instant};

use syncguard::operation;
use syncguard::{
    AcquireOutcome, AcquireRequest, Batch, Claim, ClaimKind, Error, ErrorKind, ExtendOutcome,
    Extension, Grant, Key, LockId, Operation, ReleaseOutcome, Slots, Ttl,
};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{CALL, Failed, Loop, absent, acquired, number, outcome};
use crate::history::{Call, Outcome};
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

/// What was granted: the key of each lock, and its grant.
type Granted = Vec<(Key, Grant)>;

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
            numbers.push(register.read(key, grant).await?);
        }
        match self.random.u8(..100) {
            // Forgets them: they end by themselves.
            0 if !is_cancelled => return Ok(()),
            1..30 => self.extend_together(&granted).await?,
            30..40 => {
                let (key, grant) = &granted[self.random.usize(..granted.len())];
                self.look_up_lock(key, &grant.lock_id).await?;
            }
            40..45 => {
                let (key, grant) = &granted[self.random.usize(..granted.len())];
                self.release(key, &grant.lock_id).await?;
                self.extend_together(&granted).await?;
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
        Ok(claims)
    }

    async fn acquire_together(
        &mut self,
        ttl: Ttl,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Option<Granted>, Failed> {
        let mut request = AcquireRequest::of(self.claims()?, ttl)?;
        self.backend.prepare(&mut request);
        let claims = request.claims.clone();
        // Each claim, with the keys of which it may be granted one.
        let mut running = Vec::new();
        for claim in &claims {
            let call = Call::Acquire {
                lock: number(&claim.lock_id),
                ttl_ms: ttl.as_millis(),
            };
            let mut each = Vec::new();
            for key in keys_of(claim) {
                each.push((self.recorder.start(key.as_str(), call)?, key));
            }
            running.push(each);
        }
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
        let is_granted = matches!(answer, Ok(AcquireOutcome::Acquired(_)));
        // Some of it may have been granted, and was freed before the answer was given.
        let undone = (self.is_spread && !is_granted).then_some(Outcome::Undone);
        let mut granted = Vec::new();
        for (at, each) in running.into_iter().enumerate() {
            for (running, key) in each {
                let outcome = match &answer {
                    Ok(AcquireOutcome::Acquired(grants)) => {
                        let is_it = in_range(&claims[at], grants[at].slot) == key.slot_number();
                        if is_it {
                            granted.push((key, grants[at].clone()));
                        }
                        is_it.then(|| acquired(&grants[at]))
                    }
                    // All slots were held if a first one was wanted; with more, one may have been free.
                    Ok(AcquireOutcome::Locked { claim, .. })
                        if *claim == at && !takes_more(&claims, at) =>
                    {
                        Some(Outcome::Locked)
                    }
                    Ok(_) => None,
                    Err(error) => super::after_error(error),
                };
                self.end(running, &answer, outcome.or(undone))?;
            }
        }
        if matches!(&answer, Err(error) if error.kind() == ErrorKind::Aborted) {
            let now = Instant::now();
            for claim in &claims {
                let known = keys_of(claim).into_iter();
                let known = known.map(|key| (now, key, claim.lock_id.clone()));
                self.cancelled.extend(known);
            }
        }
        Ok((!granted.is_empty()).then_some(granted))
    }

    async fn extend_together(&mut self, granted: &Granted) -> Result<(), Failed> {
        let ttl = self.ttl()?;
        let mut running = Vec::new();
        for (key, grant) in granted {
            let call = Call::Extend {
                lock: number(&grant.lock_id),
                ttl_ms: ttl.as_millis(),
            };
            running.push(self.recorder.start(key.as_str(), call)?);
        }
        let answer = operation::run::<ExtendOutcome>(
            &self.backend,
            Operation::Extend(Extension::new(ids(granted), ttl)),
            CALL,
            pending(),
        )
        .await;
        for (at, running) in running.into_iter().enumerate() {
            let outcome = match &answer {
                Ok(ExtendOutcome::Extended { expires_at_ms }) => Some(match self.is_spread {
                    false => Outcome::Extended {
                        expires_at_ms: *expires_at_ms,
                    },
                    true => Outcome::ExtendedTogether {
                        earliest_ms: *expires_at_ms,
                    },
                }),
                Ok(ExtendOutcome::Absent { lock, absence }) if *lock == at => {
                    Some(absent(*absence))
                }
                Ok(ExtendOutcome::Absent { .. }) => self.is_spread.then_some(Outcome::Unknown),
                Err(error) => super::after_error(error),
            };
            self.end(running, &answer, outcome)?;
        }
        Ok(())
    }

    async fn release_together(&mut self, granted: &Granted) -> io::Result<()> {
        let mut running = Vec::new();
        for (key, grant) in granted {
            let lock = number(&grant.lock_id);
            running.push(self.recorder.start(key.as_str(), Call::Release { lock })?);
        }
        let answer = operation::run::<Batch<ReleaseOutcome>>(
            &self.backend,
            Operation::Release(ids(granted).into()),
            CALL,
            pending(),
        )
        .await;
        for (at, running) in running.into_iter().enumerate() {
            let outcome = outcome(&answer, |outcomes| match outcomes[at] {
                ReleaseOutcome::Released => Outcome::Released,
                ReleaseOutcome::Absent(absence) => absent(absence),
            });
            self.end(running, &answer, outcome)?;
        }
        Ok(())
    }
}

/// The slot that was granted. One that there is not stands for one that somebody else may have.
fn in_range(claim: &Claim, number: Option<u16>) -> Option<u16> {
    Some((number? - 1) % claim.kind.slots()?.count() + 1)
}

fn keys_of(claim: &Claim) -> Vec<Key> {
    match claim.kind {
        ClaimKind::Exclusive => vec![claim.key.clone()],
        ClaimKind::SlotOf(slots) => {
            let numbers = 1..=slots.count();
            numbers.map(|number| claim.key.slot(number)).collect()
        }
    }
}

/// Whether that claim is one of several of its key.
fn takes_more(claims: &[Claim], at: usize) -> bool {
    let same = |claim: &&Claim| claim.key == claims[at].key;
    claims.iter().filter(same).count() > 1
}

fn ids(granted: &Granted) -> Batch<LockId> {
    let lock_id = |(_, grant): &(Key, Grant)| grant.lock_id.clone();
    granted.iter().map(lock_id).collect()
}
