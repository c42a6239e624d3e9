//! Connections to Redis servers: sockets, TLS, logins, and calls with their answers.

pub(super) mod cluster;
mod confirming;
mod connect;
mod diagnosis;
pub(super) mod limited;
pub(super) mod link;
mod liveness;
pub(super) mod pipeline;
mod reading;
pub(super) mod script_connection;
mod sentinel;
mod session;
mod socket;
pub(super) mod stream;
pub(super) mod target;
pub(super) mod term;
pub(super) mod tls;
