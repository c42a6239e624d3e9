//! Takes operations from JavaScript, runs them on the core, and cancels them.
//!
//! This room knows backends and environments of JavaScript. It must not know one store from another.

pub(crate) mod backend;
mod cancel;
pub(crate) mod environment;
pub(crate) mod holder;
pub(crate) mod operations;
pub(crate) mod watch;
