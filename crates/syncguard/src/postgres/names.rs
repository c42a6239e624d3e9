//! The names under which a key is stored.

use crate::text::error::Error;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::key::{Key, KeySpace};

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
    /// `InvalidArgument` for a key with U+0000; no valid key is too long.
    pub fn new(key: &Key) -> Result<Self, Error> {
        let lock = lock_name(key)?;
        let fence = KEYS.fence_key(&lock)?;
        Ok(Self { lock, fence })
    }
}

/// The names of the slots of `key`, and their keys, without the numbers at their ends.
pub(super) fn of_slots(key: &Key) -> Result<(PrimaryKeys, String), Error> {
    let first = key.slot(1);
    let names = PrimaryKeys::new(&first)?;
    let [lock, fence, key] =
        [names.lock, names.fence, first.as_str().to_owned()].map(|mut name| {
            name.pop();
            name
        });
    Ok((PrimaryKeys { lock, fence }, key))
}

/// The primary keys of all locks that may be granted for `claim`.
pub(super) fn all_of(claim: &Claim) -> Vec<String> {
    let names = match claim.kind {
        ClaimKind::Exclusive | ClaimKind::Shared => vec![lock_name(&claim.key)],
        ClaimKind::SlotOf(slots) => (1..=slots.count())
            .map(|number| lock_name(&claim.key.slot(number)))
            .collect(),
    };
    names.into_iter().flatten().collect()
}

/// The name under which the releases of a lock are told: that of its key, also for a slot.
pub(super) fn told_name(key: &Key) -> Result<String, Error> {
    KEYS.slots_key(key)
}

/// The primary key of a lock alone.
///
/// # Errors
/// As [`PrimaryKeys::new`].
pub(super) fn lock_name(key: &Key) -> Result<String, Error> {
    if key.as_str().contains('\0') {
        return Err(Error::invalid(
            "Key must not contain U+0000, which texts of PostgreSQL cannot hold: put another character there",
        ));
    }
    KEYS.lock_key(key)
}
