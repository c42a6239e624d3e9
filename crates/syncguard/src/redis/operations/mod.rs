//! The operations, a file each beside its script: what to send for it, and what the reply means.

pub mod acquire;
mod entrances;
pub mod extend;
pub(super) mod facts;
pub mod force_release;
pub mod holder;
pub mod is_locked;
mod known;
pub(super) mod list;
pub mod locate;
pub mod lookup_key;
pub mod lookup_lock_id;
pub mod record;
pub mod release;
pub(super) mod scripts;
mod steps;
