//! Waits for locks, in the same way for all stores and all languages.
//!
//! A [`waiter`] asks the store until it has the lock. Waiters of one process for the same lock stand in a line ([`queue`], [`ticket`]),
//! and only the first of them asks. It asks when the store says that the lock was freed ([`wakeups`]), when this process has released
//! it and nobody else seems to want it ([`hand_over`]), and when the lock would have ended by itself. Before it takes a lock again that
//! other processes want, it lets them ([`yielding`]). Because a message may be lost or
//! never sent, it also asks when the rules for polling say so ([`retry`]).

pub(crate) mod hand_over;
pub(crate) mod listener;
pub(crate) mod queue;
pub(crate) mod retry;
pub(crate) mod ticket;
mod topics;
pub(crate) mod waiter;
pub(crate) mod wakeups;
pub(crate) mod yielding;
