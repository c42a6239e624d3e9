//! Lock ids: the proof of ownership.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::random;
use crate::text::error::Error;

/// 16 bytes from the operating system's random number generator as 22 base64url characters
/// (docs/format.md, "Lock ids"). Whoever knows it can release and extend the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockId([u8; Self::LENGTH]);

impl LockId {
    /// The number of characters of a lock id.
    pub const LENGTH: usize = 22;

    /// A new, unique lock id.
    ///
    /// # Errors
    /// `Internal` when the operating system has no random numbers to give.
    pub fn generate() -> Result<Self, Error> {
        let mut text = [0; Self::LENGTH];
        // 16 bytes make exactly that many characters.
        let _ = URL_SAFE_NO_PAD.encode_slice(random::bytes()?, &mut text);
        Ok(Self(text))
    }

    /// Parses a lock id.
    ///
    /// # Errors
    /// `InvalidArgument` if `text` does not have the form of a lock id.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let is_base64url = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if let Ok(text) = <[u8; Self::LENGTH]>::try_from(text.as_bytes())
            && text.iter().all(is_base64url)
        {
            return Ok(Self(text));
        }
        Err(Error::invalid(format!(
            "Invalid lockId format. Expected {} base64url characters, got: {}",
            Self::LENGTH,
            described(text)
        )))
    }

    /// The lock id of the group that a store keeps under `name` (docs/format.md, "Shared locks"). Anybody can compute it, so it gives nobody a
    /// right. Its first byte is 0. In shards, Redis replaces it by the first byte of the reader's lock id.
    pub fn group(name: &str) -> Self {
        let digest = Sha256::digest(format!("shared:{name}"));
        let (mut bytes, mut text) = ([0; 16], [0; Self::LENGTH]);
        bytes[1..].copy_from_slice(&digest[..15]);
        // 16 bytes make exactly that many characters.
        let _ = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
        Self(text)
    }

    /// Whether this is the [group](Self::group) of that name, in whatever shard.
    pub(crate) fn is_group_of(&self, name: &str) -> bool {
        self.clone().with_first_byte(0) == Self::group(name)
    }

    /// The first of its bytes. In a Redis Cluster it says in which shard the lock is.
    pub(crate) fn first_byte(&self) -> u8 {
        self.head()[0]
    }

    /// The same lock id with another first byte.
    pub(crate) fn with_first_byte(mut self, byte: u8) -> Self {
        let [_, second, third] = self.head();
        // Three bytes make exactly four characters.
        let _ = URL_SAFE_NO_PAD.encode_slice([byte, second, third], &mut self.0[..4]);
        self
    }

    /// The first three bytes, as four characters.
    pub(crate) fn beginning(&self) -> &str {
        &self.as_str()[..4]
    }

    /// The same lock id with the first three bytes of another.
    pub(crate) fn beginning_as(mut self, other: &Self) -> Self {
        self.0[..4].copy_from_slice(&other.0[..4]);
        self
    }

    fn head(&self) -> [u8; 3] {
        let mut bytes = [0; 3];
        // Any four characters of the alphabet are three bytes.
        let _ = URL_SAFE_NO_PAD.decode_slice(&self.0[..4], &mut bytes);
        bytes
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        // All of them are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// What is wrong with a text that is no lock id. Not the text itself: with a line break at its end, it would be a lock id.
fn described(text: &str) -> String {
    match text.chars().count() {
        0 => "empty/null".to_owned(),
        LockId::LENGTH => format!(
            "a string of length {} with other characters",
            LockId::LENGTH
        ),
        length => format!("a string of length {length}"),
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    #[test]
    fn generated_ids_parse_and_differ() {
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|_| LockId::generate().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(LockId::parse(id.as_str()).unwrap(), id);
        }
    }

    #[test]
    fn the_first_byte_can_be_read_and_changed() {
        let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
        assert_eq!(id.first_byte(), 0x7f);
        assert_eq!(id.clone().with_first_byte(0x7f), id);
        for byte in 0..=255 {
            let id = LockId::generate().unwrap();
            let changed = id.clone().with_first_byte(byte);
            assert_eq!(changed.first_byte(), byte);
            assert_eq!(changed.as_str()[2..], id.as_str()[2..]);
            assert_eq!(changed.clone().with_first_byte(id.first_byte()), id);
            assert_eq!(LockId::parse(changed.as_str()).unwrap(), changed);
        }
    }

    #[test]
    fn a_group_has_the_id_of_its_name() {
        let group = LockId::group("catalogue");
        // SHA-256 of "shared:catalogue" begins with these bytes.
        assert_eq!(group.as_str(), "AEbQ3KZOrzKh7PqWNyEw2w");
        assert_eq!(group.first_byte(), 0);
        assert!(group.clone().with_first_byte(7).is_group_of("catalogue"));
        assert!(!group.is_group_of("catalogues"));
    }

    #[test]
    fn anything_else_is_refused_and_described_without_its_text() {
        for (text, got) in [
            ("", "empty/null"),
            ("short", "a string of length 5"),
            ("é", "a string of length 1"),
            (
                "AAAAAAAAAAAAAAAAAAAAA=",
                "a string of length 22 with other characters",
            ),
            ("AAAAAAAAAAAAAAAAAAAAAA\n", "a string of length 23"),
        ] {
            let error = LockId::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(
                error.message(),
                format!("Invalid lockId format. Expected 22 base64url characters, got: {got}")
            );
        }
    }

    #[test]
    fn debug_output_does_not_give_the_id_away() {
        let id = LockId::generate().unwrap();
        assert!(!format!("{id:?}").contains(id.as_str()));
    }
}
