//! How bytes come and go: sockets, TLS, sessions, and the pool that hands them out.

pub(super) mod arrivals;
pub(super) mod connect;
pub(super) mod pool;
pub(super) mod quota;
pub(super) mod session;
pub(super) mod shared;
mod silence;
pub(super) mod stream;
mod tls;
