//! What is Firestore's own: `cargo test --features firestore --test firestore`.
//!
//! Each test starts an emulator of its own, within this process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod claims;
mod clients;
mod clocks;
mod documents;
mod faults;
mod fields;
mod mediator;
mod secured;
mod shared;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod transactions;
mod wakeups;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::suite::run(&[
        ("claims", claims::TESTS),
        ("clients", clients::TESTS),
        ("clocks", clocks::TESTS),
        ("documents", documents::TESTS),
        ("faults", faults::TESTS),
        ("fields", fields::TESTS),
        ("secured", secured::TESTS),
        ("shared", shared::TESTS),
        ("transactions", transactions::TESTS),
        ("wakeups", wakeups::TESTS),
    ])
}
