//! The operations, a file each beside its statements: functions that run inside a transaction.

pub(super) mod acquire;
pub(super) mod extend;
pub(super) mod facts;
pub(super) mod force_release;
mod group;
pub(super) mod is_locked;
mod labels;
pub(super) mod list;
pub(super) mod lookup;
pub(super) mod mark;
mod owned;
pub(super) mod release;
mod slots;
