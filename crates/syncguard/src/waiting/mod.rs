//! Waiting for a lock, the same for all stores.
//!
//! Those in one process who wait for the same key stand in a queue ([`turns`]), and only the first of them
//! asks the store. It asks when the store says that the lock was freed ([`wakeups`]), when the lock would have
//! ended by itself, and when the rules for polling say so ([`retry`]): a message may be lost, or not be sent.

pub(crate) mod listener;
pub(crate) mod retry;
pub(crate) mod turns;
pub(crate) mod wakeups;
