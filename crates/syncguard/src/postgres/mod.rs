//! Locks in PostgreSQL.
//!
//! Two tables hold them: one with a row for each lock, and one with a row for the fence counter of each key that
//! was ever locked (docs/format.md, "PostgreSQL"). [`PostgresBackend::setup_schema`] creates them. Each
//! operation is one statement and one round trip; the statements are the `.sql` files beside the operations.
//! While most connections of the pool are in use, up to 32 acquisitions, releases or heartbeats run as a group in one
//! statement. A group never waits for a lock in the server: a member that would have to wait runs alone.
//!
//! # Who excludes whom
//!
//! An acquisition that sees no live lock waits for the advisory lock
//! `pg_advisory_xact_lock(hashtext(storage key))`. In a group it does not wait: if the advisory lock is taken, it
//! runs alone. SyncGuard for TypeScript, which reads and then writes in one transaction, takes the same advisory
//! lock, so both may share tables.
//!
//! An acquisition may be repeated with the same lock id, for example after an answer was lost. Its answer is the
//! lock as it was granted: no second fence is spent on it.
//!
//! Several locks, and slots, are acquired by one statement (`acquire_all.sql`), all or none. It waits for the advisory locks of
//! all of them, in the order of their hashes, so that no two acquisitions wait for each other. An attempt whose snapshot
//! turns out to be old, because somebody else was granted one of the locks during the wait, has written nothing and is
//! repeated. Rows of several locks are locked in the order of their names, by whoever extends, releases or takes them. A
//! group has the acquisitions of single keys, and the releases and heartbeats of whole sets.
//!
//! A transaction of the application's own can check that locks are held, and keep them from being taken over until its end:
//! [`LockGuard::check_sql`](crate::LockGuard::check_sql). That locks the rows for a foreign key, so that extensions do not
//! wait for it. Whoever wants the lock when its time is over is told that it is held.
//!
//! With the crate `syncguard-clients`, a pool of the application's own will do instead of a connection of ours.
//!
//! # What a crash of the server may forget
//!
//! Acquisitions and extensions are answered once they are on disk, even if the session's `synchronous_commit` is
//! `off`, so no fence is ever given twice. A release is answered before that, unless
//! [`PostgresOptions::durable_releases`] is set. A crash within a second after it may bring the lock back, which
//! then ends with its TTL. It never comes back after somebody else was granted the lock.
//!
//! # Poolers
//!
//! Named prepared statements and session settings need a session that no other client uses. On each new
//! connection, the backend checks whether its settings are in force. If not, as behind PgBouncer in transaction
//! mode, it sends unnamed statements with their parameters' types, still in one round trip each. Such a session
//! may have a stricter isolation level: what fails because of that is tried again.

// Files depend in one direction: statements, settings and errors, connection/, wakeups/, and what runs the statements of
// operations/: runner, group, backend.
mod acquiring;
mod backend;
mod blocked;
mod changes;
mod config;
mod connection;
mod error;
mod fault;
mod group;
mod held;
mod names;
pub mod operations;
mod options;
mod product;
mod readers;
mod releasing;
mod reply;
mod row_security;
mod runner;
mod schema;
mod statement;
mod tables;
mod url;
mod url_names;
mod wakeups;

pub use crate::network::switches::SwitchListener;
pub use backend::{PostgresBackend, PostgresOptions};
pub use config::{
    ChannelBinding, Host, Password, Pem, PostgresConfig, SessionAttrs, SslMode, TcpSettings, Tls,
};
pub use connection::shared::PostgresConnection;
pub use error::Failure;
pub use fault::{Fault, classify};
pub use names::KEYS;
pub use operations::{STOP_TRANSACTION, check_failure};
pub use schema::schema_sql;
pub use statement::{Param, Plan, Row, Statement, Transport};
pub use tables::Tables;
