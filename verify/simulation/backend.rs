//! The backend of one process: it goes to the store through the network.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::listening::Dialer;
use super::world::Sim;
use crate::asking::outcome::{AcquireOutcome, ExtendOutcome, Outcome, ReleaseOutcome};
use crate::asking::request::{AcquireRequest, Extension, Operation};
use crate::background::backend::{Backend, Capabilities};
use crate::background::work::Work;
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::lock_id::LockId;
use crate::values::owner::Owner;
use crate::waiting::wakeups::{Wakeups, Watch};

pub(super) struct Process {
    pub(super) sim: Sim,
    pub(super) number: usize,
    work: Work,
    pub(super) wakeups: Wakeups,
}

/// Notes how a call ends, also when nobody waits for it any more.
struct Call<'a> {
    process: &'a Process,
    lock_ids: &'a [LockId],
    what: What,
}

enum What {
    Release,
    Extend(Vec<usize>, Option<ExtendOutcome>),
}

impl Process {
    pub(super) fn new(sim: &Sim, number: usize) -> Arc<Self> {
        let dialer = Dialer {
            sim: sim.clone(),
            process: number,
        };
        Arc::new(Self {
            sim: sim.clone(),
            number,
            work: Work::default(),
            wakeups: Wakeups::new(dialer),
        })
    }

    /// What the library should have forgotten by now, and has not.
    pub(super) fn left_behind(&self) -> Option<String> {
        let kept = self.work.kept();
        (!kept.is_empty() || !self.wakeups.is_unused()).then(|| {
            let watches = if self.wakeups.is_unused() {
                "no"
            } else {
                "some"
            };
            format!("process {} keeps {kept:?}, {watches} watches", self.number)
        })
    }

    async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome, Error> {
        let (process, lock_ids, ttl) = (self.number, &extension.lock_ids, extension.ttl);
        let is_heartbeat = extension.is_heartbeat;
        let numbers = self.sim.with(|world| {
            let lock = world.witness.number(&lock_ids[0]);
            world.note("extends", &[process as u64, lock, u64::from(is_heartbeat)]);
            world.witness.extending(lock_ids, ttl, is_heartbeat)
        });
        let mut call = Call {
            process: self,
            lock_ids,
            what: What::Extend(numbers.clone(), None),
        };
        let (ids, numbered) = (lock_ids.clone(), numbers.clone());
        let act =
            move |world: &mut super::world::World| Ok(world.extend(process, &ids, ttl, &numbered));
        let answer = self.sim.call(process, act).await;
        call.what = What::Extend(numbers, answer.as_ref().ok().copied());
        answer
    }
}

/// The label of the waiter with that number.
pub(super) fn label(number: usize) -> Option<Owner> {
    Owner::new(number.to_string()).ok()
}

impl Process {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        let process = self.number;
        let waiter = request
            .labels
            .owner
            .as_ref()
            .and_then(|owner| owner.as_str().parse().ok());
        let id = self.sim.with(|world| {
            let claims = &request.claims;
            let id = world.witness.attempt(process, claims, request.ttl, waiter);
            world.note("acquires", &[process as u64, id as u64]);
            id
        });
        let asked = request.clone();
        let answer = self
            .sim
            .call(process, move |world| world.acquire(process, &asked))
            .await;
        self.sim.with(|world| {
            world.note("answered", &[id as u64, u64::from(answer.is_ok())]);
            if let Some(waiter) = waiter {
                world.witness.answered(waiter, id, &request.claims, &answer);
            }
        });
        answer
    }

    async fn release(&self, lock_ids: &Batch<LockId>) -> Result<Batch<ReleaseOutcome>, Error> {
        let process = self.number;
        self.sim.with(|world| {
            for lock_id in lock_ids {
                world.note("releases", &[process as u64, world.witness.number(lock_id)]);
                world.witness.releasing(lock_id);
            }
        });
        let _call = Call {
            process: self,
            lock_ids,
            what: What::Release,
        };
        let ids = lock_ids.clone();
        let act = move |world: &mut super::world::World| {
            Ok(ids.iter().map(|id| world.release(process, id)).collect())
        };
        self.sim.call(process, act).await
    }
}

#[async_trait]
impl Backend for Process {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "simulated",
            supports_fencing: true,
            time_authority: self.sim.with(|world| world.plan.authority),
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn trouble(&self) -> Option<Error> {
        let is_cut = self.sim.with(|world| world.is_cut(self.number).is_some());
        is_cut.then(|| Error::new(ErrorKind::ServiceUnavailable, "no connection"))
    }

    fn operation_timeout(&self) -> Duration {
        self.sim.with(|world| world.plan.operation_timeout)
    }

    fn heartbeats_at_once(&self) -> usize {
        self.sim.with(|world| world.plan.heartbeats_at_once)
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let tells = self.sim.with(|world| world.plan.tells);
        tells.then(|| self.wakeups.watch(claim.key.base()))
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        let process = self.number;
        Ok(match operation.clone() {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(&request).await?),
            Operation::Release(release) => Outcome::Release(self.release(&release.lock_ids).await?),
            Operation::Extend(extension) => Outcome::Extend(self.extend(&extension).await?),
            Operation::IsLocked(key) => Outcome::IsLocked(
                self.sim
                    .call(process, move |world| {
                        let now_ms = world.now_ms(process);
                        Ok(world.store.is_locked(&key, now_ms))
                    })
                    .await?,
            ),
            Operation::Lookup(lookup) => Outcome::Lookup(
                self.sim
                    .call(process, move |world| {
                        let now_ms = world.now_ms(process);
                        Ok(world.store.lookup(&lookup, now_ms))
                    })
                    .await?,
            ),
            Operation::ForceRelease(key) => Outcome::ForceRelease(
                self.sim
                    .call(process, move |world| Ok(world.force_release(process, &key)))
                    .await?,
            ),
            Operation::List(_) | Operation::Facts | Operation::Eval(_) | Operation::Mark { .. } => {
                return Err(Error::invalid("not simulated"));
            }
        })
    }

    async fn shut_down(&self) {
        self.wakeups.close();
        self.sim.with(|world| {
            world.links[self.number].is_shut = true;
            world.witness.over.insert(self.number);
        });
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.number)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let sim = &self.process.sim;
        sim.with(|world| match &self.what {
            What::Release => {
                for lock_id in self.lock_ids {
                    world.witness.released(lock_id);
                }
            }
            What::Extend(numbers, outcome) => {
                let lock = world.witness.number(&self.lock_ids[0]);
                let was_answered = u64::from(outcome.is_some());
                let number = numbers.first().map_or(0, |number| *number as u64);
                world.note("extends no more", &[lock, number, was_answered]);
                let witness = &mut world.witness;
                witness.extension_done(self.lock_ids, numbers, *outcome);
            }
        });
    }
}
