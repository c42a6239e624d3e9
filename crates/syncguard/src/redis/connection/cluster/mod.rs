//! The nodes of a cluster: which of them serves which slot, and the connections to each.

pub(in crate::redis) mod redirect;
pub(in crate::redis) mod routes;
mod topology;
