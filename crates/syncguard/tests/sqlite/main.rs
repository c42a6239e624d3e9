//! What is SQLite's own: `cargo test --test sqlite`. The backend and its file: what it makes, what it
//! refuses, what it does when the operating system fails, and how several connections get along.
//!
//! Tests that need another user, a full disk or a process of their own run this program again, told
//! by its environment which scenario to play: see `child.rs`.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod access;
mod child;
mod claims;
mod cleanup;
mod creation;
mod held;
mod names;
mod refusal;
mod sharing;
mod stage;
#[path = "../support/mod.rs"]
mod support;
#[cfg(target_os = "linux")]
mod suspended;
mod wakeups;

use std::process::ExitCode;

fn main() -> ExitCode {
    if child::play() {
        return ExitCode::SUCCESS;
    }
    support::suite::run(&[
        ("access", access::TESTS),
        ("claims", claims::TESTS),
        ("cleanup", cleanup::TESTS),
        ("creation", creation::TESTS),
        ("held", held::TESTS),
        ("names", names::TESTS),
        ("refusal", refusal::TESTS),
        ("sharing", sharing::TESTS),
        #[cfg(target_os = "linux")]
        ("suspended", suspended::TESTS),
        ("wakeups", wakeups::TESTS),
    ])
}
