//! Lock ids: the proof of ownership.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::Error;
use crate::random;

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
        let got = if text.is_empty() { "empty/null" } else { text };
        Err(Error::invalid(format!(
            "Invalid lockId format. Expected {} base64url characters, got: {got}",
            Self::LENGTH
        )))
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        // All of them are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
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
    use crate::error::ErrorKind;

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
    fn anything_else_is_refused_and_said() {
        for (text, got) in [
            ("", "empty/null"),
            ("short", "short"),
            ("AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAA="),
            ("AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA"),
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
