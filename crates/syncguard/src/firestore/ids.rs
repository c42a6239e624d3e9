//! The ids of a key's documents in Firestore.

use crate::text::error::Error;
use crate::values::key::{Key, KeySpace, split_reader, split_slot};
use crate::values::lock_id::LockId;

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

    /// That of the lock of all who share the key, in the collection of locks, if these are the ids of one of them.
    pub fn group(&self) -> Option<String> {
        group_of(&self.lock)
    }

    /// That of what is stored of the periods of the key, in the collection of fence counters: a document of its own, because
    /// whoever sets a counter replaces its document.
    pub fn mark(&self) -> String {
        format!("{}{MARK}done", self.counter)
    }
}

/// The ids of the locks on all slots of `key`, and on their gate, are from the first one on, before the second.
///
/// # Errors
/// As [`DocumentIds::of`].
pub(super) fn slot_ids(key: &Key) -> Result<[String; 2], Error> {
    let slots_key = KEYS.slots_key(key)?.replace('/', SLASH);
    Ok(['0', AFTER_NUMBERS].map(|first| format!("{slots_key}{MARK}{first}")))
}

/// The ids of the locks of those who share a key are from the first one on, before the second. `group` is that of the lock on the key.
pub(super) fn reader_ids(group: &str) -> [String; 2] {
    let name = group.strip_prefix(MARK).unwrap_or(group);
    [READER, AFTER_READER].map(|first| format!("{name}{MARK}{first}"))
}

/// The id of the lock on the key that `reader` shares with others, if that is the id of such a lock.
pub(super) fn group_of(reader: &str) -> Option<String> {
    let (name, reader) = reader.rsplit_once(MARK)?;
    LockId::parse(reader.strip_prefix(READER)?).ok()?;
    Some(unreserved(name.to_owned()))
}

/// The number of the slot that the id of a lock stands for.
pub(super) fn slot_number(id: &str) -> Option<u16> {
    id.rsplit_once(MARK)?.1.parse().ok()
}

/// What stands for a `/`, which ids cannot contain.
const SLASH: &str = "\u{37e}";
/// What stands in front of names that Firestore reserves, and in front of the number of a slot and what tells a mark.
const MARK: char = '\u{387}';
/// What comes after all numbers in the order of bytes, in which Firestore has ids.
const AFTER_NUMBERS: char = ':';
/// What the id of a reader begins with, and the next character.
const READER: char = 'r';
const AFTER_READER: char = 's';

/// `id` if Firestore allows it, else another id that it allows and that no other key has.
///
/// The mark before the number of a slot or the id of a reader, U+037E, becomes U+0387. Each `/` becomes U+037E, and U+0387 is put in front of
/// `.`, `..` and `__…__`. No other id contains these two characters: ids are in normalisation form C, which replaces the
/// first by `;` and the second by `·`. Both are two bytes long, so a key of 512 bytes still fits.
fn allowed(id: String) -> String {
    let id = match (split_slot(&id), split_reader(&id)) {
        (Some((slots_key, number)), _) => format!("{slots_key}{MARK}{number}"),
        (_, Some((key, lock_id))) => format!("{key}{MARK}{READER}{}", lock_id.as_str()),
        _ => id,
    };
    let id = if id.contains('/') {
        id.replace('/', SLASH)
    } else {
        id
    };
    unreserved(id)
}

/// `id`, or another one in the place of a name that Firestore reserves.
fn unreserved(id: String) -> String {
    match is_reserved(&id) {
        true => format!("{MARK}{id}"),
        false => id,
    }
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
    fn slots_have_ids_of_their_own_side_by_side() {
        let mut seen = HashSet::new();
        for key in [
            "a", "a/", "a/1", "a;1", "a·1", ".", "·.", "__a__", "·", "1", "/",
        ] {
            let key = Key::new(key).unwrap();
            let [from, before] = slot_ids(&key).unwrap();
            for number in [1, 2, 10, 999, 1000] {
                let DocumentIds { lock, counter } = DocumentIds::of(&key.slot(number)).unwrap();
                assert!(from < lock && lock < before, "{lock}");
                assert_eq!(slot_number(&lock), Some(number));
                assert!(!lock.contains('/') && !is_reserved(&lock), "{lock}");
                assert!(seen.insert(lock) && seen.insert(counter));
            }
            let DocumentIds { lock, counter } = DocumentIds::of(&key).unwrap();
            assert!(lock < from || lock >= before, "{lock}");
            assert!(seen.insert(lock) && seen.insert(counter));
        }
    }

    #[test]
    fn readers_have_ids_of_their_own_beside_the_slots() {
        let mut seen = HashSet::new();
        for key in ["a", "a/", "a/r", "a·r", ".", "·.", "__a__", "/", "r"] {
            let key = Key::new(key).unwrap();
            let DocumentIds { lock, counter } = DocumentIds::of(&key).unwrap();
            let ([from, before], slots) = (reader_ids(&lock), slot_ids(&key).unwrap());
            assert!(slots[1] < from && (lock < from || lock >= before));
            for _ in 0..20 {
                let lock_id = LockId::generate().unwrap();
                let reader = DocumentIds::of(&key.reader(&lock_id)).unwrap();
                assert!(from < reader.lock && reader.lock < before);
                assert_eq!(group_of(&reader.lock).as_ref(), Some(&lock));
                assert_eq!(
                    (&reader.counter, slot_number(&reader.lock)),
                    (&counter, None)
                );
                assert!(!reader.lock.contains('/') && !is_reserved(&reader.lock));
                assert!(seen.insert(reader.lock));
            }
            assert_eq!(group_of(&lock), None);
            assert_eq!(group_of(&DocumentIds::of(&key.gate()).unwrap().lock), None);
            assert!(seen.insert(lock));
        }
    }

    #[test]
    fn the_longest_keys_fit() {
        for key in [
            "/".repeat(512),
            "k".repeat(512),
            format!("__{}__", "/".repeat(508)),
        ] {
            let key = Key::new(&key).unwrap();
            for key in [key.slot(1000), key] {
                let DocumentIds { lock, counter } = DocumentIds::of(&key).unwrap();
                assert!(lock.len() <= 1500 && counter.len() <= 1500);
            }
        }
    }
}
