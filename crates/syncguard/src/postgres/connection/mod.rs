//! How bytes come and go: sockets, TLS, sessions, and the pool that hands them out.

pub(super) mod arrivals;
pub(super) mod client;
pub(super) mod connect;
mod era;
mod hosts;
pub(super) mod pool;
mod primaries;
mod promotions;
pub(super) mod quota;
pub(super) mod session;
pub(super) mod shared;
mod silence;
pub(super) mod stream;
mod tls;
