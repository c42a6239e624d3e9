//! Redis through a client in JavaScript.

use std::fmt;

use async_trait::async_trait;
use napi_derive::napi;
use serde_json::{Value, json};
use syncguard::redis::{Cause, Plan, Reply, Transport, reply_code};
use syncguard::{Error, ErrorKind};

use crate::bridge::{Bridge, Rejection};

/// What is known about a client.
#[napi(object)]
pub struct RedisClientTraits {
    /// Whether it leads to a cluster.
    pub is_cluster: bool,
    /// What it puts before every key, if that is known.
    pub key_prefix: Option<String>,
}

/// Runs scripts through a client's own `eval`.
pub(crate) struct RedisClient {
    bridge: Bridge,
    traits: RedisClientTraits,
}

impl RedisClient {
    pub(crate) fn new(bridge: Bridge, traits: RedisClientTraits) -> Self {
        Self { bridge, traits }
    }

    /// The key without what the client itself puts before it.
    fn bare<'a>(&self, key: &'a str) -> &'a str {
        let prefix = self.traits.key_prefix.as_deref().unwrap_or_default();
        key.strip_prefix(prefix).unwrap_or(key)
    }

    fn error(&self, rejection: &Rejection, plan: &Plan) -> Error {
        let is_cluster = self.traits.is_cluster;
        // A script of the user's may choose its words, so that they need not begin with a code.
        let cause = match plan.is_callers() && is_reply(rejection) {
            true => Cause::Reply(&rejection.message),
            false => cause_of(rejection, is_cluster),
        };
        let error = plan.error(cause);
        // A client of a cluster may have sent the call before, to a node that did not answer.
        match is_cluster && error.kind().is_transient() {
            true => error.with_unknown_outcome(),
            false => error,
        }
    }
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisClient")
    }
}

#[async_trait]
impl Transport for RedisClient {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let request = json!({
            "isUsers": plan.is_callers(),
            "script": plan.script().source(),
            "keys": plan.keys().map(|key| self.bare(key)).collect::<Vec<_>>(),
            "args": plan.args().collect::<Vec<_>>(),
        });
        match self.bridge.ask(&request).await {
            Ok(value) if plan.is_callers() => users_reply(value),
            Ok(value) => reply(value),
            Err(rejection) => Err(self.error(&rejection, &plan)),
        }
    }

    fn is_cluster(&self) -> bool {
        self.traits.is_cluster
    }
}

/// The server may have done what was asked.
fn malformed() -> Error {
    Error::new(ErrorKind::Internal, "the client gave a malformed reply").with_unknown_outcome()
}

/// The reply to a script of the user's, which may be anything: see `redis/client.ts`.
fn users_reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Number(number) => match number.as_i64() {
            Some(number) => Reply::Int(number),
            None => Reply::Bulk(number.to_string().into_bytes()),
        },
        Value::Array(items) => Reply::Array(
            items
                .into_iter()
                .map(users_reply)
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => match fields.get("error").and_then(Value::as_str) {
            Some(words) => Reply::Error(words.to_owned()),
            None => return Err(malformed()),
        },
        value => reply(value)?,
    })
}

fn reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Null | Value::Bool(false) => Reply::Nil,
        Value::Bool(true) => Reply::Int(1),
        Value::Number(number) => {
            // JavaScript writes whole numbers without a fraction.
            Reply::Int(number.as_i64().ok_or_else(malformed)?)
        }
        Value::String(text) => Reply::Bulk(text.into_bytes()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::Object(_) => return Err(malformed()),
    })
}

/// Whether it is an error of the server, as ioredis and node-redis 4 and 5 name it.
fn is_reply(rejection: &Rejection) -> bool {
    let is_moved = matches!(reply_code(&rejection.message), Some("MOVED" | "ASK"));
    matches!(
        rejection.name.as_str(),
        "ReplyError" | "ErrorReply" | "SimpleError" | "BlobError"
    ) && !is_moved
}

/// What the error of a client means. ioredis and node-redis distinguish errors by `code`, by `name` or only by the
/// text.
fn cause_of(rejection: &Rejection, is_cluster: bool) -> Cause<'_> {
    let words = rejection.message.as_str();
    let known = match reply_code(words) {
        // It has followed many of these.
        Some("MOVED" | "ASK") if is_cluster => Some(UNSETTLED),
        Some(_) => return Cause::Reply(words),
        None => by_code(rejection.code.as_deref().unwrap_or_default())
            .or_else(|| by_name(&rejection.name))
            .or_else(|| by_text(words)),
    };
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
    fn replies_of_clients_become_replies() {
        assert_eq!(reply(json!(null)).unwrap(), Reply::Nil);
        assert_eq!(
            reply(json!([1, "2", -3])).unwrap(),
            Reply::Array(vec![
                Reply::Int(1),
                Reply::Bulk(b"2".to_vec()),
                Reply::Int(-3)
            ])
        );
        for bad in [json!(1.5), json!({}), json!([{}])] {
            let error = reply(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.is_outcome_unknown());
        }
    }

    #[test]
    fn replies_to_users_scripts_may_hold_anything() {
        let given = json!([1.5, 9007199254740993_i64, true, { "error": "MINE" }, [null]]);
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let expected = vec![
            bulk("1.5"),
            Reply::Int(9_007_199_254_740_993),
            Reply::Int(1),
            Reply::Error("MINE".to_owned()),
            Reply::Array(vec![Reply::Nil]),
        ];
        assert_eq!(users_reply(given).unwrap(), Reply::Array(expected));
        assert!(users_reply(json!({})).unwrap_err().is_outcome_unknown());
    }

    #[test]
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
            (js("ReplyError", "", "ERR syntax error"), Internal, false),
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
