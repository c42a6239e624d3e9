//! Asks objects of JavaScript: clients that backends drive, and logins.
//!
//! This room knows how a question gets to JavaScript and its answer back. It must not know any store.

pub(crate) mod bridge;
pub(crate) mod login;
