//! Backends of [`syncguard`] over clients that an application has already.
//!
//! Each feature has a module of its name, in which `backend` makes the backend:
//!
//! | feature             | over                                                                           |
//! | ------------------- | ------------------------------------------------------------------------------ |
//! | `fred`              | a client or a pool of `fred` 10.1                                              |
//! | `redis-rs`          | an asynchronous connection of `redis` 1                                        |
//! | `deadpool-postgres` | a pool of `deadpool-postgres` 0.14                                             |
//! | `firestore-db`      | a client of the crate `firestore` 0.61                                         |
//!
//! The feature `tokio-postgres` is no backend: its module checks locks in transactions of `tokio-postgres` 0.7.
//!
//! The client stays the application's: closing the backend does not close it. The locks are those of connections of
//! syncguard's own: the same scripts, statements and calls go over the client, by way of the `Transport` of the store
//! ([Redis](syncguard::redis::Transport), [PostgreSQL](syncguard::postgres::Transport)) or the
//! [channel](syncguard::firestore::Channel) to Firestore, which is also how to write a backend over another client.
//! Waiters poll, because the store tells these clients of no releases.

// In tests, each assertion counts as a branch.
#![cfg_attr(not(test), warn(clippy::cognitive_complexity))]

#[cfg(feature = "deadpool-postgres")]
pub mod deadpool_postgres;
#[cfg(feature = "firestore-db")]
pub mod firestore_db;
#[cfg(feature = "fred")]
pub mod fred;
#[cfg(feature = "redis-rs")]
pub mod redis_rs;
#[cfg(any(feature = "fred", feature = "redis-rs"))]
mod scripts;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
