//! What a store is asked, and what it answers: requests, outcomes, and the rules by which locks are granted.
//!
//! This room knows values. It must not know who asks, how often or in which way, or any store.

pub(crate) mod check;
pub(crate) mod granting;
pub(crate) mod hold;
pub(crate) mod inspection;
pub(crate) mod limit;
pub(crate) mod outcome;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod sending;
