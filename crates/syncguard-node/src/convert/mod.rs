//! Turns values and errors of JavaScript into those of the core, and back.
//!
//! This room knows the core's types and Node-API. It must not know operations, clients or event loops.

pub(crate) mod error;
pub(crate) mod inspection;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod scripts;
