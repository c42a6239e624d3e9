//! The operations, a file each: from the documents that were read and the time, the answer and the writes.

pub(super) mod acquire;
pub(super) mod extend;
pub(super) mod force_release;
mod group;
pub(super) mod is_locked;
pub(super) mod list;
pub(super) mod lookup;
pub(super) mod mark;
mod owned;
pub(super) mod release;
