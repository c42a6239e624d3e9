//! The ids of a key's documents in Firestore.

use crate::error::Error;
use crate::key::{Key, KeySpace};

/// Document ids have up to 1500 bytes. No id is derived by appending to another, so nothing is reserved.
pub const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1500,
    reserve_bytes: 0,
};

/// The ids of the two documents that belong to a key.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentIds {
    /// In the collection of locks.
    pub lock: String,
    /// In the collection of fence counters.
    pub counter: String,
}

impl DocumentIds {
    /// The ids of `key`.
    ///
    /// # Errors
    /// As [`KeySpace::lock_key`]; keys are short enough never to cause one.
    pub fn of(key: &Key) -> Result<Self, Error> {
        let lock = KEYS.lock_key(key)?;
        let counter = KEYS.fence_key(&lock)?;
        Ok(Self {
            lock: allowed(lock),
            counter: allowed(counter),
        })
    }
}

/// `id` if Firestore allows it, else another id that it allows and that no other key has.
///
/// Each `/` becomes U+037E, and U+0387 is put in front of `.`, `..` and `__…__`. No other id contains these two
/// characters: ids are in normalisation form C, which replaces the first by `;` and the second by `·`. Both are two
/// bytes long, so a key of 512 bytes still fits.
fn allowed(id: String) -> String {
    const SLASH: &str = "\u{37e}";
    const RESERVED: char = '\u{387}';
    let id = if id.contains('/') {
        id.replace('/', SLASH)
    } else {
        id
    };
    if is_reserved(&id) {
        return format!("{RESERVED}{id}");
    }
    id
}

/// Whether Firestore reserves a name: `.`, `..` and `__…__`.
pub(super) fn is_reserved(name: &str) -> bool {
    let underscored = name.len() >= 4 && name.starts_with("__") && name.ends_with("__");
    matches!(name, "." | "..") || underscored
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn ids(key: &str) -> DocumentIds {
        DocumentIds::of(&Key::new(key).unwrap()).unwrap()
    }

    #[test]
    fn allowed_keys_are_ids_as_they_are() {
        for key in [
            "a",
            "payment:123",
            "...",
            "__a",
            "a__",
            "___",
            "käse;·",
            " ",
        ] {
            assert_eq!(ids(key).lock, key);
            assert_eq!(ids(key).counter, format!("fence:{key}"));
        }
    }

    #[test]
    fn forbidden_keys_get_ids_that_are_allowed_and_their_own() {
        let keys = [
            "/", "//", "a/b", "a;b", "a·b", ".", "..", "/.", "·.", "__a__", "/__a__", "____",
            "__/__", "__;__", ";__a__", "·__a__",
        ];
        let mut seen = HashSet::new();
        for key in keys {
            let DocumentIds { lock, counter } = ids(key);
            for id in [&lock, &counter] {
                assert!(!id.contains('/') && !is_reserved(id), "{id}");
                assert!(id.len() <= 1500);
            }
            assert!(seen.insert(lock) && seen.insert(counter), "{key}");
        }
    }

    #[test]
    fn the_longest_keys_fit() {
        for key in [
            "/".repeat(512),
            "k".repeat(512),
            format!("__{}__", "/".repeat(508)),
        ] {
            let DocumentIds { lock, counter } = ids(&key);
            assert!(lock.len() <= 1500 && counter.len() <= 1500);
        }
    }
}
