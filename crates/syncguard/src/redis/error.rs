//! What failures of Redis and of its drivers mean. Driver error types end here.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::Arc;

use redis::{ErrorKind as RedisKind, RedisError, ServerError};

use super::limited::TooLong;
use super::stream::Place;
use crate::error::{Error, ErrorKind};
use crate::redact;

/// A failure, in words that belong to no driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// The server replied with this error.
    Reply(&'a str),
    /// No connection could be made.
    Unreachable {
        /// The host and the port, or the socket in the file system.
        at: &'a str,
        /// Such as that it was refused, or that there is no such host.
        why: &'a str,
    },
    /// Making a connection took too long.
    ConnectTimeout,
    /// No Sentinel could be asked, or none knows a primary.
    NoPrimary,
    /// The connection ended.
    Closed,
    /// No answer came in time.
    Unanswered,
    /// What came is not the protocol of Redis.
    Unreadable,
    /// A reply is longer than any that locks need.
    Oversized,
    /// The driver refused its settings.
    Settings,
    /// A client that somebody else keeps failed, in a way that its [`Transport`](super::Transport) knows.
    Client {
        /// What kind of failure that is.
        kind: ErrorKind,
        /// What happened, in words of ours.
        what: &'static str,
        /// Whether a request that was sent may have been done.
        may_be_done: bool,
        /// The client's own words, if there are any.
        words: &'a str,
    },
}

/// What a failure means: the kind, the message, and whether the server may have done what was asked,
/// given whether the request may have been sent.
pub fn classify(cause: Cause<'_>, sent: bool) -> (ErrorKind, Cow<'static, str>, bool) {
    use ErrorKind::{Internal, InvalidArgument, NetworkTimeout, ServiceUnavailable};
    let (kind, message, lost) = match cause {
        Cause::Reply(text) => return by_reply(text),
        Cause::Client {
            kind,
            what,
            may_be_done,
            ..
        } => (kind, what, may_be_done),
        Cause::Unreachable { at, why } => {
            let message = format!("cannot connect to redis at {at}: {why}");
            return (ServiceUnavailable, message.into(), sent);
        }
        Cause::ConnectTimeout => (
            NetworkTimeout,
            "connecting to redis took longer than connectTimeoutMs",
            true,
        ),
        Cause::NoPrimary => (
            ServiceUnavailable,
            "no redis sentinel knows a primary that can be reached",
            true,
        ),
        Cause::Closed => (
            ServiceUnavailable,
            "the connection to redis was closed",
            true,
        ),
        Cause::Unanswered => (NetworkTimeout, "redis did not answer in time", true),
        Cause::Unreadable => (
            Internal,
            "the server does not speak the protocol of redis",
            true,
        ),
        Cause::Oversized => (
            Internal,
            "the server's reply is longer than any about a lock; the connection was closed",
            true,
        ),
        Cause::Settings => (
            InvalidArgument,
            "the settings of the redis connection are wrong",
            false,
        ),
    };
    (kind, message.into(), lost && sent)
}

/// The error of a failure. It ends with the words of whoever told it, if there are any.
pub fn to_error(cause: Cause<'_>, sent: bool) -> Error {
    to_error_hiding(cause, sent, [])
}

/// The same with `secrets` left out of those words: they may quote what was sent.
pub fn to_error_hiding<'a>(
    cause: Cause<'_>,
    sent: bool,
    secrets: impl IntoIterator<Item = &'a str>,
) -> Error {
    let (kind, message, lost) = classify(cause, sent);
    let words = match cause {
        Cause::Reply(text) | Cause::Client { words: text, .. } => redact::hide(text, secrets),
        _ => String::new(),
    };
    let error = Error::new(kind, with_words(&message, &words));
    if lost {
        error.with_unknown_outcome()
    } else {
        error
    }
}

fn with_words(message: &str, words: &str) -> String {
    if words.is_empty() {
        message.to_owned()
    } else {
        format!("{message}: {words}")
    }
}

/// A connection that could not be made.
pub(super) fn cannot_connect(at: &Place, why: &str) -> Error {
    let at = at.to_string();
    to_error(Cause::Unreachable { at: &at, why }, false)
}

/// The error of the driver, on a connection that was made.
pub(super) fn driver_error(error: &RedisError, sent: bool) -> Error {
    let cause = describe(error);
    let plain = to_error(cause, sent);
    // The words of other errors quote replies.
    let Some(io) = io_error(error).filter(|_| cause == Cause::Closed) else {
        return plain;
    };
    let named = Error::new(plain.kind(), with_words(plain.message(), &io.to_string()));
    let named = named.with_source(error.clone());
    if plain.is_outcome_unknown() {
        named.with_unknown_outcome()
    } else {
        named
    }
}

/// The code of an error reply: its first word, or that of the error that a script met. `None` for a text
/// that is no error reply with a code.
pub fn reply_code(text: &str) -> Option<&str> {
    let met = met_by_script(text);
    let bare = met.or(text.strip_prefix("ERR ")).unwrap_or(text);
    // Redis has no code for this: up to 7.0 the first, then the second.
    if bare.starts_with("The user executing the script can't ")
        || bare.starts_with("ACL failure in script: ")
    {
        return Some("NOPERM");
    }
    match met {
        Some(met) => Some(first_word(met).unwrap_or("ERR")),
        None => first_word(text),
    }
}

fn first_word(text: &str) -> Option<&str> {
    let word = text.split_whitespace().next()?;
    let is_code = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some(word)
}

/// The error that a command met inside a script, without what Redis before 7 puts around it:
/// `ERR Error running script (call to f_<sha>): @user_script:25: @user_script: 25: -READONLY …`.
/// The second place and the `-` are there for what was refused before it ran. Since 7 the error itself
/// comes first.
fn met_by_script(text: &str) -> Option<&str> {
    let text = text.strip_prefix("ERR Error running script (call to f_")?;
    let (sha, text) = text.split_at_checked(40)?;
    if !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let text = after_line(text.strip_prefix("): @user_script:")?)?;
    let text = text
        .strip_prefix("@user_script: ")
        .and_then(after_line)
        .unwrap_or(text);
    Some(text.strip_prefix('-').unwrap_or(text))
}

/// What follows `25: `.
fn after_line(text: &str) -> Option<&str> {
    let (line, rest) = text.split_once(": ")?;
    let is_number = line.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(rest)
}

fn by_reply(text: &str) -> (ErrorKind, Cow<'static, str>, bool) {
    use ErrorKind::{AuthFailed, Internal, InvalidArgument, RateLimited, ServiceUnavailable};
    let code = reply_code(text).unwrap_or("ERR");
    let (kind, hint) = match code {
        "NOAUTH" => (AuthFailed, "a password is required"),
        "WRONGPASS" => (AuthFailed, "the user name or the password is wrong"),
        "NOPERM" => (
            AuthFailed,
            "the user may not run scripts, or not on these keys",
        ),
        "DENIED" => (
            AuthFailed,
            "the server is in protected mode; give its users a password",
        ),
        "WRONGTYPE" => (
            InvalidArgument,
            "a key that locks need holds something else; use another keyPrefix",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            InvalidArgument,
            "the server is a node of a redis cluster, which is not supported",
        ),
        "READONLY" => (
            ServiceUnavailable,
            "the server is a replica and takes no locks; connect to the primary",
        ),
        "LOADING" => (ServiceUnavailable, "the server is starting"),
        "BUSY" => (ServiceUnavailable, "the server is busy with a script"),
        "OOM" => (ServiceUnavailable, "the server's memory is full"),
        "MISCONF" => (
            ServiceUnavailable,
            "the server cannot write to its disk and refuses changes",
        ),
        "NOREPLICAS" => (ServiceUnavailable, "too few replicas are connected"),
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "UNBLOCKED" => {
            (ServiceUnavailable, "the server cannot serve now")
        }
        "NOSCRIPT" => (
            Internal,
            "the server does not keep the scripts that it is sent",
        ),
        "SYNCGUARD" => (
            Internal,
            "what is stored under the key is not a lock; use another keyPrefix",
        ),
        // Replies without a code of their own, each in the words of the server.
        _ if text.starts_with("ERR max number of clients reached") => {
            (RateLimited, "the server has too many clients")
        }
        _ if text.starts_with("ERR AUTH") || text.starts_with("ERR Client sent AUTH") => (
            AuthFailed,
            "a password was given and the server expects none",
        ),
        _ if text.starts_with("ERR DB index is out of range")
            || text.starts_with("ERR invalid DB index") =>
        {
            (InvalidArgument, "db must be one of the server's databases")
        }
        _ => (Internal, "unexpected error"),
    };
    (kind, format!("redis answered {code}: {hint}").into(), false)
}

/// What the server said, which the driver takes apart.
pub(super) fn error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// The driver's error in our words. Error replies of a server are no errors to it.
pub(super) fn describe(error: &RedisError) -> Cause<'static> {
    match error.kind() {
        RedisKind::Parse | RedisKind::UnexpectedReturnType => Cause::Unreadable,
        RedisKind::InvalidClientConfig => Cause::Settings,
        RedisKind::Io if is_too_long(error) => Cause::Oversized,
        _ => Cause::Closed,
    }
}

fn is_too_long(error: &RedisError) -> bool {
    io_error(error)
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<TooLong>())
}

/// The stream's own error, which the driver shares among those who waited.
fn io_error(error: &RedisError) -> Option<&std::io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let shared: &Shared = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::*;

    #[test]
    fn replies_are_known_by_their_code() {
        for (text, kind) in [
            ("NOAUTH Authentication required.", AuthFailed),
            ("WRONGPASS invalid username-password pair", AuthFailed),
            ("NOPERM this user has no permissions", AuthFailed),
            ("DENIED Redis is running in protected mode", AuthFailed),
            (
                "ERR AUTH <password> called without any password",
                AuthFailed,
            ),
            ("WRONGTYPE Operation against a key", InvalidArgument),
            ("MOVED 3999 127.0.0.1:6381", InvalidArgument),
            ("ERR DB index is out of range", InvalidArgument),
            (
                "READONLY You can't write against a read only replica.",
                ServiceUnavailable,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                ServiceUnavailable,
            ),
            ("BUSY Redis is busy running a script", ServiceUnavailable),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                ServiceUnavailable,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                ServiceUnavailable,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                ServiceUnavailable,
            ),
            ("CLUSTERDOWN The cluster is down", ServiceUnavailable),
            ("MASTERDOWN Link with MASTER is down", ServiceUnavailable),
            (
                "TRYAGAIN Multiple keys request during rehashing",
                ServiceUnavailable,
            ),
            ("ERR max number of clients reached", RateLimited),
            ("NOSCRIPT No matching script.", Internal),
            ("SYNCGUARD the stored value is not a lock", Internal),
            ("ERR value is not an integer or out of range", Internal),
            (
                "ERR unknown command 'evalsha', with args beginning with: 'READONLY'",
                Internal,
            ),
            ("", Internal),
        ] {
            for sent in [false, true] {
                let (got, message, lost) = classify(Cause::Reply(text), sent);
                assert_eq!(got, kind, "{text}");
                assert!(message.starts_with("redis answered "), "{message}");
                assert!(!lost, "a server that refuses has done nothing");
            }
        }
    }

    #[test]
    fn errors_inside_scripts_are_known_by_the_code_that_the_script_met() {
        let sha = "d8f2cce404a078aa0378bb59b92d3715541787f1";
        let before_7 = |text: &str| {
            format!("ERR Error running script (call to f_{sha}): @user_script:25: {text}")
        };
        let refused = |text: &str| before_7(&format!("@user_script: 25: {text}"));
        let since_7 = |text: &str| format!("{text} script: {sha}, on @user_script:25.");
        let readonly = "READONLY You can't write against a read only replica.";
        let oom = "OOM command not allowed when used memory > 'maxmemory'.";
        let misconf = "MISCONF Redis is configured to save RDB snapshots";
        let noreplicas = "NOREPLICAS Not enough good replicas to write.";
        let wrongtype = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (text, code, kind) in [
            (since_7(readonly), "READONLY", ServiceUnavailable),
            (
                refused(&format!("-{readonly}")),
                "READONLY",
                ServiceUnavailable,
            ),
            (since_7(oom), "OOM", ServiceUnavailable),
            (refused(&format!("-{oom}")), "OOM", ServiceUnavailable),
            (since_7(misconf), "MISCONF", ServiceUnavailable),
            (
                refused(&format!("-{misconf}")),
                "MISCONF",
                ServiceUnavailable,
            ),
            (since_7(noreplicas), "NOREPLICAS", ServiceUnavailable),
            (
                refused(&format!("-{noreplicas}")),
                "NOREPLICAS",
                ServiceUnavailable,
            ),
            (since_7(wrongtype), "WRONGTYPE", InvalidArgument),
            (before_7(wrongtype), "WRONGTYPE", InvalidArgument),
            (
                since_7("NOPERM this user has no permissions"),
                "NOPERM",
                AuthFailed,
            ),
            (
                refused("The user executing the script can't run this command or subcommand"),
                "NOPERM",
                AuthFailed,
            ),
            (
                refused(
                    "The user executing the script can't access at least one of the keys \
                     mentioned in the command arguments",
                ),
                "NOPERM",
                AuthFailed,
            ),
            (
                since_7("ERR The user executing the script can't run this command or subcommand"),
                "NOPERM",
                AuthFailed,
            ),
            (
                since_7("ERR ACL failure in script: User u has no permissions to run 'incr'"),
                "NOPERM",
                AuthFailed,
            ),
            (since_7("ERR value is not an integer"), "ERR", Internal),
            (before_7("ERR value is not an integer"), "ERR", Internal),
            (
                refused("Unknown Redis command called from Lua script"),
                "ERR",
                Internal,
            ),
            (before_7("user_script:25: READONLY"), "ERR", Internal),
            // What only looks like it.
            (format!("ERR {readonly}"), "ERR", Internal),
            (
                before_7("").replace("f_d8", "f_") + readonly,
                "ERR",
                Internal,
            ),
            (
                before_7("").replace("f_d8", "f_xx") + readonly,
                "ERR",
                Internal,
            ),
            (
                before_7("").replace(":25:", ":x:") + readonly,
                "ERR",
                Internal,
            ),
        ] {
            assert_eq!(reply_code(&text).unwrap_or("ERR"), code, "{text}");
            let (got, message, lost) = classify(Cause::Reply(&text), true);
            assert_eq!(got, kind, "{text}");
            assert!(message.starts_with(&format!("redis answered {code}: ")));
            assert!(!lost, "a server that refuses has done nothing");
        }
    }

    #[test]
    fn messages_quote_nothing_that_was_sent() {
        let hidden = |text| {
            let error = to_error_hiding(Cause::Reply(text), true, ["secret", "NOPERM"]);
            error.message().to_owned()
        };
        assert_eq!(
            hidden("ERR unknown command 'EVALSHA', with args beginning with: 'secr"),
            "redis answered ERR: unexpected error: ERR unknown command 'EVALSHA',"
        );
        // What is hidden is nevertheless understood.
        assert_eq!(
            hidden("NOPERM no permissions for 'app:secret'"),
            "redis answered NOPERM: the user may not run scripts, or not on these keys: \
             [hidden] no permissions for 'app:[hidden]'"
        );
        assert_eq!(
            to_error(Cause::Reply("ERR syntax error"), true).message(),
            "redis answered ERR: unexpected error: ERR syntax error"
        );
    }

    #[test]
    fn a_lost_answer_leaves_the_outcome_open() {
        for (cause, kind) in [
            (
                Cause::Unreachable {
                    at: "h:1",
                    why: "refused",
                },
                ServiceUnavailable,
            ),
            (Cause::ConnectTimeout, NetworkTimeout),
            (Cause::NoPrimary, ServiceUnavailable),
            (Cause::Closed, ServiceUnavailable),
            (Cause::Unanswered, NetworkTimeout),
            (Cause::Unreadable, Internal),
            (Cause::Oversized, Internal),
        ] {
            assert_eq!(classify(cause, true).0, kind, "{cause:?}");
            assert!(classify(cause, true).2);
            assert!(!classify(cause, false).2);
            assert!(to_error(cause, true).is_outcome_unknown());
        }
        assert_eq!(classify(Cause::Settings, false).0, InvalidArgument);
    }

    #[test]
    fn the_drivers_errors_are_known_by_their_kind() {
        for (kind, cause) in [
            (RedisKind::Io, Cause::Closed),
            (RedisKind::Client, Cause::Closed),
            (RedisKind::Parse, Cause::Unreadable),
            (RedisKind::UnexpectedReturnType, Cause::Unreadable),
            (RedisKind::InvalidClientConfig, Cause::Settings),
        ] {
            let error = RedisError::from((kind, "no matter what"));
            assert_eq!(describe(&error), cause, "{kind:?}");
        }
    }

    #[test]
    fn what_the_server_said_is_put_together_again() {
        for text in [
            "NOSCRIPT No matching script.",
            "ERR  two  blanks ",
            "WRONGPASS",
            "SYNCGUARD the stored value is not a lock",
        ] {
            let reply = format!("-{text}\r\n");
            let redis::Value::ServerError(error) =
                redis::parse_redis_value(reply.as_bytes()).unwrap()
            else {
                panic!("no error");
            };
            assert_eq!(error_text(&error), text);
        }
    }

    #[test]
    fn a_failed_client_is_reported_with_its_words() {
        let cause = Cause::Client {
            kind: NetworkTimeout,
            what: "redis did not answer in time",
            may_be_done: true,
            words: "EVALSHA app:secret timed out",
        };
        let error = to_error_hiding(cause, true, ["app:secret"]);
        assert_eq!(
            error.message(),
            "redis did not answer in time: EVALSHA [hidden] timed out"
        );
        assert_eq!(error.kind(), NetworkTimeout);
        assert!(error.is_outcome_unknown());
        assert!(!to_error(cause, false).is_outcome_unknown());
    }
}
