//! Keys, and the names under which stores keep them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::text::error::Error;

/// The longest key, in UTF-8 bytes after NFC (docs/format.md, "Core constants").
pub const MAX_KEY_LENGTH_BYTES: usize = 512;

/// What stands between a key and the number of one of its slots: GREEK QUESTION MARK, which NFC turns into a semicolon.
/// Keys are in NFC, so that no key equals the name of a slot.
const SLOT_MARK: char = '\u{37e}';

/// The most bytes that the number of a slot and the mark before it take.
const SLOT_BYTES: usize = 6;

/// The name of what users lock: in NFC, not empty, at most [`MAX_KEY_LENGTH_BYTES`] long. Or the name of one of its
/// [slots](Self::slot).
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

    /// What stores have kept as the key of a lock, which may be that of a slot.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn stored(text: &str) -> Result<Self, Error> {
        match split_slot(text) {
            Some((base, number)) => Ok(Self::new(base)?.slot(number)),
            None => Self::new(text),
        }
    }

    /// The key of the slot with that number, which is a lock of its own: it can be looked for, looked up and released by
    /// force as any other (docs/format.md, "Slots").
    pub fn slot(&self, number: u16) -> Self {
        Self(format!("{}{SLOT_MARK}{number}", self.base()))
    }

    /// The key of the gate to all slots of this key.
    pub(crate) fn gate(&self) -> Self {
        self.slot(GATE)
    }

    /// The number of the slot, if this is the key of one.
    pub fn slot_number(&self) -> Option<u16> {
        split_slot(&self.0).map(|(_, number)| number)
    }

    /// What the user has named: the key, or that of the slot.
    pub fn base(&self) -> &str {
        split_slot(&self.0).map_or(&self.0, |(base, _)| base)
    }

    /// The normalised text, with what tells a slot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of the gate to all slots of a key: slots begin at 1.
pub(crate) const GATE: u16 = 0;

/// The name of the key and the number, of a text that ends as the key of a slot does.
pub(crate) fn split_slot(text: &str) -> Option<(&str, u16)> {
    let (base, number) = text.rsplit_once(SLOT_MARK)?;
    Some((base, number.parse().ok()?))
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
        match split_slot(key.as_str()) {
            None => self.name(["", key.as_str()], 0),
            Some((base, number)) => self.name(["", base], SLOT_BYTES).map(of_slot(number)),
        }
    }

    /// The name of the key of slots, which the names of all slots begin with: what follows is what [`Key::slot`] puts
    /// behind a key.
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn slots_key(&self, key: &Key) -> Result<String, Error> {
        self.name(["", key.base()], SLOT_BYTES)
    }

    /// The name of the fence counter of the lock named `lock_key`. Each lock has one counter. Those of slots, too, begin
    /// with one and the same text: the name of the counter of [`slots_key`](Self::slots_key).
    ///
    /// # Errors
    /// As [`lock_key`](Self::lock_key).
    pub fn fence_key(&self, lock_key: &str) -> Result<String, Error> {
        match split_slot(lock_key) {
            None => self.name(["fence:", &nfc(lock_key)], 0),
            Some((base, number)) => self.slots_fence_key(base).map(of_slot(number)),
        }
    }

    /// What the names of the fence counters of slots begin with whose key has the name `slots_key`.
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

/// What the names of all slots begin with, and what comes after all of them in the order of bytes.
pub(crate) fn slot_range(slots_key: &str) -> [String; 2] {
    const NEXT: char = '\u{37f}';
    [SLOT_MARK, NEXT].map(|mark| format!("{slots_key}{mark}"))
}

/// Puts the number of a slot behind a name.
fn of_slot(number: u16) -> impl Fn(String) -> String {
    move |name| format!("{name}{SLOT_MARK}{number}")
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
