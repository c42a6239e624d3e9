//! The errors of transports. Driver errors are analysed here and nowhere else.

use std::error::Error as StdError;
use std::io;

use deadpool::managed::PoolError;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::config::Host;
use super::connection::arrivals::SessionEnd;
use super::fault::{Fault, classify, meant};
use crate::network::tls::is_refusal;
use crate::text::error::Error;

/// The error of a transport: an [`Error`] for the caller, and what the backend needs to decide how to go on.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    state: Option<SqlState>,
    /// Whether the session had ended before anybody took the statement.
    is_untaken: bool,
}

impl Failure {
    /// An error that the server, or a pooler in its place, reported to the caller's client: an SQLSTATE, and the
    /// severity and the words if the client gives them.
    ///
    /// Where the severity is missing or a word in the server's language, the error counts as an `ERROR` if its
    /// state is one that only the server itself reports, and only within a transaction.
    pub fn reported(state: &str, severity: Option<&str>, words: Option<&str>) -> Self {
        let is_error = match severity {
            Some("ERROR") => true,
            Some("FATAL" | "PANIC") => false,
            _ => {
                ["0A", "22", "23", "26", "40", "42", "53", "54"].contains(&class(state))
                    || matches!(
                        SqlState::from_code(state),
                        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::LOCK_NOT_AVAILABLE
                    )
            }
        };
        let is_fatal = matches!(severity, Some("FATAL" | "PANIC"));
        Self::said(state, words.unwrap_or_default(), is_fatal).answering(state, is_error)
    }

    /// A failure that left nothing behind in the database.
    pub fn new(fault: Fault<'_>) -> Self {
        let (kind, message) = classify(fault);
        let state = match fault {
            Fault::State(state) | Fault::Fatal(state) if state.len() == 5 => {
                Some(SqlState::from_code(state))
            }
            _ => None,
        };
        let error = match &state {
            Some(state) => Error::new(kind, format!("{message} (SQLSTATE {})", state.code())),
            None => Error::new(kind, message),
        };
        Self {
            error,
            state,
            is_untaken: false,
        }
    }

    /// An error that was reported with these words, and `is_fatal` if it has ended the session of a statement.
    fn said(state: &str, words: &str, is_fatal: bool) -> Self {
        let meant = meant(state, words);
        let fault = match is_fatal {
            true => Fault::Fatal(meant),
            false => Fault::State(meant),
        };
        let failure = Self {
            is_untaken: is_about_idleness(state, words),
            ..Self::new(fault)
        };
        if words.is_empty() || !WORDED.contains(&class(state)) {
            return failure;
        }
        let (kind, message) = classify(fault);
        let error = Error::new(kind, format!("{message} (SQLSTATE {state}: {words})"));
        Self { error, ..failure }
    }

    /// The same failure, for a statement that was answered with this state, as an `ERROR` or as worse.
    fn answering(self, state: &str, is_error: bool) -> Self {
        match self.is_untaken || proves_rollback(state, is_error) {
            true => self,
            false => self.with_unknown_outcome(),
        }
    }

    /// The same failure of a session, for a statement of which nothing was written before.
    pub(super) fn before_statement(self) -> Self {
        let error = Error::new(self.error.kind(), self.error.message());
        Self {
            error,
            is_untaken: true,
            ..self
        }
    }

    /// The same failure, for a statement that was sent and may have been committed.
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.error = self.error.with_unknown_outcome();
        self
    }

    /// The same failure with a cause, which must show no key and no credentials.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.error = self.error.with_source(source);
        self
    }

    /// A failure to connect to `host`, with the original words of what failed.
    pub(super) fn to_connect(
        fault: Fault<'_>,
        host: &Host,
        cause: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self::to_reach(fault, &host.endpoint(), cause)
    }

    fn to_reach(
        fault: Fault<'_>,
        place: &str,
        cause: impl StdError + Send + Sync + 'static,
    ) -> Self {
        let (kind, message) = classify(fault);
        let mut words: &dyn StdError = &cause;
        while let Some(source) = words.source() {
            words = source;
        }
        let error = Error::new(kind, format!("{message} ({place}: {words})"));
        Self::other(error.with_source(cause))
    }

    /// The failure for `host` not being connected in time.
    pub(super) fn too_late(host: &Host) -> Self {
        let (kind, message) = classify(Fault::ConnectTimeout);
        Self::other(Error::new(kind, format!("{message} ({})", host.endpoint())))
    }

    /// A failure with this error, unchanged.
    pub fn other(error: Error) -> Self {
        Self {
            error,
            state: None,
            is_untaken: false,
        }
    }

    /// The same failure, and what another host has failed with.
    #[must_use]
    pub(super) fn after(mut self, other: &Self) -> Self {
        let words = format!("another host: {}", other.error.message());
        self.error = self.error.followed_by(&words);
        self
    }

    /// The SQLSTATE, if the server reported one.
    pub fn state(&self) -> Option<&SqlState> {
        self.state.as_ref()
    }

    /// The class of its SQLSTATE: the first two characters.
    pub(super) fn class(&self) -> Option<&str> {
        self.state().map(|state| class(state.code()))
    }

    /// The error for the caller.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Whether the server reported an error that left nothing behind, or nobody took the statement.
    pub fn is_refusal(&self) -> bool {
        self.is_untaken || self.state.is_some() && !self.error.is_outcome_unknown()
    }

    /// Whether the statement was refused perhaps only because it wakes those who wait: for lack of the right to the
    /// function, of the function itself, or of room for more notifications.
    pub(super) fn may_be_about_telling(&self) -> bool {
        self.is_refusal()
            && matches!(
                self.state(),
                Some(
                    &(SqlState::INSUFFICIENT_PRIVILEGE
                        | SqlState::UNDEFINED_FUNCTION
                        | SqlState::PROGRAM_LIMIT_EXCEEDED)
                )
            )
    }

    /// Whether a session that was being set up may have been refused because of the settings that it was to start with:
    /// poolers give various states for that, so it is whatever is not about connections, rights or the server's state.
    pub(super) fn may_be_about_settings(&self) -> bool {
        let others = ["08", "25", "28", "3D", "53", "55", "57", "58"];
        self.state() == Some(&SqlState::PROTOCOL_VIOLATION)
            || self.class().is_some_and(|class| !others.contains(&class))
    }

    /// Whether nothing was done for a reason that another try may not meet: a serialization failure or a deadlock, a prepared
    /// statement that a pooler mislaid, or a session that had ended before.
    pub fn is_rolled_back_by_chance(&self) -> bool {
        self.is_untaken
            || !self.error.is_outcome_unknown()
                && matches!(
                    self.state(),
                    Some(
                        &(SqlState::T_R_SERIALIZATION_FAILURE
                            | SqlState::T_R_DEADLOCK_DETECTED
                            | SqlState::UNDEFINED_PSTATEMENT
                            | SqlState::DUPLICATE_PSTATEMENT)
                    )
                )
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// The primary message of a server's error. Its detail and context, which may show keys, are left out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ServerMessage(String);

/// The error that the server reported, to a statement or while connecting; `None` for any other error.
fn reported(error: &tokio_postgres::Error, is_of_statement: bool) -> Option<Failure> {
    error.as_db_error().map(|db| {
        let state = db.code().code();
        let severity = db.parsed_severity();
        let is_fatal = matches!(severity, Some(Severity::Fatal | Severity::Panic));
        let failure = Failure::said(state, db.message(), is_of_statement && is_fatal);
        // The messages of these classes quote values, so their words are left out.
        let failure = match class(state) {
            "22" | "23" => failure,
            _ => failure.with_source(ServerMessage(db.message().to_owned())),
        };
        match is_of_statement {
            true => failure.answering(state, severity == Some(Severity::Error)),
            false => failure,
        }
    })
}

/// What the driver's errors mean, for transports that use it as well.
impl Failure {
    /// The failure for the error of a statement that had been handed to a connection of tokio-postgres 0.7.
    pub fn of_statement(error: &tokio_postgres::Error) -> Self {
        failure(error, None)
    }

    /// The failure for the error with which a pool of the application could not make a session: only the pool knows the
    /// host.
    pub fn to_connect_by_pool(error: tokio_postgres::Error) -> Self {
        match reported(&error, false) {
            Some(failure) => failure,
            None => Self::to_reach(fault_of_connecting(&error, None), "the pool", error),
        }
    }

    /// Whether the server, or a pooler, has said with `error` that it ends the session.
    pub(super) fn ends_session(error: &tokio_postgres::Error) -> bool {
        let severity = error.as_db_error().map(DbError::parsed_severity);
        severity.is_some_and(|severity| severity != Some(Severity::Error))
    }

    /// Whether the session was ended with `error` because it was not used, which says nothing of others.
    pub(super) fn is_of_idleness(error: &tokio_postgres::Error) -> bool {
        let said = error.as_db_error();
        said.is_some_and(|said| is_about_idleness(said.code().code(), said.message()))
    }

    /// Whether the session may serve another statement after `error`.
    pub fn leaves_session_usable(error: &tokio_postgres::Error) -> bool {
        error.as_db_error().is_some_and(|db| {
            matches!(db.parsed_severity(), Some(Severity::Error))
                && !matches!(
                    db.code(),
                    &(SqlState::READ_ONLY_SQL_TRANSACTION
                        | SqlState::UNDEFINED_PSTATEMENT
                        | SqlState::DUPLICATE_PSTATEMENT)
                )
                && !["0A", "XX"].contains(&class(db.code().code()))
        })
    }
}

/// The failure for the error of a statement that had been handed to the connection. `end` says why the session
/// was ended, if that was from this side.
pub(super) fn failure(error: &tokio_postgres::Error, end: Option<SessionEnd>) -> Failure {
    if let Some(failure) = reported(error, true) {
        return failure;
    }
    let fault = match (end, find_io(error)) {
        (Some(SessionEnd::Silent), _) => Fault::Silent,
        (Some(SessionEnd::Oversized), _) => Fault::Oversized,
        _ if error.is_closed() => Fault::Closed,
        (None, Some(io)) => Fault::Io(io.kind()),
        (None, None) => Fault::Malformed,
    };
    Failure::new(fault).with_unknown_outcome()
}

/// The failure for the error of a session that was being set up.
pub(super) fn failure_to_connect(
    error: tokio_postgres::Error,
    host: &Host,
    end: Option<SessionEnd>,
) -> Failure {
    if let Some(failure) = reported(&error, false) {
        return failure;
    }
    Failure::to_connect(fault_of_connecting(&error, end), host, error)
}

fn fault_of_connecting(error: &tokio_postgres::Error, end: Option<SessionEnd>) -> Fault<'static> {
    // The driver distinguishes these only by their texts.
    let text = error.source().map(ToString::to_string).unwrap_or_default();
    match (end, find_io(error)) {
        (Some(SessionEnd::Oversized), _) => Fault::Oversized,
        (_, Some(io)) if let Some(tls) = io.get_ref().and_then(|inner| inner.downcast_ref()) => {
            fault_of_tls(tls)
        }
        (_, Some(io)) if io.kind() == io::ErrorKind::UnexpectedEof => Fault::Closed,
        (_, Some(io)) if io.kind() == io::ErrorKind::InvalidInput => Fault::Foreign,
        (_, Some(io)) if io.kind() == io::ErrorKind::InvalidData => Fault::Foreign,
        // What the driver reports for bytes that are no message of the protocol.
        (_, Some(io)) if io.kind() == io::ErrorKind::Other => Fault::Foreign,
        (_, Some(io)) => Fault::Io(io.kind()),
        _ if error.is_closed() => Fault::Closed,
        _ if text == "password missing" => Fault::NoPassword,
        _ if text == "server does not support TLS" => Fault::NoTls,
        _ if error.to_string().contains("unexpected message") => Fault::Foreign,
        _ => Fault::Session,
    }
}

/// Whose certificate it is about.
fn fault_of_tls(error: &rustls::Error) -> Fault<'static> {
    match error {
        rustls::Error::AlertReceived(_) if is_refusal(error) => Fault::TlsRefused,
        _ if is_refusal(error) => Fault::Tls,
        _ => Fault::TlsFailed,
    }
}

/// Whether a session is ended with that because it was not used. So what was sent over it since was taken by nobody, and nothing follows
/// for other sessions.
fn is_about_idleness(state: &str, words: &str) -> bool {
    // The second is PgBouncer's.
    state == SqlState::IDLE_SESSION_TIMEOUT.code() || words == "client_idle_timeout"
}

/// The classes of errors about connections, logins and the server itself. Their words quote no values of statements, and poolers say
/// the rest in them.
const WORDED: [&str; 8] = ["08", "28", "3D", "53", "55", "57", "58", "XX"];

/// The class of an SQLSTATE: its first two characters.
fn class(state: &str) -> &str {
    state.get(..2).unwrap_or_default()
}

/// Whether an error proves that a statement, which was a transaction of its own, was rolled back. In doubt, it
/// does not.
///
/// The server's own ERROR rolls the transaction back. An error that ends the session may come after the commit.
/// So may an error that a pooler reports in the server's place: it has no severity, or is about connections and
/// shutdowns.
fn proves_rollback(state: &str, is_error: bool) -> bool {
    is_error
        && !["08", "57P", "58", "XX"]
            .iter()
            .any(|of| state.starts_with(of))
}

fn find_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

/// Why our own pool, which has neither hooks nor time limits, gave no connection.
pub(super) fn pool_failure(error: PoolError<Failure>) -> Failure {
    match error {
        PoolError::Backend(failure) => failure,
        PoolError::Closed => Failure::new(Fault::PoolClosed),
        _ => Failure::new(Fault::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_error_proves_a_rollback() {
        for (state, severity, unknown) in [
            ("40001", Some("ERROR"), false),
            ("57014", Some("ERROR"), false),
            ("25006", Some("ERROR"), false),
            ("08P01", Some("ERROR"), true),
            ("57P01", Some("ERROR"), true),
            ("58000", Some("ERROR"), true),
            ("XX000", Some("ERROR"), true),
            ("40001", Some("FATAL"), true),
            ("08P01", Some("FATAL"), true),
            ("57P01", Some("PANIC"), true),
            // Said only to whoever has asked for nothing.
            ("57P05", Some("FATAL"), false),
            ("57P05", None, false),
            // In the server's language, and from clients that do not give it.
            ("40001", Some("FEHLER"), false),
            ("57014", Some("FEHLER"), true),
            ("42P01", None, false),
            ("08P01", None, true),
            ("57014", None, true),
            ("P0001", None, true),
        ] {
            let failure = Failure::reported(state, severity, None);
            let found = failure.error().is_outcome_unknown();
            assert_eq!(found, unknown, "{state} {severity:?}");
            assert_eq!(failure.is_refusal(), !unknown);
            let again = ["40", "57P05"].iter().any(|of| state.starts_with(of)) && !unknown;
            assert_eq!(failure.is_rolled_back_by_chance(), again);
        }
    }

    #[test]
    fn an_end_of_the_session_that_says_nothing_else_may_pass() {
        use crate::text::error::ErrorKind::*;
        for (state, severity, kind) in [
            ("XX000", Some("FATAL"), ServiceUnavailable),
            ("42883", Some("PANIC"), ServiceUnavailable),
            ("XX000", Some("ERROR"), Internal),
            ("XX000", Some("FATAL:"), Internal),
            ("XX000", None, Internal),
            ("3D000", Some("FATAL"), InvalidArgument),
        ] {
            let failure = Failure::reported(state, severity, Some("no more"));
            assert_eq!(failure.error().kind(), kind, "{state} {severity:?}");
            assert!(failure.error().message().contains(state));
        }
    }

    #[test]
    fn a_session_that_a_pooler_has_ended_for_being_idle_took_nothing() {
        let fatal = |words| Failure::reported("08P01", Some("FATAL"), Some(words));
        assert!(fatal("client_idle_timeout").is_rolled_back_by_chance());
        assert!(fatal("query_timeout").error().is_outcome_unknown());
    }

    #[test]
    fn a_failure_says_its_state_and_whether_to_try_again() {
        let failure = Failure::new(Fault::State("40001"));
        assert!(failure.is_rolled_back_by_chance());
        assert!(failure.error().message().ends_with("(SQLSTATE 40001)"));
        assert!(!Failure::new(Fault::Closed).is_rolled_back_by_chance());
        assert!(
            Failure::new(Fault::Closed)
                .with_unknown_outcome()
                .error()
                .is_outcome_unknown()
        );
    }
}
