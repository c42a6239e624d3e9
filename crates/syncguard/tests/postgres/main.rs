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
mod claims;
mod clients;
mod connecting;
mod extensions;
mod faults;
mod fences;
mod fleet;
mod flights;
mod gate;
mod groups;
mod guards;
mod held;
mod labels;
mod limits;
mod listening;
mod load;
mod lookups;
mod lost;
mod mediator;
mod moved;
mod once;
mod promotion;
mod quota;
mod races;
mod refused_guards;
mod replication;
mod row_security;
mod rows;
mod scene;
mod schema;
mod sets;
mod settings;
mod shared;
mod shared_at_once;
mod silence;
mod slots;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod texts;
mod waits;
mod wakeups;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = support::suite::run(&[
        ("claims", claims::TESTS),
        ("clients", clients::TESTS),
        ("connecting", connecting::TESTS),
        ("extensions", extensions::TESTS),
        ("faults", faults::TESTS),
        ("fences", fences::TESTS),
        ("groups", groups::TESTS),
        ("guards", guards::TESTS),
        ("held", held::TESTS),
        ("labels", labels::TESTS),
        ("limits", limits::TESTS),
        ("listening", listening::TESTS),
        ("lookups", lookups::TESTS),
        ("lost", lost::TESTS),
        ("moved", moved::TESTS),
        ("once", once::TESTS),
        ("promotion", promotion::TESTS),
        ("quota", quota::TESTS),
        ("races", races::TESTS),
        ("refused_guards", refused_guards::TESTS),
        ("replication", replication::TESTS),
        ("row_security", row_security::TESTS),
        ("rows", rows::TESTS),
        ("schema", schema::TESTS),
        ("sets", sets::TESTS),
        ("settings", settings::TESTS),
        ("shared", shared::TESTS),
        ("shared_at_once", shared_at_once::TESTS),
        ("silence", silence::TESTS),
        ("slots", slots::TESTS),
        ("texts", texts::TESTS),
        ("waits", waits::TESTS),
        ("wakeups", wakeups::TESTS),
        ("wire", wire::TESTS),
    ]);
    stage::stop();
    outcome
}
