//! The arguments of the extension's functions.

use std::fmt;

use serde_json::Value;

use super::error::ForrstError;
use super::options::{checked_key, owner};
use super::owner::owns;
use syncguard::Key;
use syncguard::Owner;

/// The first part of the full key of every lock of the extension.
const PREFIX: &str = "lock:";

/// The full key of a lock: `lock:{function}:{key}` or `lock:{key}`.
///
/// Other keys are refused, so that the functions cannot reach other locks in the same store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyArgument(Key);

impl KeyArgument {
    /// Reads `{ "key": … }`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` that names the argument.
    pub fn parse(arguments: &Value) -> Result<Self, ForrstError> {
        let key = arguments
            .as_object()
            .ok_or_else(|| ForrstError::invalid("arguments", "must be an object"))?
            .get("key")
            .and_then(Value::as_str)
            .filter(|key| {
                key.strip_prefix(PREFIX)
                    .is_some_and(|rest| !rest.is_empty())
            })
            .ok_or_else(|| {
                ForrstError::invalid(
                    "key",
                    "must be the full key of a lock: lock:{function}:{key} or lock:{key}",
                )
            })?;
        checked_key(key).map(Self)
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.0
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The arguments of the release function.
#[derive(Clone, PartialEq, Eq)]
pub struct ReleaseArguments {
    /// The lock.
    pub key: KeyArgument,
    /// The owner, according to the caller.
    pub owner: Owner,
}

impl ReleaseArguments {
    /// Reads `{ "key": …, "owner": … }`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` that names the argument.
    pub fn parse(arguments: &Value) -> Result<Self, ForrstError> {
        Ok(Self {
            key: KeyArgument::parse(arguments)?,
            owner: owner(arguments.get("owner").unwrap_or(&Value::Null))?,
        })
    }

    /// The lock that was found under the key, if the caller may release it. `label_of` gives what is stored as a lock's
    /// owner.
    ///
    /// # Errors
    /// `LOCK_NOT_FOUND` if there is none; `LOCK_OWNERSHIP_MISMATCH` if it has another owner, or none.
    pub fn owned<Lock>(
        &self,
        found: Option<Lock>,
        label_of: impl FnOnce(&Lock) -> Option<&str>,
    ) -> Result<Lock, ForrstError> {
        let key = self.key.as_str();
        let lock = found.ok_or_else(|| ForrstError::not_found(key))?;
        if owns(label_of(&lock), self.owner.as_str()) {
            Ok(lock)
        } else {
            Err(ForrstError::ownership_mismatch(key))
        }
    }
}

impl fmt::Debug for ReleaseArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReleaseArguments({:?}, {:?})", self.key, self.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ErrorCode;
    use super::super::malformed::assert_arguments_refused;
    use super::*;
    use serde_json::json;

    #[test]
    fn full_keys_are_taken() {
        let json = json!({ "key": "lock:billing:report", "owner": "o", "more": 1 });
        let arguments = ReleaseArguments::parse(&json).unwrap();
        assert_eq!(arguments.key.as_str(), "lock:billing:report");
        assert_eq!(arguments.owner.as_str(), "o");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_arguments_refused(ReleaseArguments::parse);
        let key = format!("lock:{}", "x".repeat(508));
        let error = KeyArgument::parse(&json!({ "key": key })).unwrap_err();
        assert_eq!(
            error.message,
            "key is too long: with its prefix it may have 512 bytes"
        );
    }

    #[test]
    fn a_lock_is_released_for_its_owner_alone() {
        let json = json!({ "key": "lock:a", "owner": "me" });
        let arguments = ReleaseArguments::parse(&json).unwrap();
        let code = |found: Option<Option<&str>>| {
            let owned = arguments.owned(found, |owner| *owner);
            owned.err().map(|error| error.code)
        };
        assert_eq!(code(Some(Some("me"))), None);
        assert_eq!(code(None), Some(ErrorCode::LockNotFound));
        for owner in [None, Some(""), Some("m"), Some("Me"), Some("me ")] {
            assert_eq!(code(Some(owner)), Some(ErrorCode::LockOwnershipMismatch));
        }
    }
}
