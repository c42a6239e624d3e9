//! What every backend must do, run against each of them: `cargo test --test behavior`.
//!
//! The tests are in one file per topic and know no backend. A new backend implements `Store` and
//! `Fixture` (see `fixture.rs`) and gets one line in [`stores`], and each further way to reach it one in [`ways`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod cancellation;
mod claims;
mod close;
mod concurrency;
mod contention;
mod expiration;
mod faulty;
mod fence;
mod fence_counter;
mod fence_limit;
#[cfg(feature = "firestore")]
mod firestore;
mod fixture;
mod force_release;
mod forrst;
mod gathering;
mod holding;
mod is_locked;
mod keys;
mod lifecycle;
mod listing;
mod lookup;
mod once;
mod owner;
mod ownership;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;
mod shared;
mod shared_waiting;
mod slots;
#[cfg(feature = "sqlite")]
mod sqlite;
#[path = "../support/mod.rs"]
mod support;
mod waiting;

use std::process::ExitCode;
use std::sync::Arc;

use fixture::{Stage, Store, Topic};
use libtest_mimic::{Arguments, Trial};
#[cfg(feature = "redis")]
use support::redis_server::Version;

/// Each store, reached as most do. Every test runs on each of them.
fn stores() -> Vec<Arc<dyn Store>> {
    vec![
        #[cfg(feature = "sqlite")]
        Arc::new(sqlite::OnFile),
        #[cfg(feature = "redis")]
        Arc::new(redis::Plain::default()),
        #[cfg(feature = "redis")]
        Arc::new(redis_cluster::InCluster::of(
            "redis_cluster",
            Version::Installed,
        )),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::Postgres::Tcp),
        #[cfg(feature = "firestore")]
        Arc::new(firestore::OnEmulator::default()),
    ]
}

/// Other ways to a store, and other servers. The tests take turns with them: each runs on one, and on all of them in
/// `npm run test:all`.
fn ways() -> Vec<Arc<dyn Store>> {
    vec![
        #[cfg(feature = "sqlite")]
        Arc::new(sqlite::InMemory),
        #[cfg(feature = "redis")]
        Arc::new(redis::Oldest::default()),
        #[cfg(feature = "redis")]
        Arc::new(redis::TlsWithAcl::default()),
        #[cfg(feature = "redis")]
        Arc::new(redis::BySentinel::default()),
        #[cfg(all(unix, feature = "redis"))]
        Arc::new(redis::OnEventLoop::default()),
        Arc::new(redis::ByFred::default()),
        Arc::new(redis::ByFredPool::default()),
        Arc::new(redis::ByRedisRs::default()),
        #[cfg(feature = "redis")]
        Arc::new(redis_cluster::InCluster::of(
            "redis_cluster_6_2",
            Version::Oldest,
        )),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::Postgres::Tls),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::Postgres::Unix),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::Postgres::PgBouncer),
        Arc::new(postgres::Postgres::Deadpool),
        Arc::new(postgres::Postgres::DeadpoolAndPgBouncer),
        Arc::new(firestore::ByFirestoreDb::default()),
    ]
}

fn topics() -> Vec<(&'static str, Topic)> {
    vec![
        ("lifecycle", lifecycle::TESTS),
        ("claims", claims::TESTS),
        ("slots", slots::TESTS),
        ("shared", shared::TESTS),
        ("shared_waiting", shared_waiting::TESTS),
        ("contention", contention::TESTS),
        ("expiration", expiration::TESTS),
        ("ownership", ownership::TESTS),
        ("fence", fence::TESTS),
        ("fence_counter", fence_counter::TESTS),
        ("fence_limit", fence_limit::TESTS),
        ("lookup", lookup::TESTS),
        ("listing", listing::TESTS),
        ("is_locked", is_locked::TESTS),
        ("force_release", force_release::TESTS),
        ("once", once::TESTS),
        ("owner", owner::TESTS),
        ("keys", keys::TESTS),
        ("cancellation", cancellation::TESTS),
        ("waiting", waiting::TESTS),
        ("gathering", gathering::TESTS),
        ("holding", holding::TESTS),
        ("concurrency", concurrency::TESTS),
        ("close", close::TESTS),
        ("forrst", forrst::TESTS),
    ]
}

fn main() -> ExitCode {
    let (stores, ways) = (stores(), ways());
    let everywhere = std::env::var_os("SYNCGUARD_TESTS").is_some_and(|which| which == "all");
    let mut trials = Vec::new();
    let mut turn = 0;
    for (topic, tests) in topics() {
        for (name, needs, test) in tests {
            let fits = |store: &&Arc<dyn Store>| needs.are_met_by(store.as_ref());
            let mut places: Vec<_> = stores.iter().filter(fits).collect();
            if everywhere {
                places.extend(ways.iter().filter(fits));
            } else {
                places.extend(ways.iter().cycle().skip(turn).take(ways.len()).find(fits));
                turn = (turn + 1) % ways.len().max(1);
            }
            for store in places {
                let name = format!("{}::{topic}::{name}", store.name());
                let stage = Stage::new(Arc::clone(store), &name);
                trials.push(Trial::test(name, move || {
                    support::suite::block_on(test(stage));
                    Ok(())
                }));
            }
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    for store in stores.into_iter().chain(ways) {
        store.stop();
    }
    conclusion.exit_code()
}
