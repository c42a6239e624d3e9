//! What a seed decides before its run: how many take part, what the store is like, and how bad the network is.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::values::time::TimeAuthority;

/// How long faults go on, in milliseconds. After that the network is good, and nothing steps or stalls any more.
pub(super) const FAULTS_END_MS: u64 = 12_000;

/// What is the same for the whole run of one seed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) processes: usize,
    pub(super) clients: usize,
    pub(super) keys: usize,
    /// Whether clients ask for several keys at once.
    pub(super) sets: bool,
    /// How many slots there are of one more key; 0 if there is none.
    pub(super) slots: u16,
    /// Whether some clients share the keys.
    pub(super) readers: bool,
    pub(super) actions: usize,
    /// Nothing fails, and nobody forces a release: then no lock that extends itself may be lost.
    pub(super) is_calm: bool,
    pub(super) authority: TimeAuthority,
    /// Whether the store forgets locks that have ended.
    pub(super) forgets: bool,
    /// Whether the store tells of locks that were freed.
    pub(super) tells: bool,
    /// Whether clients send a call again whose connection was lost.
    pub(super) repeats: bool,
    pub(super) operation_timeout: Duration,
    pub(super) heartbeats_at_once: usize,
    /// The longest usual way to the store, in milliseconds.
    pub(super) way_ms: u64,
    /// Of a thousand calls, so many go wrong.
    pub(super) faults: u32,
    /// How fast the store's clock goes: so many millionths too fast.
    pub(super) drift_ppm: i64,
    /// Whether clocks are set, machines stand still, connections are cut, processes close or die.
    pub(super) steps: bool,
    pub(super) stalls: bool,
    pub(super) cuts: bool,
    pub(super) closes: bool,
    pub(super) crashes: bool,
    pub(super) forces: bool,
}

impl Plan {
    pub(super) fn new(seed: u64) -> (Self, SmallRng) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let is_calm = rng.random_bool(0.15);
        let mut rarely = |chance: f64| !is_calm && rng.random_bool(chance);
        let (steps, stalls, cuts) = (rarely(0.1), rarely(0.15), rarely(0.4));
        let (closes, crashes, forces) = (rarely(0.2), rarely(0.2), rarely(0.4));
        let has_faults = rarely(0.8);
        let is_client_clock = rng.random_bool(0.2);
        // Of its own, so that a seed without them stays the run that it was.
        let mut more = SmallRng::seed_from_u64(!seed);
        let sets = more.random_bool(0.3);
        let slots = match more.random_bool(0.3) {
            true => more.random_range(1..=3),
            false => 0,
        };
        let readers = more.random_bool(0.3);
        let processes = rng.random_range(1..=3);
        let clients = rng.random_range(1..=3);
        let keys = if rng.random_bool(0.8) { 1 } else { 2 };
        let plan = Self {
            processes,
            clients,
            keys: if sets { 3 } else { keys },
            sets,
            slots,
            readers,
            actions: rng.random_range(1..=3),
            is_calm,
            authority: match is_client_clock {
                true => TimeAuthority::Client,
                false => TimeAuthority::Server,
            },
            forgets: !is_client_clock && rng.random_bool(0.5),
            tells: rng.random_bool(0.85),
            repeats: rng.random_bool(0.5),
            operation_timeout: Duration::from_millis(rng.random_range(500..=5000)),
            heartbeats_at_once: rng.random_range(1..=64),
            way_ms: [0, 1, 3, 20][rng.random_range(0..4)],
            faults: if has_faults {
                rng.random_range(1..=300)
            } else {
                0
            },
            drift_ppm: rng.random_range(-300..=300),
            steps,
            stalls,
            cuts,
            closes,
            crashes,
            forces,
        };
        (plan, rng)
    }
}
