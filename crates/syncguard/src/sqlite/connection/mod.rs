//! The file and the one connection to it: how it is opened, and the thread that runs transactions on it.

mod file;
mod file_system;
pub(super) mod queue;
mod releases;
pub(super) mod schema;
pub(super) mod sole_copy;
pub(super) mod store;
pub(super) mod worker;
