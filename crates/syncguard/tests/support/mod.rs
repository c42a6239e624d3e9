//! What several suites share: how they run, the servers that they start, and short forms of what they
//! do most. What one store's suite alone needs is in that store's folder.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each suite uses its part"
)]

pub(crate) mod attempts;
pub(crate) mod certificates;
pub(crate) mod claims;
pub(crate) mod clients;
#[cfg(all(unix, feature = "redis"))]
pub(crate) mod event_loop;
pub(crate) mod failover;
pub(crate) mod held;
pub(crate) mod inputs;
pub(crate) mod link;
pub(crate) mod locks;
#[cfg(feature = "postgres")]
pub(crate) mod pgbouncer;
#[cfg(feature = "postgres")]
pub(crate) mod postgres_server;
pub(crate) mod precedence;
pub(crate) mod process;
pub(crate) mod readers;
pub(crate) mod redis_cluster;
pub(crate) mod redis_server;
pub(crate) mod resp;
pub(crate) mod sentinel_group;
pub(crate) mod suite;
pub(crate) mod waiters;
