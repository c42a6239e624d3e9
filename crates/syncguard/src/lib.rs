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

mod backend;
mod batch;
mod check;
mod claim;
#[cfg(feature = "network")]
mod dial;
mod due;
mod error;
pub mod event_loop;
mod fence;
#[cfg(feature = "firestore")]
pub mod firestore;
mod granting;
mod guard;
mod hash;
mod holding;
mod inspection;
#[cfg(feature = "network")]
mod keepalive;
mod key;
mod labels;
mod loaded;
mod lock;
mod lock_id;
mod login;
mod mutex;
mod once;
pub mod operation;
mod outcome;
mod owner;
mod permits;
#[cfg(feature = "postgres")]
pub mod postgres;
mod race;
mod random;
mod redact;
#[cfg(feature = "redis")]
pub mod redis;
mod reply;
mod request;
mod sending;
mod shared;
#[cfg(test)]
#[path = "../../../verify/simulation/mod.rs"]
mod simulation;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod suggest;
mod time;
#[cfg(feature = "network")]
mod tls;
mod ttl;
mod undo;
mod waiting;
mod work;

pub use backend::{Backend, Capabilities, DEFAULT_OPERATION_TIMEOUT};
pub use batch::Batch;
pub use check::LockCheck;
pub use claim::{Claim, IntoClaims, MAX_CLAIMS, MAX_SLOTS, Slots};
pub use due::{DoneMark, Due, MarkChange};
pub use error::{Error, ErrorKind};
pub use event_loop::Lane;
pub use fence::{Fence, format_fence};
pub use futures_core::future::BoxFuture;
pub use guard::LockGuard;
pub use hash::{hash_key, hash_key_utf16};
pub use holding::{AutoExtend, Hold, Holder, Presence};
pub use inspection::{Fact, Facts, LockPage, LockRecord, Lookup, MAX_PAGE, PageRequest};
pub use key::{Key, KeySpace, MAX_KEY_LENGTH_BYTES, make_storage_key};
pub use labels::Labels;
pub use lock::{LockOptions, lock};
pub use lock_id::LockId;
pub use login::{Login, LoginSource};
pub use once::{OnceGuard, OnceOptions, OnceOutcome, once};
pub use outcome::{
    Absence, AcquireOutcome, EvalOutcome, ExtendOutcome, FromOutcome, Grant, Outcome,
    ReleaseOutcome,
};
pub use owner::Owner;
pub use permits::{Permit, Permits};
pub use reply::Reply;
pub use request::{AcquireRequest, Eval, Extension, Finish, Limit, Operation, ReleaseRequest};
pub use time::{
    Clock, Milliseconds, SystemClock, TIME_TOLERANCE_MS, TimeAuthority, is_live,
    redis_server_time_ms,
};
#[cfg(feature = "network")]
pub use tls::DefaultRoots;
pub use ttl::Ttl;
pub use waiting::retry::{Backoff, Jitter, RetryPolicy, Wait};
pub use waiting::waiter::{Granted, Waiter};
pub use waiting::wakeups::Watch;
pub use work::Work;
