//! Lock ids: the proof of ownership.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::Error;
use crate::random;

/// 16 bytes from the operating system's random number generator as 22 base64url characters
/// (docs/format.md, "Lock ids"). Whoever knows it can release and extend the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockId(String);

impl LockId {
    /// How many characters each has.
    pub const LENGTH: usize = 22;

    /// A new one, never seen before.
    ///
    /// # Errors
    /// `Internal` when the operating system has no random numbers to give.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random::bytes()?)))
    }

    /// Takes `text` if it has the form of a lock id.
    ///
    /// # Errors
    /// `InvalidArgument` otherwise.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fits = text.len() == Self::LENGTH
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if fits {
            return Ok(Self(text.to_owned()));
        }
        let got = if text.is_empty() { "empty/null" } else { text };
        Err(Error::invalid(format!(
            "Invalid lockId format. Expected {} base64url characters, got: {got}",
            Self::LENGTH
        )))
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        &self.0
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
