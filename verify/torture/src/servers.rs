//! The servers that the library's own tests start.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "written for tests, which fail by panicking, and each use needs its part"
)]

#[path = "../../../crates/syncguard/tests/support/certificates.rs"]
pub(crate) mod certificates;
#[path = "../../../crates/syncguard/tests/support/pgbouncer.rs"]
pub(crate) mod pgbouncer;
#[path = "../../../crates/syncguard/tests/support/postgres_server.rs"]
pub(crate) mod postgres_server;
#[path = "../../../crates/syncguard/tests/support/process.rs"]
pub(crate) mod process;
#[path = "../../../crates/syncguard/tests/support/redis_cluster.rs"]
pub(crate) mod redis_cluster;
#[path = "../../../crates/syncguard/tests/support/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../../../crates/syncguard/tests/support/resp.rs"]
pub(crate) mod resp;
