//! What a store is asked, and what it answers: requests, outcomes, and the rules by which locks are granted.
//!
//! It knows values. It must not know who asks, how often, or by which way; nor any store.

pub(crate) mod check;
pub(crate) mod granting;
pub(crate) mod hold;
pub(crate) mod inspection;
pub(crate) mod limit;
pub(crate) mod outcome;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod sending;
