//! The operations, a file each: from the documents that were read and the time, the answer and the writes.

pub mod acquire;
pub mod extend;
pub mod force_release;
pub mod is_locked;
pub(super) mod list;
pub mod lookup;
mod owned;
pub mod release;
