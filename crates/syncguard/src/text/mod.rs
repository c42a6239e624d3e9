//! What people read: errors, and the words in them.
//!
//! It knows what shows nothing of keys, lock ids, passwords and URLs. It must not know what a lock is, nor any store.

pub(crate) mod error;
pub(crate) mod login;
pub(crate) mod redact;
pub(crate) mod suggest;
