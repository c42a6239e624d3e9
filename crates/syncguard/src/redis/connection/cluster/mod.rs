//! Knows which node of a cluster serves which hash slot, and has the connections to each.

pub(in crate::redis) mod redirect;
pub(in crate::redis) mod routes;
mod topology;
