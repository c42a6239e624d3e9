//! Distributed locks with fencing tokens.
//!
//! A [`Backend`] is a store of locks. [`lock`] waits for a lock and gives a [`LockGuard`]; the
//! [`operation::run`] makes a single attempt.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), syncguard::Error> {
//! use std::sync::Arc;
//! use syncguard::sqlite::{SqliteBackend, SqliteConfig};
//! use syncguard::{Backend, Key, LockOptions, lock};
//!
//! let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
//! let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
//! assert_eq!(guard.fence().to_string().len(), 15);
//! guard.release().await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! A lock alone does not make a resource safe: a holder that was paused for longer than its TTL goes on as if it
//! still held the lock. Pass the [`Fence`] to the resource, and let the resource refuse smaller ones.

// In tests, each assertion counts as a branch.
#![cfg_attr(not(test), warn(clippy::cognitive_complexity))]
// What one of the stores needs may be of no use to those that are compiled.
#![cfg_attr(
    not(all(
        feature = "redis",
        feature = "postgres",
        feature = "firestore",
        feature = "sqlite"
    )),
    allow(dead_code)
)]

// From the lowest room up: each uses those before it (scripts/lib/rust-rooms.mjs).
mod clock;
mod mutex;
mod race;
mod random;
mod text;

mod values;

mod network;

mod asking;

mod heartbeats;
mod waiting;

mod background;

pub mod operation;

mod holding;

#[cfg(feature = "firestore")]
pub mod firestore;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(test)]
#[path = "../../../verify/simulation/mod.rs"]
mod simulation;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use asking::check::LockCheck;
pub use asking::hold::{AutoExtend, Hold, Holder, Presence};
pub use asking::inspection::{Fact, Facts, LockPage, LockRecord, Lookup, MAX_PAGE, PageRequest};
pub use asking::limit::Limit;
pub use asking::outcome::{
    Absence, AcquireOutcome, EvalOutcome, ExtendOutcome, FromOutcome, Grant, Outcome,
    ReleaseOutcome,
};
pub use asking::reply::Reply;
pub use asking::request::{AcquireRequest, Eval, Extension, Finish, Operation, ReleaseRequest};
pub use asking::sending::Sending;
pub use background::backend::{Backend, Capabilities, DEFAULT_OPERATION_TIMEOUT};
pub use background::permits::{Permit, Permits};
pub use background::work::Work;
pub use clock::now as lock_time;
pub use futures_core::future::BoxFuture;
pub use holding::guard::LockGuard;
pub use holding::lock::{LockOptions, lock};
pub use holding::once::{OnceGuard, OnceOptions, OnceOutcome, once};
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use network::client_connections::ClientConnections;
pub use network::event_loop::{self, Lane};
pub use network::login::{Login, LoginSource};
#[cfg(feature = "network")]
pub use network::tls::DefaultRoots;
pub use text::error::{Busy, Error, ErrorKind};
pub use values::batch::Batch;
pub use values::claim::{Claim, ClaimKind, IntoClaims, MAX_CLAIMS, MAX_SLOTS, Slots};
pub use values::due::{DoneMark, Due, MarkChange};
pub use values::fence::{Fence, format_fence};
pub use values::hash::{hash_key, hash_key_utf16};
pub use values::key::{Key, KeySpace, MAX_KEY_LENGTH_BYTES, make_storage_key};
pub use values::labels::Labels;
pub use values::lock_id::LockId;
pub use values::owner::Owner;
pub use values::time::{
    Clock, Milliseconds, SystemClock, TIME_TOLERANCE_MS, TimeAuthority, is_live,
    redis_server_time_ms,
};
pub use values::ttl::Ttl;
pub use waiting::retry::{Backoff, Jitter, RetryPolicy, Wait};
pub use waiting::waiter::{Granted, Waiter};
pub use waiting::wakeups::Watch;
