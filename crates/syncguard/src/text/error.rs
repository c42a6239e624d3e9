//! The one error type of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong: one of the nine kinds that all backends share (docs/errors.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store cannot be reached or cannot serve now; trying again later may work.
    ServiceUnavailable,
    /// The store refused the credentials, or the operating system refused access to the file.
    AuthFailed,
    /// The caller's input or configuration is wrong; trying again cannot work.
    InvalidArgument,
    /// The store or the connection pool has no capacity left: use fewer operations at once.
    RateLimited,
    /// No answer in time. The store may or may not have done what was asked.
    NetworkTimeout,
    /// Waiting for a lock took longer than the caller allowed.
    AcquisitionTimeout,
    /// A lock that was held is lost: it has ended, or somebody has put it out.
    LockLost,
    /// The caller cancelled.
    Aborted,
    /// Anything else: a reply that makes no sense, an overflow, a defect.
    Internal,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::ServiceUnavailable,
        Self::AuthFailed,
        Self::InvalidArgument,
        Self::RateLimited,
        Self::NetworkTimeout,
        Self::AcquisitionTimeout,
        Self::LockLost,
        Self::Aborted,
        Self::Internal,
    ];

    /// The kind's name outside of Rust, e.g. `"ServiceUnavailable"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::AuthFailed => "AuthFailed",
            Self::InvalidArgument => "InvalidArgument",
            Self::RateLimited => "RateLimited",
            Self::NetworkTimeout => "NetworkTimeout",
            Self::AcquisitionTimeout => "AcquisitionTimeout",
            Self::LockLost => "LockLost",
            Self::Aborted => "Aborted",
            Self::Internal => "Internal",
        }
    }

    /// The kind of that name, if there is one: the inverse of [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether waiting for a lock goes on after an error of this kind.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::ServiceUnavailable | Self::NetworkTimeout)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with its [`ErrorKind`] and its cause.
///
/// Messages and causes never contain a lock's key, a password or a connection string. Clones share the cause,
/// because one failure can end many operations.
#[derive(Clone)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    outcome_unknown: bool,
    busy: Option<Busy>,
}

/// What a store has said of a lock that is held by somebody else.
///
/// `Debug` shows neither the key nor the labels.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Busy {
    /// The key of the claim that stood in the way; of a slot, the key whose slots are all held.
    pub key: Option<String>,
    /// How long until it ends by itself and somebody else can have it, from when the error was made. Its holder may release it
    /// before, or extend it.
    pub free_in: Option<Duration>,
    /// The [labels](crate::Labels) that are stored with it, by their names.
    pub labels: Vec<(&'static str, String)>,
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut busy = f.debug_struct("Busy");
        busy.field("free_in", &self.free_in).finish_non_exhaustive()
    }
}

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                source: None,
                outcome_unknown: false,
                busy: None,
            }),
        }
    }

    /// [`ErrorKind::InvalidArgument`] with a message that names the field and what is wrong with it.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// What every operation on a closed backend fails with, wherever that is noticed. It is no `InvalidArgument`:
    /// while a process shuts down, nobody can know which of its operations come first.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Aborted, "the backend is closed")
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error, marked to say that the store may have done what was asked: the request was sent, and its
    /// answer was lost. An acquisition that ends so is undone in the background.
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.inner.outcome_unknown = true;
        self
    }

    /// The same error with what the store has said of the lock that stood in the way.
    #[must_use]
    pub(crate) fn with_busy(mut self, busy: Busy) -> Self {
        self.inner.busy = Some(busy);
        self
    }

    /// Of an `AcquisitionTimeout`: what the store has said of the lock that stood in the way.
    pub fn busy(&self) -> Option<&Busy> {
        self.inner.busy.as_ref()
    }

    /// The same error with `text` before its message.
    #[must_use]
    pub(crate) fn after(mut self, text: &str) -> Self {
        self.inner.message.insert_str(0, text);
        self
    }

    /// The same error with `text` after its message.
    #[must_use]
    pub(crate) fn followed_by(mut self, text: &str) -> Self {
        self.inner.message.push_str(": ");
        self.inner.message.push_str(text);
        self
    }

    /// Whether the store may have done what was asked.
    pub fn is_outcome_unknown(&self) -> bool {
        self.inner.outcome_unknown
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The message without the cause.
    pub fn message(&self) -> &str {
        &self.inner.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("message", &self.inner.message)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.inner.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_their_names_are_one_to_one() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.as_str(), format!("{kind:?}"));
            assert_eq!(ErrorKind::from_name(kind.as_str()), Some(kind));
        }
        assert_eq!(ErrorKind::from_name("internal"), None);
    }

    #[test]
    fn only_an_unreachable_store_is_worth_another_try() {
        assert!(ErrorKind::ServiceUnavailable.is_transient());
        assert!(ErrorKind::NetworkTimeout.is_transient());
        assert!(!ErrorKind::AuthFailed.is_transient());
        assert!(!ErrorKind::InvalidArgument.is_transient());
        assert!(!ErrorKind::Internal.is_transient());
    }

    #[test]
    fn the_cause_is_kept_and_the_message_stays_alone() {
        let error = Error::new(ErrorKind::Internal, "reply is malformed")
            .with_source(std::io::Error::other("boom"));
        assert_eq!(error.to_string(), "reply is malformed");
        assert_eq!(error.source().unwrap().to_string(), "boom");
    }
}
