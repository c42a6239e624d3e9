//! Tasks that take locks while something happens, and a witness of who holds what.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, Grant, Operation, Outcome, ReleaseOutcome, Ttl,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::locks::key;

/// What nobody may see: two holders of a key, or a fence that does not rise.
#[derive(Default)]
pub(crate) struct Witness {
    keys: Mutex<HashMap<String, Seen>>,
    /// What was seen.
    pub(crate) offences: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Seen {
    is_held: bool,
    fence: u64,
}

impl Witness {
    fn granted(&self, name: &str, grant: &Grant) {
        let mut keys = self.keys.lock().unwrap();
        let seen = keys.entry(name.to_owned()).or_default();
        let fence = grant.fence.get();
        if seen.is_held {
            self.offend(format!("two holders of {name}"));
        }
        if fence <= seen.fence {
            self.offend(format!("{name}: fence {fence} after {}", seen.fence));
        }
        seen.is_held = true;
        seen.fence = seen.fence.max(fence);
    }

    /// To be called before the release is sent: from then on, somebody else may have the lock.
    fn given_up(&self, name: &str) {
        self.keys.lock().unwrap().get_mut(name).unwrap().is_held = false;
    }

    fn offend(&self, what: String) {
        self.offences.lock().unwrap().push(what);
    }
}

/// Tasks that acquire and release until they are stopped.
pub(crate) struct Load {
    pub(crate) witness: Arc<Witness>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    /// Releases that found no lock although it was granted and its time is not over.
    pub(crate) lost: Arc<AtomicU64>,
    tasks: JoinSet<Vec<Error>>,
    longest: Duration,
}

impl Load {
    /// Eight tasks on these names. No call may take longer than `longest`.
    pub(crate) fn start(
        backends: &[Arc<dyn Backend>],
        names: &[String],
        longest: Duration,
    ) -> Self {
        let mut load = Self {
            witness: Arc::default(),
            stop: Arc::default(),
            done: Arc::default(),
            failed: Arc::default(),
            lost: Arc::default(),
            tasks: JoinSet::new(),
            longest,
        };
        for number in 0..8 {
            let backend = Arc::clone(&backends[number % backends.len()]);
            let name = names[number % names.len()].clone();
            let task = load.task(backend, name);
            load.tasks.spawn(task);
        }
        load
    }

    fn task(
        &self,
        backend: Arc<dyn Backend>,
        name: String,
    ) -> impl Future<Output = Vec<Error>> + use<> {
        let (stop, done, failed) = (
            Arc::clone(&self.stop),
            Arc::clone(&self.done),
            Arc::clone(&self.failed),
        );
        let (lost, witness, longest) = (
            Arc::clone(&self.lost),
            Arc::clone(&self.witness),
            self.longest,
        );
        async move {
            let mut errors = Vec::new();
            while !stop.load(SeqCst) {
                let mut note = |error| {
                    failed.fetch_add(1, SeqCst);
                    errors.push(error);
                };
                let request = AcquireRequest::new(key(&name), Ttl::from_millis(60_000).unwrap());
                let start = Instant::now();
                let answer = carry_out(&backend, Operation::Acquire(request.unwrap())).await;
                assert!(start.elapsed() < longest, "{:?}", start.elapsed());
                let grant = match answer {
                    Ok(Outcome::Acquire(AcquireOutcome::Acquired(grant))) => grant,
                    Ok(_) => {
                        sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    Err(error) => {
                        note(error);
                        sleep(Duration::from_millis(5)).await;
                        continue;
                    }
                };
                witness.granted(&name, &grant[0]);
                tokio::task::yield_now().await;
                witness.given_up(&name);
                // The holder tries until the server has answered.
                let mut is_first = true;
                loop {
                    let start = Instant::now();
                    let release = Operation::Release([grant[0].lock_id.clone()].into());
                    let released = carry_out(&backend, release).await;
                    assert!(start.elapsed() < longest, "{:?}", start.elapsed());
                    match released {
                        Ok(Outcome::Release(outcomes))
                            if outcomes[0] == ReleaseOutcome::Released =>
                        {
                            break;
                        }
                        Ok(_) => {
                            // After an answer was lost, the lock may have been released by the first try.
                            if is_first {
                                lost.fetch_add(1, SeqCst);
                            }
                            break;
                        }
                        Err(error) => {
                            is_first = false;
                            note(error);
                            sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
                done.fetch_add(1, SeqCst);
            }
            errors
        }
    }

    /// Waits until the load has got some way further.
    pub(crate) async fn goes_on(&self) {
        grows(&self.done, 100).await;
    }

    /// Waits until the fault is felt.
    pub(crate) async fn fails(&self) {
        grows(&self.failed, 1).await;
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(SeqCst)
    }

    /// Ends the load and gives the errors.
    pub(crate) async fn end(self) -> LoadReport {
        self.stop.store(true, SeqCst);
        LoadReport {
            errors: self.tasks.join_all().await.into_iter().flatten().collect(),
            offences: std::mem::take(&mut *self.witness.offences.lock().unwrap()),
            lost: self.lost.load(SeqCst),
        }
    }
}

async fn carry_out(backend: &Arc<dyn Backend>, operation: Operation) -> Result<Outcome, Error> {
    operation::run(backend, operation, CallOptions::default(), pending()).await
}

/// What a load has met.
pub(crate) struct LoadReport {
    pub(crate) errors: Vec<Error>,
    pub(crate) offences: Vec<String>,
    pub(crate) lost: u64,
}

async fn grows(count: &AtomicU64, by: u64) {
    let (from, start) = (count.load(SeqCst), Instant::now());
    while count.load(SeqCst) < from + by {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing happens");
        sleep(Duration::from_millis(5)).await;
    }
}
