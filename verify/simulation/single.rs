//! Single attempts, through the functions that the addon uses.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::clients::{Client, Dropped};
use super::world::Sim;
use crate::asking::hold::{AutoExtend, Hold, Holder};
use crate::asking::outcome::{AcquireOutcome, Outcome};
use crate::asking::request::Extension;
use crate::asking::request::{AcquireRequest, Operation};
use crate::mutex::lock;
use crate::operation::{self, CallOptions};
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// Hears what becomes of a lock.
struct LossRecorder {
    sim: Sim,
    lock_id: LockId,
    extended: Mutex<u32>,
}

impl Holder for LossRecorder {
    fn extended(&self, _: i64) {
        *lock(&self.extended) += 1;
    }

    fn lost(&self, error: Error, _: Option<usize>) {
        self.sim.with(|world| {
            world.note("lost", &[world.witness.number(&self.lock_id)]);
            world.witness.lost(&self.lock_id, &error);
        });
    }
}

impl Client {
    /// Tries once to get a lock, and holds it for a while if it does. Every call may be cancelled.
    pub(super) async fn tries_once(&self, extends_itself: bool) -> Result<(), Error> {
        let ttl = Ttl::from_millis(3000)?;
        let mut request = AcquireRequest::of(self.claims(), ttl)?;
        let (lock_ids, lock_id) = (request.lock_ids(), request.claims[0].lock_id.clone());
        let auto_extend = AutoExtend::default();
        if extends_itself {
            request.hold = Some(Box::new(Hold {
                auto_extend,
                holder: Arc::new(LossRecorder {
                    sim: self.sim.clone(),
                    lock_id: lock_id.clone(),
                    extended: Mutex::default(),
                }),
                runtime: Handle::current(),
            }));
        }
        let mut dropped = Dropped(&self.sim, Some(lock_id.clone()));
        let outcome = self.carries_out(Operation::Acquire(request)).await;
        let Ok(Outcome::Acquire(AcquireOutcome::Acquired(grants))) = outcome else {
            return outcome.map(|_| ());
        };
        dropped.1 = None;
        // Without heartbeats nobody hears of a loss, and so nobody believes anything.
        if extends_itself {
            self.sim
                .with(|world| world.witness.hold(&grants, ttl, Some(auto_extend)));
        }
        sleep(Duration::from_millis(self.sim.random(0..5000))).await;
        if self.sim.chance(0.3) {
            let ttl = Ttl::from_millis(self.sim.random(50..8000) as i64)?;
            // It goes on as before whether it was extended or not.
            let _ = self
                .carries_out(Operation::Extend(Extension::new(lock_ids.clone(), ttl)))
                .await;
            sleep(Duration::from_millis(self.sim.random(0..1000))).await;
        }
        self.sim.with(|world| world.witness.end(&lock_id, false));
        let release = self.carries_out(Operation::Release(lock_ids.into())).await;
        release.map(|_| ())
    }

    async fn carries_out(&self, operation: Operation) -> Result<Outcome, Error> {
        let call = CallOptions {
            timeout: self
                .sim
                .chance(0.3)
                .then_some(Duration::from_millis(self.sim.random(1..500))),
            ..CallOptions::default()
        };
        let patience = match self.sim.chance(0.3) {
            true => self.sim.random(0..200),
            false => 1_000_000,
        };
        let cancelled = sleep(Duration::from_millis(patience));
        operation::run(&self.backend, operation, call, cancelled).await
    }
}
