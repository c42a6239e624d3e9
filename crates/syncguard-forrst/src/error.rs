//! The extension's errors.

use std::fmt;

use serde::{Serialize, Serializer};

use super::duration::Duration;
use super::scope::Scope;

/// The code of an error, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The lock is held, and the request does not wait.
    LockAcquisitionFailed,
    /// The lock was held for longer than the request waits.
    LockTimeout,
    /// The lock does not exist.
    LockNotFound,
    /// The lock has another owner.
    LockOwnershipMismatch,
    /// The caller owned the lock when it was looked up, and then somebody else released it first.
    LockAlreadyReleased,
    /// An option of the extension or an argument of a function is wrong.
    InvalidArguments,
    /// The request does not follow the Forrst protocol.
    InvalidRequest,
    /// The server does not allow this caller to do that.
    Forbidden,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::LockAcquisitionFailed,
        Self::LockTimeout,
        Self::LockNotFound,
        Self::LockOwnershipMismatch,
        Self::LockAlreadyReleased,
        Self::InvalidArguments,
        Self::InvalidRequest,
        Self::Forbidden,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockAcquisitionFailed => "LOCK_ACQUISITION_FAILED",
            Self::LockTimeout => "LOCK_TIMEOUT",
            Self::LockNotFound => "LOCK_NOT_FOUND",
            Self::LockOwnershipMismatch => "LOCK_OWNERSHIP_MISMATCH",
            Self::LockAlreadyReleased => "LOCK_ALREADY_RELEASED",
            Self::InvalidArguments => "INVALID_ARGUMENTS",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::Forbidden => "FORBIDDEN",
        }
    }

    /// Whether the same request may succeed later. Not part of the errors on the wire.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::LockAcquisitionFailed | Self::LockTimeout)
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// An error in a response.
#[derive(Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct ForrstError {
    /// For programs.
    pub code: ErrorCode,
    /// For people. Never holds a key or an owner.
    pub message: String,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// What an error is about.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// A lock that could not be had.
    Acquisition {
        /// The key as the request gave it.
        key: String,
        /// Which functions share it.
        scope: Scope,
        /// The key of the lock.
        full_key: String,
        /// How long the request waited.
        #[serde(skip_serializing_if = "Option::is_none")]
        waited: Option<Duration>,
    },
    /// A lock that a function was called for.
    Lock {
        /// Its full key.
        key: String,
    },
    /// An option or argument that is wrong.
    Field {
        /// Its path, for example `ttl.value`.
        field: String,
    },
}

impl ForrstError {
    /// `INVALID_ARGUMENTS` about `field`.
    pub fn invalid(field: &str, what: &str) -> Self {
        Self::about_field(ErrorCode::InvalidArguments, field, what)
    }

    /// `INVALID_REQUEST` about `field`.
    pub fn invalid_request(field: &str, what: &str) -> Self {
        Self::about_field(ErrorCode::InvalidRequest, field, what)
    }

    /// The lock `key` is not there.
    pub fn not_found(key: &str) -> Self {
        Self::about_lock(
            ErrorCode::LockNotFound,
            "Lock does not exist or already expired",
            key,
        )
    }

    /// The lock `key` is another's.
    pub fn ownership_mismatch(key: &str) -> Self {
        Self::about_lock(
            ErrorCode::LockOwnershipMismatch,
            "Lock is owned by a different process",
            key,
        )
    }

    /// The lock `key` was freed a moment before.
    pub fn already_released(key: &str) -> Self {
        Self::about_lock(
            ErrorCode::LockAlreadyReleased,
            "Lock was already released",
            key,
        )
    }

    /// This caller may not force a release, or nobody may.
    pub fn forbidden(key: &str) -> Self {
        Self::about_lock(
            ErrorCode::Forbidden,
            "Force release is not allowed: the server has not authorized this request",
            key,
        )
    }

    pub(super) fn unknown_member(field: &str, name: &str) -> Self {
        let path = if field.is_empty() {
            name.to_owned()
        } else {
            format!("{field}.{name}")
        };
        let place = if field.is_empty() { "options" } else { field };
        Self {
            code: ErrorCode::InvalidArguments,
            // The name stands in the details: it is the caller's text, of any length.
            message: format!("{place} has an unknown member"),
            details: Some(Details::Field { field: path }),
        }
    }

    fn about_field(code: ErrorCode, field: &str, what: &str) -> Self {
        Self {
            code,
            message: format!("{field} {what}"),
            details: Some(Details::Field {
                field: field.to_owned(),
            }),
        }
    }

    fn about_lock(code: ErrorCode, message: &str, key: &str) -> Self {
        Self {
            code,
            message: message.to_owned(),
            details: Some(Details::Lock {
                key: key.to_owned(),
            }),
        }
    }
}

impl fmt::Debug for ForrstError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The details hold keys.
        f.debug_struct("ForrstError")
            .field("code", &self.code)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_help_against_contention_only() {
        let retryable: Vec<_> = ErrorCode::ALL
            .into_iter()
            .filter(|code| code.is_retryable())
            .map(ErrorCode::as_str)
            .collect();
        assert_eq!(retryable, ["LOCK_ACQUISITION_FAILED", "LOCK_TIMEOUT"]);
    }

    #[test]
    fn errors_have_the_structure_of_the_specification() {
        assert_eq!(
            serde_json::to_string(&ForrstError::ownership_mismatch("lock:billing:report")).unwrap(),
            concat!(
                r#"{"code":"LOCK_OWNERSHIP_MISMATCH","#,
                r#""message":"Lock is owned by a different process","#,
                r#""details":{"key":"lock:billing:report"}}"#
            )
        );
        assert_eq!(
            serde_json::to_string(&ForrstError::invalid("ttl.unit", "must be a unit")).unwrap(),
            concat!(
                r#"{"code":"INVALID_ARGUMENTS","message":"ttl.unit must be a unit","#,
                r#""details":{"field":"ttl.unit"}}"#
            )
        );
    }

    #[test]
    fn debug_output_shows_no_key() {
        for error in [
            ForrstError::not_found("secret"),
            ForrstError::already_released("secret"),
            ForrstError::forbidden("secret"),
        ] {
            assert!(!format!("{error:?} {error}").contains("secret"));
        }
    }
}
