//! What a user names: keys, claims, times, owners. Each is checked when it is made, and never again.
//!
//! It knows the rules for each value, and errors. It must not know what is done with a value, nor any store.

pub(crate) mod batch;
pub(crate) mod claim;
pub(crate) mod due;
pub(crate) mod fence;
pub(crate) mod hash;
pub(crate) mod key;
pub(crate) mod labels;
pub(crate) mod lock_id;
pub(crate) mod owner;
mod period;
pub(crate) mod time;
pub(crate) mod ttl;
