//! Locks in PostgreSQL.
//!
//! Two tables hold them: one row a lock, and one row a key that was ever locked for its fence counter
//! (docs/format.md, "PostgreSQL"). [`PostgresBackend::setup_schema`] makes them. Each operation is one
//! statement and one round trip; the statements are the `.sql` files beside the operations. While most
//! connections of the pool are in use, up to 32 acquisitions or releases share one: a group waits for
//! no lock of the server's, and what would have to wait goes alone.
//!
//! # Who excludes whom
//!
//! An acquisition that does not see a live lock waits for the advisory lock
//! `pg_advisory_xact_lock(hashtext(storage key))`; in a group it takes it or goes alone. Writers that
//! read and then write in a transaction, as SyncGuard for TypeScript does, take the same one, so both
//! may share tables.
//!
//! An acquisition that is repeated with its lock id, as after an answer that was lost, is answered with
//! the lock as it was granted: no second fence is spent on it.
//!
//! # What a crash of the server may forget
//!
//! Acquisitions and extensions are answered when they are on disk, also where the session's
//! `synchronous_commit` is `off`: a fence is never given twice. A release is answered before, unless
//! [`PostgresOptions::durable_releases`] asks otherwise. A crash within a second of it may bring the
//! lock back, which then ends with its TTL; it never brings it back after somebody else was granted it.
//!
//! # Poolers
//!
//! Named prepared statements and session settings need a session of one's own. Each new connection is
//! asked whether its settings are in force; where they are not, as behind PgBouncer in transaction
//! mode, statements go unnamed, with their parameters' types, still in one round trip each. What the
//! isolation level of such a session then makes fail is tried again.

mod acquire;
mod config;
mod connect;
mod connection;
mod error;
mod extend;
mod fault;
mod force_release;
mod group;
mod is_locked;
mod liveness;
mod lookup;
mod names;
mod owner;
mod pool;
mod quota;
mod release;
mod reply;
mod runner;
mod schema;
mod statement;
mod stream;
mod tables;
mod tls;
mod url;
mod url_names;
mod watch;

/// The pure half of each operation: its plan (the statement to send) and its outcome (what the row means).
pub mod operations {
    pub use super::acquire::{Acquire, outcome as acquire_outcome};
    pub use super::extend::{Extend, outcome as extend_outcome};
    pub use super::force_release::{ForceRelease, outcome as force_release_outcome};
    pub use super::is_locked::{IsLocked, outcome as is_locked_outcome};
    pub use super::lookup::{Lookup, outcome as lookup_outcome};
    pub use super::names::Names;
    pub use super::release::{Release, outcome as release_outcome};
}

mod backend;

pub use backend::{PostgresBackend, PostgresOptions};
pub use config::{
    ChannelBinding, Host, Password, PasswordSource, Pem, PostgresConfig, SessionAttrs, SslMode,
    TcpSettings, Tls,
};
pub use connection::PostgresConnection;
pub use error::Failure;
pub use fault::{Fault, classify};
pub use names::KEYS;
pub use statement::{Param, Plan, Row, Statement, Transport};
pub use tables::Tables;
