//! Those who lock: each waits for locks, holds them, and lets go of them in one of many ways, at any moment.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::backend::{Process, label};
use super::world::Sim;
use crate::asking::hold::AutoExtend;
use crate::asking::inspection::{LockRecord, Lookup};
use crate::asking::outcome::Outcome;
use crate::asking::request::Operation;
use crate::background::backend::Backend;
use crate::holding::guard::LockGuard;
use crate::holding::lock::{LockOptions, lock};
use crate::operation::{self, CallOptions};
use crate::text::error::{Error, ErrorKind};
use crate::values::claim::{Claim, Slots};
use crate::values::key::Key;
use crate::values::ttl::Ttl;
use crate::waiting::retry::{Backoff, Jitter, RetryPolicy, Wait};

/// One of the keys.
fn plain(number: usize) -> Key {
    Key::new(&number.to_string()).unwrap()
}

fn slots_key() -> Key {
    Key::new("s").unwrap()
}

/// A claim of a slot, if there are any.
fn slots_of(count: u16) -> Option<Claim> {
    Claim::slot(slots_key(), Slots::new(count).ok()?).ok()
}

pub(super) struct Client {
    pub(super) sim: Sim,
    pub(super) process: Arc<Process>,
    pub(super) backend: Arc<dyn Backend>,
}

/// A place among those who wait. It is left when this is dropped.
struct Waiting<'a> {
    sim: &'a Sim,
    number: usize,
    was_granted: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.sim.with(|world| {
            let witness = &mut world.witness;
            let left = witness
                .waiters
                .leave(self.number, self.was_granted, witness.stalled);
            match left {
                Ok(asked) => asked.into_iter().for_each(|id| witness.orphan(id)),
                Err(problem) => witness.problem(problem),
            }
            world.note("leaves", &[self.number as u64, u64::from(self.was_granted)]);
        });
    }
}

/// A guard, and who waits for its loss. Without `release` it is dropped, and the library releases the lock.
pub(super) struct Holding<'a> {
    sim: &'a Sim,
    guard: Option<LockGuard>,
    watcher: AbortHandle,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.watcher.abort();
        if let Some(guard) = self.guard.take() {
            self.sim
                .with(|world| world.witness.end(guard.lock_id(), true));
        }
    }
}

impl Client {
    /// Does so many things. Ends early once the backend is closed.
    pub(super) async fn run(self, actions: usize) {
        for _ in 0..actions {
            sleep(Duration::from_millis(self.sim.random(0..2000))).await;
            let action = self.sim.random(0..20);
            let done = match action {
                0 => self.looks_up().await,
                1 if self
                    .sim
                    .with(|world| world.plan.forces && world.has_faults()) =>
                {
                    let key = self.key();
                    let patience = sleep(Duration::from_millis(1500));
                    let forced = operation::run::<bool>(
                        &self.backend,
                        Operation::ForceRelease(key.clone()),
                        CallOptions::DEFAULT,
                        patience,
                    );
                    forced.await.map(|_| ())
                }
                2..=5 => self.tries_once(action == 2).await,
                _ => self.locks(&self.options()).await,
            };
            if done.is_err_and(|error| error.message() == Error::closed().message()) {
                return;
            }
        }
    }

    /// Waits for the lock until it has it, with nothing that goes wrong any more.
    pub(super) async fn locks_at_last(&self) -> Result<(), Error> {
        let options = LockOptions {
            ttl: Ttl::from_millis(5000)?,
            retry: RetryPolicy {
                max_retries: f64::INFINITY,
                retry_delay_ms: 700.0,
                backoff: Backoff::Fixed,
                timeout_ms: f64::INFINITY,
                ..RetryPolicy::default()
            },
            ..LockOptions::default()
        };
        let (keys, slots) = self.sim.with(|world| (world.plan.keys, world.plan.slots));
        let mut claims = vec![self.plain(0)];
        if self.sim.with(|world| world.plan.sets) {
            claims.extend((1..keys).map(|number| self.plain(number)));
            claims.extend(slots_of(slots));
        }
        let held = self.waits(claims, &options).await?;
        sleep(Duration::from_millis(5)).await;
        self.releases(held).await
    }

    /// A claim of one of the keys, for a reader or a writer.
    fn plain(&self, number: usize) -> Claim {
        let shares = self.sim.with(|world| world.plan.readers) && self.sim.chance(0.6);
        match shares {
            true => Claim::shared(plain(number)).unwrap(),
            false => Claim::new(plain(number)).unwrap(),
        }
    }

    fn key(&self) -> Key {
        let (keys, slots) = self
            .sim
            .with(|world| (world.plan.keys as u64, world.plan.slots));
        if slots > 0 && self.sim.chance(0.5) {
            let number = self.sim.random(1..u64::from(slots) + 1);
            return slots_key().slot(u16::try_from(number).unwrap_or(1));
        }
        plain(self.sim.random(0..keys) as usize)
    }

    /// What to ask for: one key, alone or shared, or several, or slots, or both.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let (keys, sets, slots) = self.sim.with(|world| {
            let plan = &world.plan;
            (plan.keys, plan.sets, plan.slots)
        });
        let first = self.sim.random(0..keys as u64) as usize;
        let mut count = 1;
        if sets && self.sim.chance(0.6) {
            count = self.sim.random(1..keys as u64 + 1) as usize;
        }
        let mut claims: Vec<_> = (first..first + count)
            .map(|number| self.plain(number % keys))
            .collect();
        if slots > 0 && self.sim.chance(0.6) {
            if !sets || self.sim.chance(0.5) {
                claims.clear();
            }
            let take = self.sim.random(1..3).min(u64::from(slots));
            claims.extend((0..take).flat_map(|_| slots_of(slots)));
        }
        claims
    }

    fn options(&self) -> LockOptions {
        self.sim.with(|world| {
            let rng = &mut world.rng;
            let ttl_ms = [60, 500, 2000, 6000][rng.random_range(0..4)];
            let ttl_ms = ttl_ms.max(10 * world.plan.way_ms);
            let every = rng
                .random_bool(0.3)
                .then(|| Duration::from_millis(ttl_ms / 2));
            let max = rng.random_range(1..5000);
            let max = rng.random_bool(0.2).then_some(Duration::from_millis(max));
            let extends = rng.random_bool(0.4);
            let retries = [1.0, 3.0, 10.0, f64::INFINITY][rng.random_range(0..4)];
            LockOptions {
                ttl: Ttl::from_millis(ttl_ms as i64).unwrap(),
                retry: RetryPolicy {
                    max_retries: retries,
                    retry_delay_ms: [5.0, 100.0, 1500.0][rng.random_range(0..3)],
                    backoff: match rng.random_bool(0.5) {
                        true => Backoff::Fixed,
                        false => Backoff::Exponential,
                    },
                    max_retry_delay_ms: if extends { 500.0 } else { f64::INFINITY },
                    jitter: [Jitter::Equal, Jitter::Full, Jitter::None][rng.random_range(0..3)],
                    timeout_ms: [50.0, 1000.0, 5000.0, 20_000.0][rng.random_range(0..4)],
                    wait: [Wait::Notify, Wait::NotifyOnly, Wait::Poll][rng.random_range(0..3)],
                },
                owner: None,
                auto_extend: extends.then_some(AutoExtend { every, max }),
                min_hold: Duration::ZERO,
            }
        })
    }

    /// Waits for a lock, holds it, and lets go; or gives up at any moment.
    async fn locks(&self, options: &LockOptions) -> Result<(), Error> {
        let claims = self.claims();
        let patience = match self.sim.chance(0.3) {
            true => self.sim.random(0..3000),
            false => 1_000_000,
        };
        let patience = Duration::from_millis(patience);
        let Ok(held) = timeout(patience, self.waits(claims, options)).await else {
            return Ok(());
        };
        self.holds(held?).await
    }

    pub(super) async fn waits(
        &self,
        claims: Vec<Claim>,
        options: &LockOptions,
    ) -> Result<Holding<'_>, Error> {
        let process = self.process.number;
        let mut waiting = Waiting {
            number: self
                .sim
                .with(|world| world.witness.waiters.enter(process, &claims, options)),
            sim: &self.sim,
            was_granted: false,
        };
        self.sim
            .note("waits", &[process as u64, waiting.number as u64]);
        let options = LockOptions {
            owner: label(waiting.number),
            ..options.clone()
        };
        let guard = match lock(&self.backend, claims, &options).await {
            Ok(guard) => guard,
            Err(error) => {
                self.check(&error);
                return Err(error);
            }
        };
        waiting.was_granted = true;
        drop(waiting);
        self.sim.with(|world| {
            let (grants, ttl) = (guard.grants(), options.ttl);
            world.witness.hold(grants, ttl, options.auto_extend);
        });
        let (lost, sim, lock_id) = (guard.lost(), self.sim.clone(), guard.lock_id().clone());
        let watcher = tokio::spawn(async move {
            let error = lost.await;
            sim.with(|world| {
                world.note("lost", &[world.witness.number(&lock_id)]);
                world.witness.lost(&lock_id, &error);
            });
        });
        Ok(Holding {
            sim: &self.sim,
            guard: Some(guard),
            watcher: watcher.abort_handle(),
        })
    }

    /// Holds a lock for a while, and ends that somehow.
    async fn holds(&self, mut held: Holding<'_>) -> Result<(), Error> {
        for _ in 0..self.sim.random(0..4) {
            sleep(Duration::from_millis(self.sim.random(0..1500))).await;
            let Some(guard) = &mut held.guard else {
                return Ok(());
            };
            match self.sim.random(0..4) {
                0 => {
                    let ttl_ms = self.sim.random(50..8000);
                    let ttl = Ttl::from_millis(ttl_ms as i64)?;
                    let patience = match self.sim.chance(0.2) {
                        true => self.sim.random(0..100),
                        false => 1_000_000,
                    };
                    // Whether it was extended is of no interest to somebody who does not wait for it.
                    let _ = timeout(Duration::from_millis(patience), guard.extend(ttl)).await;
                }
                1 => self.sees(guard).await?,
                _ => {}
            }
        }
        match self.sim.random(0..10) {
            0 => drop(held),
            1 => {
                if let Some(guard) = held.guard.take() {
                    self.sim
                        .with(|world| world.witness.end(guard.lock_id(), false));
                    guard.keep();
                }
            }
            2 => {
                // As if it had forgotten the lock: it goes on until it is told.
                if let Some(guard) = &held.guard {
                    let lost = guard.lost();
                    let _ = timeout(Duration::from_secs(10), lost).await;
                    yield_now().await;
                }
                self.releases(held).await?;
            }
            3 => {
                let patience = Duration::from_millis(self.sim.random(0..50));
                let _ = timeout(patience, self.releases(held)).await;
            }
            _ => self.releases(held).await?,
        }
        Ok(())
    }

    pub(super) async fn releases(&self, mut held: Holding<'_>) -> Result<(), Error> {
        let Some(guard) = held.guard.take() else {
            return Ok(());
        };
        held.watcher.abort();
        let mut dropped = Dropped(&self.sim, Some(guard.lock_id().clone()));
        self.sim
            .with(|world| world.witness.end(guard.lock_id(), false));
        let released = guard.release().await;
        dropped.1 = None;
        released.map(|_| ())
    }

    /// Looks its own lock up.
    async fn sees(&self, guard: &LockGuard) -> Result<(), Error> {
        let what = Lookup::LockId(guard.lock_id().clone());
        let call = CallOptions::default();
        let found = operation::run::<Option<LockRecord>>(
            &self.backend,
            Operation::Lookup(what.clone()),
            call,
            std::future::pending(),
        )
        .await;
        if let Ok(Some(record)) = found
            && record.fence != guard.fence()
        {
            self.sim.with(|world| {
                world
                    .witness
                    .problem("a lock has another fence than its holder")
            });
        }
        Ok(())
    }

    async fn looks_up(&self) -> Result<(), Error> {
        let key = self.key();
        let patience = sleep(Duration::from_millis(self.sim.random(0..100)));
        operation::run::<bool>(
            &self.backend,
            Operation::IsLocked(key.clone()),
            CallOptions::DEFAULT,
            patience,
        )
        .await?;
        let what = Lookup::Key(key);
        operation::run::<Outcome>(
            &self.backend,
            Operation::Lookup(what.clone()),
            CallOptions::DEFAULT,
            std::future::pending(),
        )
        .await?;
        Ok(())
    }

    fn check(&self, error: &Error) {
        let is_ours = error.message().contains("the store refused");
        if error.kind() == ErrorKind::Internal && !is_ours {
            let problem = format!("a wait ended with {error}");
            self.sim.with(|world| world.witness.problem(problem));
        }
    }
}

/// Notes that nobody waits for a release any more: the library goes on with it.
pub(super) struct Dropped<'a>(
    pub(super) &'a Sim,
    pub(super) Option<crate::values::lock_id::LockId>,
);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if let Some(lock_id) = &self.1 {
            self.0.with(|world| world.witness.given_up(lock_id));
        }
    }
}
