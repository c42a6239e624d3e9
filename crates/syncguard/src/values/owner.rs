//! Labels of locks.

use std::fmt;

use crate::text::error::Error;

/// A label stored with a lock for people and other systems to read: up to 255 bytes of UTF-8.
/// It proves nothing; only the lock id does.
#[derive(Clone, PartialEq, Eq)]
pub struct Owner(Box<str>);

impl Owner {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Takes `text` as a label.
    ///
    /// # Errors
    /// `InvalidArgument` when it is empty or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::invalid("owner must not be empty"));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "owner exceeds maximum length of {} bytes",
                Self::MAX_BYTES
            )));
        }
        Ok(Self(text.into()))
    }

    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_labels_have_bounds_and_stay_out_of_debug_output() {
        assert!(Owner::new("x".repeat(255)).is_ok());
        assert!(Owner::new("x".repeat(256)).is_err());
        assert!(Owner::new("é".repeat(128)).is_err());
        assert!(Owner::new("").is_err());
        assert!(!format!("{:?}", Owner::new("secret").unwrap()).contains("secret"));
    }
}
