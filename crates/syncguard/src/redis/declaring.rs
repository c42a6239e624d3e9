//! Servers that let a script touch only the keys that its call declares, as Dragonfly does unless it is told otherwise, and which
//! calls declare more because of that.
//!
//! Calls declare the lock of a lock id where it is known. What is not known takes a call more, and the names of all slots of a key make
//! a call long: both are declared once the server has refused a script for that, which has changed nothing then.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::text::error::{Error, ErrorKind};

/// What is known of the server.
#[derive(Default)]
pub(super) struct Declaring {
    /// Whether the server has refused a script because of a key that was not declared.
    is_strict: AtomicBool,
}

impl Declaring {
    pub(super) fn is_strict(&self) -> bool {
        self.is_strict.load(Relaxed)
    }

    /// Whether a call that has failed so is to be made again, with all keys declared. It `was_strict` if it declared them.
    pub(super) fn learns_from(&self, was_strict: bool, error: &Error) -> bool {
        let learns = !was_strict && is_refusal(error);
        if learns {
            self.is_strict.store(true, Relaxed);
        }
        learns
    }
}

/// The error for a call that was refused for a key that it does not declare. The server's words may name it.
pub(super) fn in_our_words(error: Error) -> Error {
    let is_servers = error.kind() == ErrorKind::Internal && error.message().contains(UNDECLARED);
    if !is_servers {
        return error;
    }
    Error::invalid(format!(
        "{REFUSED}: start Dragonfly with --default_lua_flags=allow-undeclared-keys"
    ))
}

/// Whether it is such an error.
pub(super) fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidArgument && error.message().starts_with(REFUSED)
}

/// What such servers say.
const UNDECLARED: &str = "script tried accessing undeclared key";
const REFUSED: &str = "the server lets scripts touch only the keys that a call declares, and refused one that touches others";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::error::{Cause, to_error};

    #[test]
    fn a_refusal_is_learned_from_once_and_names_no_key() {
        let declaring = Declaring::default();
        for text in [
            "ERR script tried accessing undeclared key",
            "ERR Error running script (call to 5c4d62f4e30c54fb15935b5892148e5ce7374077): @user_script:2: script tried \
             accessing undeclared key, key: secret",
        ] {
            let error = in_our_words(to_error(Cause::Reply(text), true));
            assert!(is_refusal(&error) && !error.is_outcome_unknown());
            assert!(error.message().contains("allow-undeclared-keys"));
            assert!(!error.message().contains("secret"), "{error}");
            assert!(declaring.learns_from(false, &error));
            assert!(!declaring.learns_from(true, &error));
            assert!(declaring.is_strict());
        }
        let other = to_error(Cause::Reply("OOM command not allowed"), true);
        let unchanged = in_our_words(other.clone());
        assert_eq!(unchanged.message(), other.message());
        assert!(!Declaring::default().learns_from(false, &unchanged));
    }
}
