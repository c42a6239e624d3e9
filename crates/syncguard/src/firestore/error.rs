//! What failures of Firestore mean.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use google_cloud_auth::errors::CredentialsError;
use tonic::{Code, Status};

use crate::network::tls::is_refusal;
use crate::text::error::{Error, ErrorKind};

/// What a gRPC status code means: its kind, and whether the server may have done what was asked.
///
/// The table for users is in docs/firestore.md, "Errors".
pub fn classify(code: i32) -> (ErrorKind, bool) {
    use ErrorKind::*;
    match Code::from_i32(code) {
        // We never wait for the answer to a call that we have cancelled, so the connection was reset.
        Code::Cancelled => (ServiceUnavailable, true),
        Code::InvalidArgument | Code::FailedPrecondition => (InvalidArgument, false),
        Code::DeadlineExceeded => (NetworkTimeout, true),
        // A missing document is no error in the calls made here, so the database is missing.
        Code::NotFound => (InvalidArgument, false),
        Code::PermissionDenied | Code::Unauthenticated => (AuthFailed, false),
        Code::ResourceExhausted => (RateLimited, false),
        Code::Aborted => (ServiceUnavailable, false),
        Code::Internal | Code::Unavailable => (ServiceUnavailable, true),
        Code::Unimplemented => (Internal, false),
        // The first of a write that was carried out and sent again on the way, the second of an answer that is too long.
        Code::AlreadyExists | Code::OutOfRange => (Internal, true),
        Code::Ok | Code::Unknown | Code::DataLoss => (Internal, true),
    }
}

/// Which part of a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionStep {
    /// Nothing can have been written.
    Read,
    /// Something may have been.
    Commit,
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    conflict: bool,
    may_be_done: bool,
}

impl Failure {
    /// Firestore answered with this gRPC status code. Its own text is left out, because it contains names of
    /// documents, which are keys.
    pub fn from_code(code: i32) -> Self {
        let code = Code::from_i32(code);
        let message = format!("firestore answered {}{}", name(code), advice(code));
        Self::new(code, message)
    }

    /// Firestore cannot be reached, for the reason in `source`. The request may or may not have been sent.
    pub fn unreachable(source: Option<Box<dyn StdError + Send + Sync>>) -> Self {
        let failure = Self::new(Code::Unavailable, "firestore cannot be reached".to_owned());
        match source {
            Some(source) => Self {
                error: failure.error.with_source(source),
                ..failure
            },
            None => failure,
        }
    }

    /// The request was never sent.
    pub fn unsent(error: Error) -> Self {
        Self {
            error,
            conflict: false,
            may_be_done: false,
        }
    }

    /// Another failure, after which it is unknown what was done.
    pub fn other(error: Error) -> Self {
        Self {
            error,
            conflict: false,
            may_be_done: true,
        }
    }

    /// The answer is none to what was asked, so nothing may be concluded from it.
    pub(super) fn malformed() -> Self {
        let text = "firestore gave a malformed answer";
        Self::other(Error::new(ErrorKind::Internal, text))
    }

    /// Whether the transaction conflicted with another one, so that nothing was written.
    pub(super) fn is_conflict(&self) -> bool {
        self.conflict
    }

    /// The error for the caller, if the operation ends with this failure.
    pub(super) fn into_error(self, step: TransactionStep) -> Error {
        if self.may_be_done && step == TransactionStep::Commit {
            self.error.with_unknown_outcome()
        } else {
            self.error
        }
    }

    fn new(code: Code, message: String) -> Self {
        let (kind, may_be_done) = classify(code.into());
        Self {
            error: Error::new(kind, message),
            conflict: code == Code::Aborted,
            may_be_done,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let Some(cause) = status.source() else {
            return Self::from_code(status.code().into());
        };
        if let Some(error) = cause.downcast_ref::<Error>() {
            return Self::unsent(error.clone());
        }
        if let Some(tls) = tls_refusal(cause) {
            let words = format!("firestore cannot be reached: TLS failed: {tls}");
            return Self::unsent(Error::new(ErrorKind::AuthFailed, words));
        }
        let cause = causes(cause);
        match status.code() {
            // A status that did not come from a server has a source: the connection was lost.
            Code::Unknown | Code::Unavailable => Self::unreachable(Some(cause.into())),
            code => {
                let failure = Self::from_code(code.into());
                Self {
                    error: failure.error.with_source(cause),
                    ..failure
                }
            }
        }
    }
}

/// The number of the gRPC status code with this name: `PERMISSION_DENIED`, or `permission-denied` as Firebase writes
/// it.
pub fn code_from_name(text: &str) -> Option<i32> {
    let wanted = text.replace('-', "_").to_ascii_uppercase();
    (1..=16).find(|code| name(Code::from_i32(*code)) == wanted)
}

/// The error for an operation that took too long.
pub(super) fn timed_out(limit: Duration, step: TransactionStep) -> Error {
    let error = Error::new(
        ErrorKind::NetworkTimeout,
        format!("firestore did not answer within {} ms", limit.as_millis()),
    );
    match step {
        TransactionStep::Read => error,
        TransactionStep::Commit => error.with_unknown_outcome(),
    }
}

/// The error for credentials that give no token.
pub(super) fn from_credentials(source: CredentialsError) -> Error {
    without_token(source.is_transient()).with_source(source)
}

/// The error for a call that was not sent because there is no access token; `is_transient` says whether there may be one
/// later.
pub fn without_token(is_transient: bool) -> Error {
    let kind = match is_transient {
        true => ErrorKind::ServiceUnavailable,
        false => ErrorKind::AuthFailed,
    };
    Error::new(kind, "no access token for firestore could be obtained")
}

/// The reason why one side refused the other's certificate, if that is what went wrong.
fn tls_refusal<'a>(first: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(first);
    let mut tls = None;
    while let Some(cause) = next
        && tls.is_none()
    {
        let inner = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        next = cause.source();
    }
    tls.filter(|error| is_refusal(error))
}

/// The messages of a chain of transport errors, e.g. `transport error: tcp connect error: …`.
fn causes(first: &(dyn StdError + 'static)) -> String {
    let mut text = first.to_string();
    let mut next = first.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

fn advice(code: Code) -> &'static str {
    match code {
        Code::NotFound => ": does the database exist?",
        Code::FailedPrecondition => {
            ": is the database in native mode, with an index on the field lockId?"
        }
        Code::PermissionDenied => ": may these credentials read and write documents?",
        Code::Aborted => ": too many transactions wrote the same documents",
        _ => "",
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_kind() {
        use ErrorKind::*;
        for (code, kind, may_be_done) in [
            (0, Internal, true),
            (1, ServiceUnavailable, true),
            (2, Internal, true),
            (3, InvalidArgument, false),
            (4, NetworkTimeout, true),
            (5, InvalidArgument, false),
            (6, Internal, true),
            (7, AuthFailed, false),
            (8, RateLimited, false),
            (9, InvalidArgument, false),
            (10, ServiceUnavailable, false),
            (11, Internal, true),
            (12, Internal, false),
            (13, ServiceUnavailable, true),
            (14, ServiceUnavailable, true),
            (15, Internal, true),
            (16, AuthFailed, false),
            (99, Internal, true),
            (-1, Internal, true),
        ] {
            assert_eq!(classify(code), (kind, may_be_done), "{code}");
        }
    }

    #[test]
    fn only_a_commit_can_have_an_unknown_outcome() {
        let unknown = |code, step| {
            Failure::from_code(code)
                .into_error(step)
                .is_outcome_unknown()
        };
        assert!(unknown(14, TransactionStep::Commit));
        assert!(!unknown(14, TransactionStep::Read));
        assert!(!unknown(10, TransactionStep::Commit));
        let own = || Failure::other(Error::new(ErrorKind::Internal, "x"));
        assert!(
            own()
                .into_error(TransactionStep::Commit)
                .is_outcome_unknown()
        );
        let unsent = Failure::unsent(Error::new(ErrorKind::Internal, "x"));
        assert!(
            !unsent
                .into_error(TransactionStep::Commit)
                .is_outcome_unknown()
        );
    }

    #[test]
    fn only_aborted_is_a_conflict() {
        for code in 0..=16 {
            assert_eq!(Failure::from_code(code).is_conflict(), code == 10, "{code}");
        }
    }

    #[test]
    fn codes_have_names() {
        for (text, code) in [
            ("ABORTED", Some(10)),
            ("permission-denied", Some(7)),
            ("UNAUTHENTICATED", Some(16)),
            ("OK", None),
            ("ECONNRESET", None),
            ("", None),
        ] {
            assert_eq!(code_from_name(text), code, "{text}");
        }
    }

    #[test]
    fn a_broken_connection_is_no_defect() {
        let status = Status::from_error(Box::new(std::io::Error::other("connection reset")));
        let error = Failure::from(status).into_error(TransactionStep::Read);
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert_eq!(error.message(), "firestore cannot be reached");
        assert!(
            error
                .source()
                .unwrap()
                .to_string()
                .contains("connection reset")
        );
        let status = Status::unknown("a defect of the server");
        assert_eq!(
            Failure::from(status)
                .into_error(TransactionStep::Read)
                .kind(),
            ErrorKind::Internal
        );
    }

    #[test]
    fn the_servers_text_is_not_shown() {
        let status = Status::not_found("No document: locks/secret");
        let error = Failure::from(status).into_error(TransactionStep::Commit);
        assert!(!format!("{error:?} {error}").contains("secret"));
    }
}
