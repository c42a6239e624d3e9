//! How whoever waits hears that a lock was freed.

pub(super) mod listen;
pub(super) mod notify;
