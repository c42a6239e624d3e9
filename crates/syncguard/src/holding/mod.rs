//! Who has a lock, and until when: guards, from the grant to the end.
//!
//! This room knows how to wait, how to call a store, and how locks extend themselves. It must not know any store, and no other
//! part of this crate may know this room.

pub(crate) mod guard;
mod lease_state;
pub(crate) mod lock;
pub(crate) mod once;
