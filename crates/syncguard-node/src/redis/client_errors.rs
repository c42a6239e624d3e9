//! What the errors of Redis clients in JavaScript mean.

use syncguard::ErrorKind;
use syncguard::redis::{Cause, reply_code};

use crate::clients::bridge::Rejection;

/// Whether it is an error of the server, as ioredis and node-redis 4 and 5 name it.
pub(super) fn is_reply(rejection: &Rejection) -> bool {
    let is_moved = matches!(reply_code(&rejection.message), Some("MOVED" | "ASK"));
    matches!(
        rejection.name.as_str(),
        "ReplyError" | "ErrorReply" | "SimpleError" | "BlobError"
    ) && !is_moved
}

/// What the error of a client means. ioredis and node-redis distinguish errors by `code`, by `name` or only by the
/// text.
pub(super) fn cause_of(rejection: &Rejection, is_cluster: bool) -> Cause<'_> {
    let words = rejection.message.as_str();
    let known = match reply_code(words) {
        // It has followed many of these.
        Some("MOVED" | "ASK") if is_cluster => Some(UNSETTLED),
        Some(_) => return Cause::Reply(words),
        None => by_code(rejection.code.as_deref().unwrap_or_default())
            .or_else(|| by_name(&rejection.name))
            .or_else(|| by_text(words)),
    };
    if known.is_none() && is_reply(rejection) {
        return Cause::Reply(words);
    }
    let (kind, what, may_be_done) = known.unwrap_or(FAILED);
    Cause::Client {
        kind,
        what,
        may_be_done,
        words,
    }
}

/// The kind of a failure, what happened, and whether a request that was sent may have been done.
type ErrorMeaning = (ErrorKind, &'static str, bool);

const FAILED: ErrorMeaning = (ErrorKind::Internal, "the redis client failed", true);
const MOCK: ErrorMeaning = (
    ErrorKind::InvalidArgument,
    "ioredis-mock cannot run this script: several keys at once, slots and once() need a server, or createTestBackend() of \
     syncguard/testing",
    true,
);
const UNREACHABLE: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "cannot connect to redis",
    false,
);
const CONNECT_TIMEOUT: ErrorMeaning = (
    ErrorKind::NetworkTimeout,
    "connecting to redis timed out",
    false,
);
const GAVE_UP: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client gave up connecting",
    true,
);
const NOT_CONNECTED: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client is not connected",
    false,
);
const CLIENT_CLOSED: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client is closed",
    false,
);
const CONNECTION_CLOSED: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "the connection to redis was closed",
    true,
);
const UNSETTLED: ErrorMeaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client found no node of the cluster that serves the locks with this key",
    true,
);
const OVERLOADED: ErrorMeaning = (
    ErrorKind::RateLimited,
    "the redis client has too many calls under way",
    false,
);
const UNANSWERED: ErrorMeaning = (
    ErrorKind::NetworkTimeout,
    "redis did not answer in time",
    true,
);

fn by_code(code: &str) -> Option<ErrorMeaning> {
    Some(match code {
        "ECONNREFUSED" | "ENOTFOUND" | "EAI_AGAIN" | "EHOSTUNREACH" | "ENETUNREACH" | "ENOENT"
        | "EADDRNOTAVAIL" => UNREACHABLE,
        "ECONNRESET" | "EPIPE" | "ECONNABORTED" | "NR_CLOSED" | "CONNECTION_BROKEN" => {
            CONNECTION_CLOSED
        }
        "ETIMEDOUT" | "ESOCKETTIMEDOUT" => UNANSWERED,
        // Of `redis/client.ts`.
        "CLUSTER_NOT_READY" => NOT_CONNECTED,
        "IOREDIS_MOCK" => MOCK,
        _ => return None,
    })
}

/// What an error calls itself, else what its class is called.
fn by_name(name: &str) -> Option<ErrorMeaning> {
    Some(match name {
        "MaxRetriesPerRequestError" | "ReconnectStrategyError" => GAVE_UP,
        "ClusterAllFailedError" | "RootNodesUnavailableError" => UNREACHABLE,
        "ConnectionTimeoutError" => CONNECT_TIMEOUT,
        "ClientClosedError" | "ClientOfflineError" => CLIENT_CLOSED,
        "AbortError"
        | "SocketClosedUnexpectedlyError"
        | "DisconnectsClientError"
        | "SocketTimeoutError" => CONNECTION_CLOSED,
        "TimeoutError"
        | "CommandTimeoutDuringMaintenanceError"
        | "SocketTimeoutDuringMaintenanceError" => UNANSWERED,
        _ => return None,
    })
}

/// The texts of errors that have neither a code nor a name of their own, and of those whose names a minifier has changed.
/// Each is the whole text.
const TEXTS: &[(&str, ErrorMeaning)] = &[
    // ioredis
    ("Command timed out", UNANSWERED),
    ("Connection is closed.", CONNECTION_CLOSED),
    ("Connection is aborted", CONNECTION_CLOSED),
    (
        "Connection is discarded because a new connection is made",
        CONNECTION_CLOSED,
    ),
    ("Command aborted due to connection close", CONNECTION_CLOSED),
    ("Cluster is ended.", CONNECTION_CLOSED),
    ("Cluster is disconnected.", CONNECTION_CLOSED),
    ("Cluster is disconnecting.", CONNECTION_CLOSED),
    ("Node is disconnected", CONNECTION_CLOSED),
    ("Failed to refresh slots cache.", UNREACHABLE),
    ("None of startup nodes is available", GAVE_UP),
    (
        "Stream isn't writeable and enableOfflineQueue options is false",
        NOT_CONNECTED,
    ),
    (
        "Cluster isn't ready and enableOfflineQueue options is false",
        NOT_CONNECTED,
    ),
    // node-redis
    ("Disconnects client", CONNECTION_CLOSED),
    ("Socket closed unexpectedly", CONNECTION_CLOSED),
    ("The command was aborted", CONNECTION_CLOSED),
    ("The client is closed", CLIENT_CLOSED),
    ("The client is offline", CLIENT_CLOSED),
    ("Cluster closed", CLIENT_CLOSED),
    ("Connection timeout", CONNECT_TIMEOUT),
    ("The queue is full", OVERLOADED),
    ("All the root nodes are unavailable", UNREACHABLE),
    ("None of the sentinels are available", UNREACHABLE),
    ("Couldn't connect to any sentinel node", UNREACHABLE),
    ("couldn't connect to any sentinels", UNREACHABLE),
    ("no valid master node", UNREACHABLE),
    ("Master Node Not Enumerated", UNREACHABLE),
];

/// How such texts begin that end with a number, an address or the words of another error.
const TEMPLATES: &[(&str, ErrorMeaning)] = &[
    (
        "Reached the max retries per request limit (which is ",
        GAVE_UP,
    ),
    ("Too many Cluster redirections. Last error: ", UNSETTLED),
    ("Cannot find node ", UNSETTLED),
];

fn by_text(text: &str) -> Option<ErrorMeaning> {
    let whole = TEXTS.iter().find(|(known, _)| *known == text);
    let begun = || TEMPLATES.iter().find(|(known, _)| text.starts_with(known));
    whole.or_else(begun).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{AuthFailed, Internal, NetworkTimeout, ServiceUnavailable};
    use syncguard::redis::to_error_hiding;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table: one row per error")]
    fn errors_are_known_by_code_name_or_fixed_text() {
        let js = |name: &str, code: &str, message: &str| Rejection {
            name: name.to_owned(),
            code: Some(code.to_owned()).filter(|code| !code.is_empty()),
            message: message.to_owned(),
        };
        for (rejection, kind, lost) in [
            (
                js("Error", "ECONNREFUSED", "connect ECONNREFUSED 127.0.0.1:1"),
                ServiceUnavailable,
                false,
            ),
            (
                js("Error", "ENOTFOUND", "getaddrinfo ENOTFOUND x"),
                ServiceUnavailable,
                false,
            ),
            (
                js("Error", "EAI_AGAIN", "getaddrinfo EAI_AGAIN x"),
                ServiceUnavailable,
                false,
            ),
            (
                js("Error", "ECONNRESET", "read ECONNRESET"),
                ServiceUnavailable,
                true,
            ),
            (
                js("Error", "EPIPE", "write EPIPE"),
                ServiceUnavailable,
                true,
            ),
            (
                js("Error", "ETIMEDOUT", "connect ETIMEDOUT"),
                NetworkTimeout,
                true,
            ),
            (js("Error", "", "Command timed out"), NetworkTimeout, true),
            (
                js("Error", "", "Connection is closed."),
                ServiceUnavailable,
                true,
            ),
            (
                js(
                    "MaxRetriesPerRequestError",
                    "",
                    "Reached the max retries per request limit (which is 20).",
                ),
                ServiceUnavailable,
                true,
            ),
            (
                js(
                    "Error",
                    "",
                    "Reached the max retries per request limit (which is 1).",
                ),
                ServiceUnavailable,
                true,
            ),
            (
                js(
                    "Error",
                    "",
                    "Stream isn't writeable and enableOfflineQueue options is false",
                ),
                ServiceUnavailable,
                false,
            ),
            (
                js("ConnectionTimeoutError", "", "Connection timeout"),
                NetworkTimeout,
                false,
            ),
            (
                js("ClientClosedError", "", "The client is closed"),
                ServiceUnavailable,
                false,
            ),
            (
                js("Error", "", "Socket closed unexpectedly"),
                ServiceUnavailable,
                true,
            ),
            (
                js("ReplyError", "", "WRONGPASS invalid username-password pair"),
                AuthFailed,
                false,
            ),
            (
                js("ReplyError", "", "READONLY You can't write"),
                ServiceUnavailable,
                false,
            ),
            (
                js("ReplyError", "", "ERR Connection timed out"),
                ServiceUnavailable,
                true,
            ),
            (
                js("ReplyError", "", "upstream failure"),
                ServiceUnavailable,
                true,
            ),
            (js("TypeError", "", "x is not a function"), Internal, true),
            (
                js("Error", "", "it says READONLY and ECONNREFUSED"),
                Internal,
                true,
            ),
            (
                js(
                    "Error",
                    "",
                    "Too many Cluster redirections. Last error: Error: Connection is closed.",
                ),
                ServiceUnavailable,
                true,
            ),
            (
                js(
                    "Error",
                    "",
                    "Cluster isn't ready and enableOfflineQueue options is false",
                ),
                ServiceUnavailable,
                false,
            ),
            (
                js("Error", "", "None of startup nodes is available"),
                ServiceUnavailable,
                true,
            ),
            (js("", "", ""), Internal, true),
        ] {
            let error = to_error_hiding(cause_of(&rejection, false), true, []);
            let found = (error.kind(), error.is_outcome_unknown());
            assert_eq!(found, (kind, lost), "{rejection:?}");
        }
    }

    #[test]
    fn texts_count_only_as_a_whole() {
        let of = |message: &str| {
            let rejection = Rejection {
                name: "Error".to_owned(),
                code: None,
                message: message.to_owned(),
            };
            to_error_hiding(cause_of(&rejection, false), true, []).kind()
        };
        for (text, (kind, ..)) in TEXTS {
            assert_eq!(of(text), *kind, "{text}");
            assert_ne!(*kind, Internal, "{text}");
            for other in [
                format!("{text} "),
                format!("so: {text}"),
                text.to_lowercase(),
            ] {
                let is_known = TEXTS.iter().any(|(known, _)| *known == other);
                assert!(is_known || of(&other) == Internal, "{other}");
            }
        }
        for (start, (kind, ..)) in TEMPLATES {
            assert_eq!(of(&format!("{start}1")), *kind, "{start}");
            assert_eq!(of(&format!("so: {start}1")), Internal, "{start}");
        }
    }

    #[test]
    fn a_client_of_a_cluster_has_followed_redirections_already() {
        let moved = Rejection {
            name: "ErrorReply".to_owned(),
            code: None,
            message: "MOVED 1 127.0.0.1:7000".to_owned(),
        };
        for (is_cluster, kind) in [
            (true, ServiceUnavailable),
            (false, ErrorKind::InvalidArgument),
        ] {
            let error = to_error_hiding(cause_of(&moved, is_cluster), true, []);
            assert_eq!(error.kind(), kind);
        }
    }
}
