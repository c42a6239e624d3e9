//! Who has a lock, and until when: guards, from the grant to the end.
//!
//! It knows how to wait, to call a store, and how locks extend themselves. Nothing of this crate may know it, and it must not
//! know any store.

pub(crate) mod guard;
mod lease_state;
pub(crate) mod lock;
pub(crate) mod once;
