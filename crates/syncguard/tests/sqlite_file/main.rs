//! The SQLite backend and its file: what it makes, what it refuses, what it does when the operating
//! system fails, and how several connections get along.
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
mod cleanup;
mod creation;
mod names;
mod refusal;
mod sharing;
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if child::play() {
        return ExitCode::SUCCESS;
    }
    let topics: [(&str, support::Topic); 6] = [
        ("creation", creation::TESTS),
        ("refusal", refusal::TESTS),
        ("access", access::TESTS),
        ("sharing", sharing::TESTS),
        ("names", names::TESTS),
        ("cleanup", cleanup::TESTS),
    ];
    let mut trials = Vec::new();
    for (topic, tests) in topics {
        for (name, test) in tests {
            trials.push(Trial::test(format!("{topic}::{name}"), move || {
                support::block_on(test());
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
