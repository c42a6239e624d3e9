//! The operations, a file each beside its script: what to send for it, and what the reply means.

pub mod acquire;
mod acquire_all;
mod batches;
mod eval;
pub mod extend;
pub(super) mod facts;
pub mod force_release;
pub mod holder;
pub mod is_locked;
pub(super) mod list;
pub mod locate;
pub mod lookup;
pub(super) mod mark;
mod primaries;
pub mod record;
pub mod release;
mod release_all;
mod release_done;
