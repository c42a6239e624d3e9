//! Keys, and the names under which stores keep them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::text::error::Error;
use crate::values::lock_id::LockId;

/// The longest key, in UTF-8 bytes after NFC (docs/format.md, "Core constants").
pub const MAX_KEY_LENGTH_BYTES: usize = 512;

/// Stands between a key and the number of a slot, or the lock id of a reader. It is the GREEK QUESTION MARK, which NFC turns into a semicolon.
/// Keys are in NFC, so that no key equals the name of a slot or of a reader.
const SLOT_MARK: char = '\u{37e}';

/// The most bytes that the number of a slot and the mark before it take.
const SLOT_BYTES: usize = 6;

/// Stands before the lock id in the name of a reader. No number of a slot begins with it.
const READER: char = 'r';

/// The name of what users lock: in NFC, not empty, at most [`MAX_KEY_LENGTH_BYTES`] long. Or the name of one of its
/// [slots](Self::slot), or of the lock of one of its [readers](Self::reader).
///
/// `Debug` and error messages never show its text: keys may contain names of people or accounts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// Normalises `text` and checks it.
    ///
    /// # Errors
    /// `InvalidArgument` when it is empty, or too long after normalisation.
    ///
    /// ```
    /// use syncguard::Key;
    /// assert_eq!(Key::new("cafe\u{301}")?.as_str(), "caf\u{e9}");
    /// # Ok::<(), syncguard::Error>(())
    /// ```
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(empty());
        }
        let text = nfc(text);
        if text.len() > MAX_KEY_LENGTH_BYTES {
            return Err(Error::invalid(format!(
                "Key exceeds maximum length of {MAX_KEY_LENGTH_BYTES} bytes after normalization"
            )));
        }
        Ok(Self(text.into_owned()))
    }

    /// Takes what a store has kept as the key of a lock. It may be the key of a slot or of a reader.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn stored(text: &str) -> Result<Self, Error> {
        match (split_slot(text), split_reader(text)) {
            (Some((base, number)), _) => Ok(Self::new(base)?.slot(number)),
            (None, Some((base, lock_id))) => Ok(Self::new(base)?.reader(&lock_id)),
            (None, None) => Self::new(text),
        }
    }

    /// The key of the slot with that number, which is a lock of its own: it can be looked for, looked up and released by
    /// force as any other (docs/format.md, "Slots").
    pub fn slot(&self, number: u16) -> Self {
        Self(format!("{}{SLOT_MARK}{number}", self.base()))
    }

    /// The key of the lock that a reader has for itself, under this lock id (docs/format.md, "Shared locks").
    pub fn reader(&self, lock_id: &LockId) -> Self {
        Self(of_reader(self.base(), lock_id))
    }

    /// The lock id in the key, if it is the key of a [reader](Self::reader).
    pub fn reader_id(&self) -> Option<LockId> {
        split_reader(&self.0).map(|(_, lock_id)| lock_id)
    }

    /// The key that the user has named.
    pub(crate) fn base_key(&self) -> Self {
        Self(self.base().to_owned())
    }

    /// The key of the gate, which whoever takes several slots of this key takes first, and who keeps readers out.
    pub(crate) fn gate(&self) -> Self {
        self.slot(GATE)
    }

    /// The number of the slot, if this is the key of one; 0 for the gate of a key, which is no slot (docs/format.md, "Slots").
    pub fn slot_number(&self) -> Option<u16> {
        split_slot(&self.0).map(|(_, number)| number)
    }

    /// What the user has named: the key, without what tells a slot or a reader.
    pub fn base(&self) -> &str {
        let slot = split_slot(&self.0).map(|(base, _)| base);
        let reader = || split_reader(&self.0).map(|(base, _)| base);
        slot.or_else(reader).unwrap_or(&self.0)
    }

    /// The normalised text, with what tells a slot or a reader.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of the gate of a key. Slots begin at 1.
pub(crate) const GATE: u16 = 0;

/// Splits the key of a slot, or its name in a store, into what stands before and the number. `None` for other texts.
pub(crate) fn split_slot(text: &str) -> Option<(&str, u16)> {
    let (base, number) = text.rsplit_once(SLOT_MARK)?;
    Some((base, number.parse().ok()?))
}

/// Splits the key of a reader, or its name in a store, into what stands before and the lock id. `None` for other texts.
pub(crate) fn split_reader(text: &str) -> Option<(&str, LockId)> {
    let (base, reader) = text.rsplit_once(SLOT_MARK)?;
    let lock_id = LockId::parse(reader.strip_prefix(READER)?);
    Some((base, lock_id.ok()?))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// The rules for the names under which one store keeps locks (docs/format.md, "Storage keys"), with that store's
/// limits.
#[derive(Debug, Clone, Copy)]
pub struct KeySpace<'a> {
    /// The first part of each name, followed by a `:`; empty for none.
    pub prefix: &'a str,
    /// The longest name that the store accepts, in bytes.
    pub limit_bytes: usize,
    /// Bytes of that limit to leave free for suffixes.
    pub reserve_bytes: usize,
}

impl KeySpace<'_> {
    /// The name of a lock.
    ///
    /// # Errors
    /// `InvalidArgument` when the prefix leaves no room.
    pub fn lock_key(&self, key: &Key) -> Result<String, Error> {
        if let Some((base, number)) = split_slot(key.as_str()) {
            return self.name(["", base], SLOT_BYTES).map(of_slot(number));
        }
        match split_reader(key.as_str()) {
            None => self.name(["", key.as_str()], 0),
            // All stores take 25 bytes more than the limit. So the name of a reader begins with the whole name of its key.
            Some((base, lock_id)) => Ok(of_reader(&self.name(["", base], 0)?, &lock_id)),
        }
    }

    /// What the names of all slots of a key begin with. What [`Key::slot`] puts behind a key follows.
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn slots_key(&self, key: &Key) -> Result<String, Error> {
        self.name(["", key.base()], SLOT_BYTES)
    }

    /// The name of the fence counter of the lock named `lock_key`. Each lock has a counter of its own, but readers have that of their key. The
    /// names of the counters of all slots begin with [`slots_fence_key`](Self::slots_fence_key).
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn fence_key(&self, lock_key: &str) -> Result<String, Error> {
        if let Some((base, number)) = split_slot(lock_key) {
            return self.slots_fence_key(base).map(of_slot(number));
        }
        let lock_key = split_reader(lock_key).map_or(lock_key, |(base, _)| base);
        self.name(["fence:", &nfc(lock_key)], 0)
    }

    /// What the names of the fence counters of all slots begin with. `slots_key` is what the names of the slots begin with.
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn slots_fence_key(&self, slots_key: &str) -> Result<String, Error> {
        self.name(["fence:", &nfc(slots_key)], SLOT_BYTES)
    }

    /// The name of the entry that leads from a lock id to its lock.
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn index_key(&self, lock_id: &str) -> Result<String, Error> {
        self.name(["id:", &nfc(lock_id)], 0)
    }

    fn name(&self, key: [&str; 2], reserve_bytes: usize) -> Result<String, Error> {
        let reserve_bytes = self.reserve_bytes + reserve_bytes;
        storage_key(self.prefix, key, self.limit_bytes, reserve_bytes)
    }
}

/// The range of the names of all slots, in the order of bytes: where it begins, and what comes after it.
pub(crate) fn slot_range(slots_key: &str) -> [String; 2] {
    const NEXT: char = '\u{37f}';
    [SLOT_MARK, NEXT].map(|mark| format!("{slots_key}{mark}"))
}

/// The name of the gate of the lock with this name, on a store that shortens no names.
pub(crate) fn gate_name(lock_key: &str) -> String {
    of_slot(GATE)(lock_key.to_owned())
}

/// The name that stands for all readers of a key: what their names begin with.
pub(crate) fn readers_name(lock_key: &str) -> String {
    format!("{lock_key}{SLOT_MARK}{READER}")
}

/// The name of the key whose readers this name stands for.
pub(crate) fn split_readers(text: &str) -> Option<&str> {
    text.strip_suffix(READER)?.strip_suffix(SLOT_MARK)
}

/// The range of the names of all readers, in the order of bytes: where it begins, and what comes after it.
pub(crate) fn readers_range(lock_key: &str) -> [String; 2] {
    const NEXT: char = 's';
    [READER, NEXT].map(|mark| format!("{lock_key}{SLOT_MARK}{mark}"))
}

/// Puts the number of a slot behind a name.
fn of_slot(number: u16) -> impl Fn(String) -> String {
    move |name| format!("{name}{SLOT_MARK}{number}")
}

/// The name of a reader's lock. `name` is that of its key.
fn of_reader(name: &str, lock_id: &LockId) -> String {
    format!("{name}{SLOT_MARK}{READER}{}", lock_id.as_str())
}

/// `prefix:key`, or `prefix:` and a hash of 22 characters where that is longer than
/// `limit_bytes - reserve_bytes`. The key is brought to NFC, the prefix loses its trailing colons.
///
/// The hash is base64url of the first 16 bytes of SHA-256 over `prefix:key`.
///
/// # Errors
/// `InvalidArgument` for an empty key, and for a prefix that leaves no room even for the hash.
pub fn make_storage_key(
    prefix: &str,
    key: &str,
    limit_bytes: usize,
    reserve_bytes: usize,
) -> Result<String, Error> {
    if key.is_empty() {
        return Err(empty());
    }
    storage_key(prefix, ["", &nfc(key)], limit_bytes, reserve_bytes)
}

/// The same for a key that is given in two parts, both in NFC.
fn storage_key(
    prefix: &str,
    key: [&str; 2],
    limit_bytes: usize,
    reserve_bytes: usize,
) -> Result<String, Error> {
    let prefix = prefix.trim_end_matches(':');
    let lead = if prefix.is_empty() {
        0
    } else {
        prefix.len() + 1
    };
    if lead.saturating_add(reserve_bytes) > limit_bytes {
        return Err(Error::invalid(
            "Prefix exceeds backend limit after accounting for reserved bytes. Use a shorter prefix.",
        ));
    }
    let room = limit_bytes - reserve_bytes;
    let mut name = String::with_capacity(lead + key[0].len() + key[1].len());
    if lead > 0 {
        name.push_str(prefix);
        name.push(':');
    }
    name.extend(key);
    if name.len() <= room {
        return Ok(name);
    }
    let digest = Sha256::digest(name.as_bytes());
    name.truncate(lead);
    name.push_str(&URL_SAFE_NO_PAD.encode(&digest[..16]));
    if name.len() > room {
        return Err(Error::invalid(
            "Key exceeds backend limits even after hashing (prefix too long).",
        ));
    }
    Ok(name)
}

/// `text` in Unicode normalisation form C; borrowed if it is in that form already, as most keys are.
pub(crate) fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().collect())
    }
}

fn empty() -> Error {
    Error::invalid("Key must not be empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_reader_is_that_of_its_key_and_its_lock_id() {
        let (key, id) = (Key::new("a").unwrap(), LockId::generate().unwrap());
        let reader = key.reader(&id);
        assert_eq!(reader.as_str(), format!("a\u{37e}r{}", id.as_str()));
        assert_eq!(reader.reader_id(), Some(id.clone()));
        assert_eq!((reader.base(), reader.slot_number()), ("a", None));
        assert_eq!(Key::stored(reader.as_str()).unwrap(), reader);
        assert_eq!(key.slot(3).reader(&id), reader);
        assert_eq!((key.slot(3).reader_id(), key.reader_id()), (None, None));
        // What a user names is no reader: NFC makes a semicolon of the mark.
        assert_eq!(Key::new(reader.as_str()).unwrap().reader_id(), None);
        assert_eq!(Key::stored("a\u{37e}rno-id").unwrap().reader_id(), None);
    }

    #[test]
    fn the_name_of_a_key_stands_in_the_names_of_its_readers() {
        let id = LockId::generate().unwrap();
        for length in [1, 41, 42, 43, 500] {
            let space = KeySpace {
                prefix: "app",
                limit_bytes: 72,
                reserve_bytes: 26,
            };
            let key = Key::new(&"k".repeat(length)).unwrap();
            let name = space.lock_key(&key).unwrap();
            let of_reader = space.lock_key(&key.reader(&id)).unwrap();
            assert_eq!(split_reader(&of_reader), Some((&*name, id.clone())));
            assert!(of_reader.len() <= space.limit_bytes);
            assert_eq!(
                space.fence_key(&of_reader).unwrap(),
                space.fence_key(&name).unwrap()
            );
        }
    }
}
