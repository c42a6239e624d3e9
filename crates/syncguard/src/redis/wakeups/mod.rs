//! How whoever waits hears that a lock was freed: on a connection to a server, or on one to each node of a cluster.

pub(super) mod cluster;
mod feed;
pub(super) mod listen;
