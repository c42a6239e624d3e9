//! What is Redis' own: `cargo test --features redis --test redis`.
//!
//! Needs `redis-server` and `redis-sentinel` on this machine, and fails without them. Servers are
//! private: each test starts its own, and they end with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bursts;
mod claims;
mod clients;
mod connecting;
mod declared;
mod eval;
mod eval_held;
mod failovers;
mod fake;
mod faults;
mod fences;
mod foreign;
mod full;
mod held;
mod idle;
mod load;
mod losses;
mod readers;
mod refused;
mod replicas;
mod replies;
mod roles;
mod scripts;
mod sentinels;
mod shared;
mod silence;
mod slots;
mod stage;
mod stored;
#[path = "../support/mod.rs"]
mod support;
mod texts;
mod wakeups;
mod whole;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::suite::run(&[
        ("bursts", bursts::TESTS),
        ("claims", claims::TESTS),
        ("clients", clients::TESTS),
        ("connecting", connecting::TESTS),
        ("declared", declared::TESTS),
        ("eval", eval::TESTS),
        ("eval_held", eval_held::TESTS),
        ("failovers", failovers::TESTS),
        ("faults", faults::TESTS),
        ("fences", fences::TESTS),
        ("foreign", foreign::TESTS),
        ("full", full::TESTS),
        ("held", held::TESTS),
        ("idle", idle::TESTS),
        ("losses", losses::TESTS),
        ("readers", readers::TESTS),
        ("refused", refused::TESTS),
        ("replicas", replicas::TESTS),
        ("replies", replies::TESTS),
        ("roles", roles::TESTS),
        ("scripts", scripts::TESTS),
        ("sentinels", sentinels::TESTS),
        ("shared", shared::TESTS),
        ("silence", silence::TESTS),
        ("slots", slots::TESTS),
        ("stored", stored::TESTS),
        ("texts", texts::TESTS),
        ("wakeups", wakeups::TESTS),
        ("whole", whole::TESTS),
    ])
}
