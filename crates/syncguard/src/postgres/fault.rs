//! The table of failures: how PostgreSQL, and the connection to it, can fail, and what each failure means.

use std::io;

use tokio_postgres::error::SqlState;

use crate::text::error::ErrorKind;

/// A failure, reduced to what decides its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault<'a> {
    /// The server reported an error with this SQLSTATE (five characters).
    State(&'a str),
    /// It did so instead of answering a statement, and ended the session.
    Fatal(&'a str),
    /// The operating system reported an error.
    Io(io::ErrorKind),
    /// The connection ended.
    Closed,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The server's certificate is not trusted.
    Tls,
    /// The server does not trust the client's certificate, or asks for one.
    TlsRefused,
    /// TLS failed for another reason, as two sides that share no version or cipher.
    TlsFailed,
    /// The host name cannot be resolved.
    UnknownHost,
    /// The server asks for a password, and there is none.
    NoPassword,
    /// TLS is demanded, and the server does not speak it.
    NoTls,
    /// Something else than PostgreSQL answers.
    Foreign,
    /// The session could not be set up for another reason.
    Session,
    /// A session gave no answer, although the server could be reached and was not running its statement.
    Silent,
    /// A reply that is larger than any that locks need.
    Oversized,
    /// The server was the primary before another host was promoted, and goes on accepting writes.
    FormerPrimary,
    /// All connections of the pool were busy for too long.
    PoolExhausted,
    /// The backend has been closed.
    PoolClosed,
    /// A reply that the protocol does not allow.
    Malformed,
}

/// The kind of a failure and what to say about it.
pub fn classify(fault: Fault<'_>) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    match fault {
        Fault::State(state) => classify_state(state),
        Fault::Fatal(state) => match classify_state(state) {
            (Internal, _) => (ServiceUnavailable, "the session was ended"),
            known => known,
        },
        Fault::Io(io::ErrorKind::TimedOut) => {
            (NetworkTimeout, "the network did not answer in time")
        }
        Fault::Io(io::ErrorKind::PermissionDenied) => (
            AuthFailed,
            "the operating system refused access to the server's socket",
        ),
        Fault::Io(io::ErrorKind::NotFound) => (
            ServiceUnavailable,
            "the server's address or socket does not exist; is the server running?",
        ),
        Fault::Io(io::ErrorKind::ConnectionRefused) => (
            ServiceUnavailable,
            "connection refused; is the server running?",
        ),
        Fault::Io(_) => (ServiceUnavailable, "the network failed"),
        Fault::Closed => (ServiceUnavailable, "connection closed"),
        Fault::ConnectTimeout => (
            NetworkTimeout,
            "no server accepted a connection in time; see the connect timeout",
        ),
        Fault::Tls => (
            AuthFailed,
            "TLS failed: the server's certificate is not trusted or does not fit its name",
        ),
        Fault::TlsRefused => (
            AuthFailed,
            "TLS failed: the server refuses the client's certificate, or asks for one; see sslcert and sslkey",
        ),
        Fault::TlsFailed => (AuthFailed, "TLS failed"),
        Fault::UnknownHost => (ServiceUnavailable, "the host's name cannot be resolved"),
        Fault::NoPassword => (
            AuthFailed,
            "the server asks for a password, and none is given",
        ),
        Fault::NoTls => (
            AuthFailed,
            "the server does not speak TLS, and sslmode demands it",
        ),
        Fault::Foreign => (
            ServiceUnavailable,
            "what answers there does not speak PostgreSQL's protocol",
        ),
        Fault::Silent => (
            NetworkTimeout,
            "the connection has gone silent, while the server answers on another one",
        ),
        Fault::FormerPrimary => (
            ServiceUnavailable,
            "the server is a former primary: another host has been promoted since, on a later timeline",
        ),
        Fault::Oversized => (Internal, "the server's reply does not end"),
        Fault::Session => (
            AuthFailed,
            "the server and the settings for TLS or authentication do not fit together",
        ),
        Fault::PoolExhausted => (
            RateLimited,
            "all connections of the pool are busy; allow more or ask for less at once",
        ),
        Fault::PoolClosed => (Aborted, "the backend is closed"),
        Fault::Malformed => (Internal, "the server's reply is malformed"),
    }
}

/// The SQLSTATE of what is meant. Poolers give one that says nothing, and words that say it: PgBouncer, Supabase's and Neon's.
pub(super) fn meant<'a>(state: &'a str, words: &str) -> &'a str {
    const MEANT: [(&[&str], &SqlState); 11] = [
        (&["max client"], &SqlState::TOO_MANY_CONNECTIONS),
        (
            &["no more connections allowed"],
            &SqlState::TOO_MANY_CONNECTIONS,
        ),
        (
            &["failed to acquire permit"],
            &SqlState::TOO_MANY_CONNECTIONS,
        ),
        (&["compute node"], &SqlState::CANNOT_CONNECT_NOW),
        (
            &["tenant", "not found"],
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ),
        (
            &["endpoint"],
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ),
        (
            &["no such user"],
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ),
        (
            &["authentication failed"],
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ),
        (
            &["auth failed"],
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ),
        (&["no such database"], &SqlState::UNDEFINED_DATABASE),
        (
            &["database \"", "does not exist"],
            &SqlState::UNDEFINED_DATABASE,
        ),
    ];
    if !state.starts_with("08") && state != SqlState::INTERNAL_ERROR.code() {
        return state;
    }
    let words = words.to_lowercase();
    let says = |(parts, _): &&(&[&str], &SqlState)| parts.iter().all(|part| words.contains(part));
    MEANT
        .iter()
        .find(says)
        .map_or(state, |(_, meant)| meant.code())
}

#[expect(clippy::too_many_lines, reason = "a table: one arm per state")]
fn classify_state(state: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    match SqlState::from_code(state) {
        SqlState::READ_ONLY_SQL_TRANSACTION => (
            ServiceUnavailable,
            "the server is read-only: a standby, a primary that accepts no writes, or \
             default_transaction_read_only is on for this user, this database or the whole server",
        ),
        SqlState::UNDEFINED_PSTATEMENT | SqlState::DUPLICATE_PSTATEMENT => (
            InvalidArgument,
            "a prepared statement was lost: behind a pooler in transaction mode, set prepare to false",
        ),
        SqlState::UNDEFINED_DATABASE => (InvalidArgument, "the database does not exist"),
        SqlState::UNDEFINED_SCHEMA => (
            InvalidArgument,
            "there is no schema for the lock tables: check search_path",
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => (AuthFailed, "permission denied for the lock tables"),
        SqlState::UNDEFINED_TABLE => (
            InvalidArgument,
            "a lock table does not exist: create it by setupSchema() or `npx syncguard setup`, or check \
             tableName and fenceTableName",
        ),
        SqlState::SYNTAX_ERROR => (
            InvalidArgument,
            "the server does not understand the statements of the locks: PostgreSQL 12 or later is needed",
        ),
        SqlState::UNDEFINED_COLUMN
        | SqlState::DATATYPE_MISMATCH
        | SqlState::INVALID_COLUMN_REFERENCE => (
            InvalidArgument,
            "a lock table does not have the columns or indexes it needs: run setupSchema() or \
             `npx syncguard setup`",
        ),
        SqlState::TOO_MANY_CONNECTIONS => (
            ServiceUnavailable,
            "the server has no connection left: raise max_connections or make pools smaller",
        ),
        SqlState::CONFIGURATION_LIMIT_EXCEEDED => {
            (ServiceUnavailable, "a limit of the server is reached")
        }
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => (
            InvalidArgument,
            "the database, or what is in it, does not accept this",
        ),
        SqlState::LOCK_NOT_AVAILABLE => (
            NetworkTimeout,
            "another session holds the lock's row for longer than lock_timeout",
        ),
        SqlState::QUERY_CANCELED => (
            NetworkTimeout,
            "the server ended the statement: statement_timeout was over, or somebody cancelled it",
        ),
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN => {
            (ServiceUnavailable, "the server is shutting down")
        }
        SqlState::CANNOT_CONNECT_NOW => (
            ServiceUnavailable,
            "the server is starting, stopping or recovering",
        ),
        SqlState::DATABASE_DROPPED => (ServiceUnavailable, "the database was dropped"),
        SqlState::IN_FAILED_SQL_TRANSACTION | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => (
            ServiceUnavailable,
            "the session was in a failed transaction",
        ),
        SqlState::SYSTEM_ERROR | SqlState::IO_ERROR => {
            (ServiceUnavailable, "the server's file system failed")
        }
        _ => match state.get(..2).unwrap_or_default() {
            "08" => (ServiceUnavailable, "the connection failed"),
            "0A" => (
                InvalidArgument,
                "the server does not support what the locks need",
            ),
            "22" => (InvalidArgument, "the server refused a value"),
            "23" => (
                InvalidArgument,
                "a constraint of the lock tables was violated",
            ),
            "28" => (AuthFailed, "the server refused the credentials"),
            "40" => (
                ServiceUnavailable,
                "the transaction lost against another one",
            ),
            "53" => (ServiceUnavailable, "the server is out of resources"),
            "54" => (InvalidArgument, "a value is too large for the server"),
            "57" => (ServiceUnavailable, "the server cannot serve now"),
            _ => (Internal, "the server reported an error"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table: one row per fault")]
    fn faults_have_kinds() {
        use ErrorKind::*;
        for (fault, kind, words) in [
            (
                Fault::State("08006"),
                ServiceUnavailable,
                "connection failed",
            ),
            (Fault::State("0A000"), InvalidArgument, "not support"),
            (Fault::State("22P02"), InvalidArgument, "value"),
            (Fault::State("23505"), InvalidArgument, "constraint"),
            (Fault::State("25006"), ServiceUnavailable, "read-only"),
            (Fault::State("26000"), InvalidArgument, "prepare"),
            (Fault::State("28000"), AuthFailed, "credentials"),
            (Fault::State("28P01"), AuthFailed, "credentials"),
            (Fault::State("3D000"), InvalidArgument, "database"),
            (Fault::State("40001"), ServiceUnavailable, "lost"),
            (Fault::State("40P01"), ServiceUnavailable, "lost"),
            (Fault::State("42501"), AuthFailed, "permission"),
            (Fault::State("42601"), InvalidArgument, "PostgreSQL 12"),
            (Fault::State("42883"), Internal, "error"),
            (Fault::State("42703"), InvalidArgument, "setupSchema"),
            (Fault::State("42P01"), InvalidArgument, "setupSchema"),
            (Fault::State("53300"), ServiceUnavailable, "max_connections"),
            (Fault::State("53100"), ServiceUnavailable, "resources"),
            (Fault::State("54000"), InvalidArgument, "too large"),
            (Fault::State("55000"), InvalidArgument, "not accept"),
            (Fault::State("55P03"), NetworkTimeout, "lock_timeout"),
            (Fault::State("57014"), NetworkTimeout, "statement_timeout"),
            (Fault::State("57P01"), ServiceUnavailable, "shutting down"),
            (Fault::State("57P03"), ServiceUnavailable, "starting"),
            (Fault::State("57P05"), ServiceUnavailable, "cannot serve"),
            (Fault::State("58030"), ServiceUnavailable, "file system"),
            (Fault::State("XX000"), Internal, "error"),
            (Fault::State(""), Internal, "error"),
            (Fault::Fatal("XX000"), ServiceUnavailable, "ended"),
            (Fault::Fatal("57P01"), ServiceUnavailable, "shutting down"),
            (Fault::Fatal("28000"), AuthFailed, "credentials"),
            (Fault::State("é"), Internal, "error"),
            (
                Fault::Io(io::ErrorKind::ConnectionRefused),
                ServiceUnavailable,
                "running",
            ),
            (
                Fault::Io(io::ErrorKind::ConnectionReset),
                ServiceUnavailable,
                "network",
            ),
            (
                Fault::Io(io::ErrorKind::TimedOut),
                NetworkTimeout,
                "in time",
            ),
            (
                Fault::Io(io::ErrorKind::NotFound),
                ServiceUnavailable,
                "running",
            ),
            (
                Fault::Io(io::ErrorKind::PermissionDenied),
                AuthFailed,
                "refused",
            ),
            (Fault::Closed, ServiceUnavailable, "closed"),
            (Fault::ConnectTimeout, NetworkTimeout, "in time"),
            (Fault::Tls, AuthFailed, "certificate"),
            (Fault::Session, AuthFailed, "settings"),
            (Fault::TlsRefused, AuthFailed, "client's certificate"),
            (Fault::TlsFailed, AuthFailed, "TLS"),
            (Fault::UnknownHost, ServiceUnavailable, "name"),
            (Fault::NoPassword, AuthFailed, "none is given"),
            (Fault::NoTls, AuthFailed, "does not speak TLS"),
            (Fault::Foreign, ServiceUnavailable, "protocol"),
            (Fault::Silent, NetworkTimeout, "silent"),
            (Fault::FormerPrimary, ServiceUnavailable, "promoted"),
            (Fault::Oversized, Internal, "end"),
            (Fault::PoolExhausted, RateLimited, "busy"),
            (Fault::PoolClosed, Aborted, "closed"),
            (Fault::Malformed, Internal, "malformed"),
        ] {
            let (found, message) = classify(fault);
            assert_eq!(found, kind, "{fault:?}");
            assert!(message.contains(words), "{fault:?}: {message}");
        }
    }
}
