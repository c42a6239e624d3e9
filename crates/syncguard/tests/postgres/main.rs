//! What is PostgreSQL's own: `cargo test --features postgres --test postgres`.
//!
//! Needs PostgreSQL's programs and PgBouncer on this machine, and fails without them. Servers are
//! private and end with the tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod canonical;
mod connecting;
mod faults;
mod fleet;
mod groups;
mod labels;
mod lost;
mod mediator;
#[path = "../support/postgres_server.rs"]
mod postgres_server;
mod proxy;
mod races;
mod schema;
mod share;
mod silence;
mod support;
mod waits;
mod wire;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let topics = [
        ("connecting", connecting::TESTS),
        ("faults", faults::TESTS),
        ("groups", groups::TESTS),
        ("labels", labels::TESTS),
        ("lost", lost::TESTS),
        ("races", races::TESTS),
        ("schema", schema::TESTS),
        ("share", share::TESTS),
        ("silence", silence::TESTS),
        ("waits", waits::TESTS),
        ("wire", wire::TESTS),
    ];
    let mut trials = Vec::new();
    for (topic, tests) in topics {
        for (name, test) in tests {
            trials.push(Trial::test(format!("{topic}::{name}"), move || {
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()?
                    .block_on(test());
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    support::stop();
    conclusion.exit_code()
}
