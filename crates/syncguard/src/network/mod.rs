//! Makes connections to servers, keeps them alive, encrypts and shares them.
//!
//! This room knows sockets, certificates, logins and event loops. It must not know what is sent over a connection, or any store.

#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod client_connections;
#[cfg(feature = "network")]
pub(crate) mod dial;
pub mod event_loop;
#[cfg(feature = "network")]
pub(crate) mod keepalive;
pub(crate) mod loaded;
pub(crate) mod login;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod losses;
pub(crate) mod shared;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod switches;
#[cfg(feature = "network")]
pub(crate) mod tls;
