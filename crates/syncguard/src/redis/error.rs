//! What failures of Redis and of its drivers mean. No type of the driver's errors is used outside this file.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::Arc;

use redis::{ErrorKind as RedisKind, RedisError, ServerError};

use super::connection::limited::TooLong;
use super::connection::stream::ServerEndpoint;
use crate::network::tls::is_refusal;
use crate::text::error::{Error, ErrorKind};
use crate::text::redact;

/// A failure, independent of any driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// The server replied with this error.
    Reply(&'a str),
    /// No connection could be made.
    Unreachable {
        /// The host and the port, or the socket in the file system.
        at: &'a str,
        /// The reason, such as that the connection was refused or that there is no such host.
        why: &'a str,
    },
    /// One side does not trust the other's certificate.
    Distrusted {
        /// The host and the port.
        at: &'a str,
        /// The reason in the words of the TLS library.
        why: &'a str,
    },
    /// Making a connection took too long.
    ConnectTimeout,
    /// No Sentinel could be asked, or none knows a primary.
    NoPrimary,
    /// The connection was ended, because another server has become the primary.
    Former,
    /// No node of the cluster serves the hash slot.
    NoNode,
    /// The nodes of the cluster send a call from one to another, and none takes it.
    Unsettled,
    /// The connection ended.
    Closed,
    /// The connection was ended, because a server that had been silent gave no sign of life when it was asked for one.
    Silent,
    /// The connection was ended, because nothing came on it while the server answered on another one.
    GoneSilent,
    /// The connection was ended, because a reply was none to the call that it would belong to: others may have got
    /// the wrong ones, too.
    Misfit,
    /// No answer came in time.
    Unanswered,
    /// What came is not the protocol of Redis.
    Unreadable,
    /// A reply is longer than any that locks need.
    Oversized,
    /// The driver refused its settings.
    Settings,
    /// The caller's own client failed, in a way that its [`Transport`](super::Transport) recognises.
    Client {
        /// What kind of failure that is.
        kind: ErrorKind,
        /// What happened, in our own words.
        what: &'static str,
        /// Whether a request that was sent may have been done.
        may_be_done: bool,
        /// The client's own words, if there are any.
        words: &'a str,
    },
}

/// What a failure means: the kind, the message, and whether the server may have done what was asked. `sent`
/// says whether the request may have been sent.
#[expect(clippy::too_many_lines, reason = "a table: one arm per cause")]
pub fn classify(cause: Cause<'_>, sent: bool) -> (ErrorKind, Cow<'static, str>, bool) {
    use ErrorKind::{Internal, InvalidArgument, NetworkTimeout, ServiceUnavailable};
    let (kind, message, lost) = match cause {
        Cause::Reply(text) => {
            let (kind, message, is_refusal) = by_reply(text);
            return (kind, message, sent && !is_refusal);
        }
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
        Cause::Distrusted { at, why } => {
            let message = format!("cannot connect to redis at {at}: {why}");
            return (ErrorKind::AuthFailed, message.into(), sent);
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
        Cause::Former => (
            ServiceUnavailable,
            "the redis server is not the primary any more; the connection to it was closed",
            true,
        ),
        Cause::NoNode => (
            ServiceUnavailable,
            "no node of the redis cluster serves the locks with this key",
            false,
        ),
        Cause::Unsettled => (
            ServiceUnavailable,
            "the nodes of the redis cluster do not agree which of them serves the locks with this key",
            false,
        ),
        Cause::Closed => (
            ServiceUnavailable,
            "the connection to redis was closed",
            true,
        ),
        Cause::Silent => (
            ServiceUnavailable,
            "the connection to redis was silent and gave no sign of life; it was closed",
            true,
        ),
        Cause::GoneSilent => (
            ServiceUnavailable,
            "the connection to redis has gone silent, while the server answers on another one",
            true,
        ),
        Cause::Misfit => (
            ServiceUnavailable,
            "the connection to redis gave a reply that does not fit its call; it was closed",
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

/// The error for a failure. Its message ends with the original words of the server, driver or client, if
/// there are any.
pub fn to_error(cause: Cause<'_>, sent: bool) -> Error {
    to_error_hiding(cause, sent, [])
}

/// The same, with `secrets` removed from the original words, which may quote what was sent.
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

/// The error of a script of the caller's: in the server's words, which the script may have chosen itself, unless they tell that
/// the server cannot do what it is asked.
pub(super) fn script_error<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> Error {
    let code = reply_code(text).unwrap_or("ERR");
    let (kind, _, is_refusal) = by_reply(text);
    let is_servers = is_refusal && kind != ErrorKind::Internal && code != "WRONGTYPE";
    if is_servers || code == "SYNCGUARD" {
        return to_error_hiding(Cause::Reply(text), true, secrets);
    }
    let words = redact::hide(text, secrets);
    match text.starts_with("ERR Error compiling script") {
        true => Error::invalid(format!("script: {words}")),
        false => Error::new(ErrorKind::Internal, words),
    }
}

fn with_words(message: &str, words: &str) -> String {
    if words.is_empty() {
        message.to_owned()
    } else {
        format!("{message}: {words}")
    }
}

/// The error for a connection that could not be made.
pub(super) fn cannot_connect(at: &ServerEndpoint, why: &str) -> Error {
    let at = at.to_string();
    to_error(Cause::Unreachable { at: &at, why }, false)
}

/// The error for a connection that could not be made because one side does not trust the other's certificate.
pub(super) fn distrusted(at: &ServerEndpoint, why: &str) -> Error {
    let at = at.to_string();
    to_error(Cause::Distrusted { at: &at, why }, false)
}

/// The reason of a server that has ended the connection because of our certificate, which in TLS 1.3 it does only after
/// the handshake.
pub(super) fn refused_by_tls(error: &RedisError) -> Option<String> {
    let tls: &rustls::Error = io_error(error)?.get_ref()?.downcast_ref()?;
    is_refusal(tls).then(|| format!("TLS failed: {tls}"))
}

/// The error for an error of the driver on an established connection.
pub(super) fn driver_error(error: &RedisError, sent: bool) -> Error {
    let cause = describe(error);
    let plain = to_error(cause, sent);
    // Only I/O errors: the words of other errors quote replies.
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

/// The code of an error reply: its first word. Where a command failed inside a script, it is the code of that
/// error. `None` for a text that has no code.
pub fn reply_code(text: &str) -> Option<&str> {
    let met = met_by_script(text);
    let bare = met.or(text.strip_prefix("ERR ")).unwrap_or(text);
    // Redis has no code for these: the first text is that of versions up to 7.0, the second that of later ones.
    if bare.starts_with("The user executing the script can't ")
        || bare.starts_with("ACL failure in script: ")
    {
        return Some("NOPERM");
    }
    if is_cluster_down(bare) {
        return Some("CLUSTERDOWN");
    }
    match met {
        Some(met) => Some(first_word(met).unwrap_or("ERR")),
        None => first_word(text),
    }
}

/// Whether a command inside a script was refused because the cluster is down. Scripts are run nevertheless with
/// `cluster-allow-reads-when-down yes`. Before version 7, the text begins with `Lua script`.
fn is_cluster_down(bare: &str) -> bool {
    let text = bare.strip_prefix("Lua s").or(bare.strip_prefix('S'));
    let what = text.and_then(|text| text.strip_prefix("cript attempted to execute a "));
    what.is_some_and(|what| {
        what.starts_with("write command while the cluster is down")
            || what.starts_with("command while the cluster is down")
    })
}

/// Whether that is the answer to a script which a cluster that is down has run up to its first command that writes. The state of
/// the cluster is the same as long as a script runs, so it has changed nothing.
pub(super) fn has_met_cluster_down(text: &str) -> bool {
    is_cluster_down(
        met_by_script(text)
            .or(text.strip_prefix("ERR "))
            .unwrap_or(text),
    )
}

fn first_word(text: &str) -> Option<&str> {
    let word = text.split_whitespace().next()?;
    let is_code = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some(word)
}

/// The error of a command inside a script, without what Redis before version 7 puts around it:
/// `ERR Error running script (call to f_<sha>): @user_script:25: @user_script: 25: -READONLY …`.
/// The second `@user_script` and the `-` are there only if the command was refused before it ran. From version 7
/// on, the text begins with the error itself.
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

/// What an error reply means, and whether it is a refusal: one that Redis gives before it changes anything. Any other may come from a
/// script that has run, or from a proxy that has given up on a server which goes on.
fn by_reply(text: &str) -> (ErrorKind, Cow<'static, str>, bool) {
    let code = reply_code(text).unwrap_or("ERR");
    let refusal = refusal_of_code(code).or_else(|| refusal_of_text(text));
    let (kind, hint) = refusal.unwrap_or(match is_of_script(text) {
        true => (ErrorKind::Internal, "unexpected error"),
        false => (
            ErrorKind::ServiceUnavailable,
            "an error that may be that of something between this process and the server",
        ),
    });
    let message = format!("redis answered {code}: {hint}").into();
    (kind, message, refusal.is_some())
}

fn refusal_of_code(code: &str) -> Option<(ErrorKind, &'static str)> {
    use ErrorKind::{AuthFailed, Internal, InvalidArgument, ServiceUnavailable};
    Some(match code {
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
            "the server is a node of a redis cluster: use redis+cluster:// instead of redis://",
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
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" => {
            (ServiceUnavailable, "the server cannot serve now")
        }
        "NOSCRIPT" => (
            Internal,
            "the server does not keep the scripts that it is sent",
        ),
        "SYNCGUARD" => (
            Internal,
            "what is stored under the key is no lock, or its fence counter no number; use another keyPrefix",
        ),
        _ => return None,
    })
}

/// Those without a code of their own, each as the server's words begin.
fn refusal_of_text(text: &str) -> Option<(ErrorKind, &'static str)> {
    use ErrorKind::{AuthFailed, Internal, InvalidArgument, RateLimited};
    let words = text.strip_prefix("ERR ")?;
    let begins_with = |beginnings: &[&str]| beginnings.iter().any(|of| words.starts_with(of));
    Some(match words {
        _ if begins_with(&["This instance has cluster support disabled"]) => (
            InvalidArgument,
            "the server is not a node of a redis cluster: use redis:// instead of redis+cluster://",
        ),
        _ if begins_with(&["max number of clients reached"]) => {
            (RateLimited, "the server has too many clients")
        }
        _ if begins_with(&["AUTH", "Client sent AUTH"]) => (
            AuthFailed,
            "a password was given and the server expects none",
        ),
        _ if begins_with(&["invalid password"]) => (AuthFailed, "the password is wrong"),
        _ if begins_with(&["DB index is out of range", "invalid DB index"]) => {
            (InvalidArgument, "db must be one of the server's databases")
        }
        _ if begins_with(&[
            "unknown command",
            "wrong number of arguments",
            "Error compiling script",
            "SELECT is not allowed",
        ]) =>
        {
            (Internal, "unexpected error")
        }
        _ => return None,
    })
}

/// Whether it tells of a script that has failed while it ran, as all versions say so, and Dragonfly.
fn is_of_script(text: &str) -> bool {
    text.starts_with("ERR Error running script")
        || text.contains("user_script:")
        || text.starts_with("ERR script tried ")
}

/// The server's error as one text again: the driver splits it into parts.
pub(super) fn error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// The cause behind an error of the driver. (Error replies of a server are values to the driver, not errors.)
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

/// The error of the stream, which the driver wraps in an `Arc`.
fn io_error(error: &RedisError) -> Option<&std::io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let shared: &Shared = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests;
