//! The backend of a store, what is under way on it, and what goes on after the answer, such as an undo.
//!
//! This room knows requests, heartbeats and the queues of waiters, because closing a backend ends all of them. It must not know how
//! a call is bounded, and neither guards nor any store.

pub(crate) mod backend;
pub(crate) mod permits;
pub(crate) mod undo;
pub(crate) mod work;
