//! Everything that takes part in one run, and the trace of what happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use super::connection::Connection;
use super::plan::{FAULTS_END_MS, Plan};
use super::store::{Gone, Store};
use super::witness::Witness;
use crate::asking::outcome::{AcquireOutcome, ExtendOutcome, ReleaseOutcome};
use crate::asking::request::AcquireRequest;
use crate::mutex::lock;
use crate::text::error::Error;
use crate::values::key::Key;
use crate::values::lock_id::LockId;
use crate::values::time::TimeAuthority;
use crate::values::ttl::Ttl;

/// The store's clock at the start of a run, in milliseconds since the Unix epoch.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// More does not happen at one moment, unless something is repeated without a pause.
const MOST_AT_ONCE: u32 = 10_000;

/// The world, for all who take part.
#[derive(Clone)]
pub(super) struct Sim(Arc<Mutex<World>>);

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) rng: SmallRng,
    pub(super) start: Instant,
    pub(super) store: Store,
    /// What was added to the store's clock.
    pub(super) stepped_ms: i64,
    pub(super) links: Vec<Link>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) opened: u64,
    /// What the store has decided to tell, and to which connection.
    pub(super) told: Vec<(u64, String)>,
    pub(super) witness: Witness,
    trace: Trace,
}

/// The way of one process to the store.
#[derive(Default)]
pub(super) struct Link {
    /// How its clock differs from true time.
    pub(super) offset_ms: i64,
    pub(super) cut: Option<Cut>,
    /// The process has died: nothing of it reaches the store any more.
    pub(super) is_dead: bool,
    /// Its backend was closed: nothing may be sent any more.
    pub(super) is_shut: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) until: Instant,
    pub(super) how: How,
}

/// What becomes of calls while the network is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// They fail at once.
    Refused,
    /// They wait for a connection.
    Waiting,
    /// They are sent, and nothing comes back.
    Lost,
    /// They arrive once the network is back.
    Late,
}

impl Sim {
    pub(super) fn new(seed: u64, is_recorded: bool) -> Self {
        let (plan, rng) = Plan::new(seed);
        Self::of(plan, rng, is_recorded)
    }

    pub(super) fn of(plan: Plan, mut rng: SmallRng, is_recorded: bool) -> Self {
        let offset = |rng: &mut SmallRng| Link {
            offset_ms: rng.random_range(-100..=100),
            ..Link::default()
        };
        let start = Instant::now();
        Self(Arc::new(Mutex::new(World {
            links: (0..plan.processes).map(|_| offset(&mut rng)).collect(),
            store: Store::new(plan.forgets),
            witness: Witness::new(start, &plan),
            start,
            plan,
            rng,
            stepped_ms: 0,
            connections: BTreeMap::new(),
            opened: 0,
            told: Vec::new(),
            trace: Trace {
                hasher: DefaultHasher::new(),
                at_ms: 0,
                at_once: 0,
                lines: is_recorded.then(Vec::new),
            },
        })))
    }

    pub(super) fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        what(&mut lock(&self.0))
    }

    pub(super) fn random(&self, range: std::ops::Range<u64>) -> u64 {
        self.with(|world| world.rng.random_range(range))
    }

    pub(super) fn chance(&self, chance: f64) -> bool {
        self.with(|world| world.rng.random_bool(chance))
    }

    pub(super) fn note(&self, what: &'static str, numbers: &[u64]) {
        self.with(|world| world.note(what, numbers));
    }
}

impl World {
    pub(super) fn elapsed_ms(&self) -> u64 {
        let elapsed = self.start.elapsed().as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.plan.is_calm && self.elapsed_ms() < FAULTS_END_MS
    }

    /// The time by which a request of that process is decided.
    pub(super) fn now_ms(&self, process: usize) -> i64 {
        let elapsed_ms = i64::try_from(self.elapsed_ms()).unwrap_or(i64::MAX);
        match self.plan.authority {
            TimeAuthority::Client => EPOCH_MS + elapsed_ms + self.links[process].offset_ms,
            TimeAuthority::Server => {
                let drifted_ms = elapsed_ms * self.plan.drift_ppm / 1_000_000;
                EPOCH_MS + elapsed_ms + drifted_ms + self.stepped_ms
            }
        }
    }

    /// The way of a message between a process and the store.
    pub(super) fn way(&mut self) -> Duration {
        Duration::from_millis(self.rng.random_range(0..=self.plan.way_ms))
    }

    pub(super) fn is_cut(&self, process: usize) -> Option<Cut> {
        let cut = self.links[process].cut?;
        (cut.until > Instant::now()).then_some(cut)
    }

    pub(super) fn acquire(
        &mut self,
        process: usize,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let outcome = self.store.acquire(request, self.now_ms(process));
        self.settle(false);
        if let Ok(AcquireOutcome::Acquired(grants)) = &outcome {
            for (claim, grant) in request.claims.iter().zip(grants) {
                let id = self
                    .witness
                    .granted(&grant.key_of(claim), grant, request.ttl);
                self.note("granted", &[process as u64, id, grant.fence.get()]);
            }
        } else {
            self.note("held", &[process as u64]);
        }
        outcome
    }

    pub(super) fn release(&mut self, process: usize, lock_id: &LockId) -> ReleaseOutcome {
        let outcome = self.store.release(lock_id, self.now_ms(process));
        self.settle(false);
        outcome
    }

    pub(super) fn extend(
        &mut self,
        process: usize,
        lock_ids: &[LockId],
        ttl: Ttl,
        numbers: &[usize],
    ) -> ExtendOutcome {
        let outcome = self.store.extend(lock_ids, ttl, self.now_ms(process));
        let is_there = matches!(outcome, ExtendOutcome::Extended { .. });
        if is_there {
            self.witness.extended(lock_ids, numbers);
        }
        self.settle(false);
        self.note("extend", &[process as u64, u64::from(is_there)]);
        outcome
    }

    pub(super) fn force_release(&mut self, process: usize, key: &Key) -> bool {
        let was_held = self.store.force_release(key, self.now_ms(process));
        self.settle(true);
        was_held
    }

    /// Tells of what the last operation has freed, and notes what it has removed.
    fn settle(&mut self, is_forced: bool) {
        for key in std::mem::take(&mut self.store.freed) {
            self.tell(&key);
        }
        for gone in std::mem::take(&mut self.store.gone) {
            self.gone(&gone, is_forced);
        }
    }

    fn gone(&mut self, gone: &Gone, is_forced: bool) {
        let id = self.witness.gone(&gone.lock_id, gone.was_live, is_forced);
        self.note(
            "gone",
            &[id, u64::from(is_forced), u64::from(gone.was_live)],
        );
    }

    pub(super) fn note(&mut self, what: &'static str, numbers: &[u64]) {
        let at_ms = self.elapsed_ms();
        let trace = &mut self.trace;
        trace.at_once = match trace.at_ms == at_ms {
            true => trace.at_once + 1,
            false => 0,
        };
        trace.at_ms = at_ms;
        if trace.at_once >= MOST_AT_ONCE {
            // A task that panics is not always waited for.
            self.witness.problem("something goes round and round");
            panic!("something goes round and round");
        }
        trace.hasher.write_u64(at_ms);
        what.hash(&mut trace.hasher);
        numbers.hash(&mut trace.hasher);
        if let Some(lines) = &mut trace.lines {
            let mut line = format!("{at_ms:>6} {what}");
            for number in numbers {
                let _ = write!(line, " {number}");
            }
            lines.push(line);
        }
    }

    /// A number that differs whenever anything else happened, or happened at another time.
    pub(super) fn hash(&self) -> u64 {
        self.trace.hasher.finish()
    }

    pub(super) fn lines(&self) -> &[String] {
        self.trace.lines.as_deref().unwrap_or_default()
    }
}

struct Trace {
    hasher: DefaultHasher,
    at_ms: u64,
    at_once: u32,
    /// For people, if they want to read it.
    lines: Option<Vec<String>>,
}
