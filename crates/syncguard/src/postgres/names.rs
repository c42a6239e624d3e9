//! The names under which a key is stored.

use crate::error::Error;
use crate::key::{Key, KeySpace};

/// Entries of a B-tree may have 2,704 bytes. The names take less, to leave room for headers and other columns
/// (docs/format.md, "Storage keys").
pub const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1700,
    reserve_bytes: 0,
};

/// The primary keys of a lock and of its fence counter.
#[derive(Clone, PartialEq, Eq)]
pub struct PrimaryKeys {
    /// `key` in the table of locks.
    pub lock: String,
    /// `fence_key` in the table of fence counters.
    pub fence: String,
}

impl PrimaryKeys {
    /// The names of `key`.
    ///
    /// # Errors
    /// As [`KeySpace::lock_key`]; no valid key is too long.
    pub fn new(key: &Key) -> Result<Self, Error> {
        let lock = lock_name(key)?;
        let fence = KEYS.fence_key(&lock)?;
        Ok(Self { lock, fence })
    }
}

/// The primary key of a lock alone.
pub(super) fn lock_name(key: &Key) -> Result<String, Error> {
    KEYS.lock_key(key)
}
