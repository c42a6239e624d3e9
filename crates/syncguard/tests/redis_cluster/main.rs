//! What is Redis Cluster's own: `cargo test --features redis --test redis_cluster`.
//!
//! Needs `redis-server` on this machine, and fails without it. Clusters are private: each test starts its own, and they
//! end with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod answers;
mod claims;
mod connecting;
mod eval;
mod failover;
#[allow(dead_code, reason = "this suite uses its part")]
#[path = "../redis/fake.rs"]
mod fake;
mod layout;
mod moving;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod wakeups;
mod witness;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::suite::run(&[
        ("answers", answers::TESTS),
        ("claims", claims::TESTS),
        ("connecting", connecting::TESTS),
        ("eval", eval::TESTS),
        ("failover", failover::TESTS),
        ("layout", layout::TESTS),
        ("moving", moving::TESTS),
        ("wakeups", wakeups::TESTS),
    ])
}
