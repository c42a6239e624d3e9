//! Redis through a client in JavaScript.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Value, json};
use syncguard::redis::{Cause, Plan, Reply, Transport, reply_code, to_error_hiding};
use syncguard::{Error, ErrorKind};

use crate::bridge::{Bridge, Rejection};

/// Runs scripts through a client's own `eval`.
pub(crate) struct ClientTransport(Bridge);

impl ClientTransport {
    pub(crate) fn new(bridge: Bridge) -> Self {
        Self(bridge)
    }
}

impl fmt::Debug for ClientTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTransport")
    }
}

#[async_trait]
impl Transport for ClientTransport {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let request = json!({
            "script": plan.script().source(),
            "keys": plan.keys().collect::<Vec<_>>(),
            "args": plan.args().collect::<Vec<_>>(),
        });
        match self.0.ask(&request).await {
            Ok(value) => reply(value),
            Err(rejection) => {
                let cause = cause_of(&rejection);
                Err(to_error_hiding(cause, true, plan.secrets()))
            }
        }
    }
}

fn reply(value: Value) -> Result<Reply, Error> {
    // The server may have done what was asked.
    let malformed = || {
        Error::new(ErrorKind::Internal, "the client gave a malformed reply").with_unknown_outcome()
    };
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

/// What the error of a client means. ioredis and node-redis distinguish errors by `code`, by `name` or only by the
/// text.
fn cause_of(rejection: &Rejection) -> Cause<'_> {
    let words = rejection.message.as_str();
    if reply_code(words).is_some() {
        return Cause::Reply(words);
    }
    let known = by_code(rejection.code.as_deref().unwrap_or_default())
        .or_else(|| by_name(&rejection.name))
        .or_else(|| by_text(words));
    let (kind, what, may_be_done) = known.unwrap_or(FAILED);
    Cause::Client {
        kind,
        what,
        may_be_done,
        words,
    }
}

/// The kind of a failure, what happened, and whether a request that was sent may have been done.
type Meaning = (ErrorKind, &'static str, bool);

const FAILED: Meaning = (ErrorKind::Internal, "the redis client failed", true);
const UNREACHABLE: Meaning = (
    ErrorKind::ServiceUnavailable,
    "cannot connect to redis",
    false,
);
const CONNECT_TIMEOUT: Meaning = (
    ErrorKind::NetworkTimeout,
    "connecting to redis timed out",
    false,
);
const GAVE_UP: Meaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client gave up connecting",
    true,
);
const NOT_CONNECTED: Meaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client is not connected",
    false,
);
const CLIENT_CLOSED: Meaning = (
    ErrorKind::ServiceUnavailable,
    "the redis client is closed",
    false,
);
const CONNECTION_CLOSED: Meaning = (
    ErrorKind::ServiceUnavailable,
    "the connection to redis was closed",
    true,
);
const UNANSWERED: Meaning = (
    ErrorKind::NetworkTimeout,
    "redis did not answer in time",
    true,
);

fn by_code(code: &str) -> Option<Meaning> {
    Some(match code {
        "ECONNREFUSED" | "ENOTFOUND" | "EAI_AGAIN" | "EHOSTUNREACH" | "ENETUNREACH" | "ENOENT"
        | "EADDRNOTAVAIL" => UNREACHABLE,
        "ECONNRESET" | "EPIPE" | "ECONNABORTED" | "NR_CLOSED" | "CONNECTION_BROKEN" => {
            CONNECTION_CLOSED
        }
        "ETIMEDOUT" | "ESOCKETTIMEDOUT" => UNANSWERED,
        _ => return None,
    })
}

fn by_name(name: &str) -> Option<Meaning> {
    Some(match name {
        "MaxRetriesPerRequestError" => GAVE_UP,
        "ConnectionTimeoutError" => CONNECT_TIMEOUT,
        "ClientClosedError" | "ClientOfflineError" => CLIENT_CLOSED,
        "SocketClosedUnexpectedlyError" | "DisconnectsClientError" | "SocketTimeoutError" => {
            CONNECTION_CLOSED
        }
        "TimeoutError" | "CommandTimeoutDuringMaintenanceError" => UNANSWERED,
        _ => return None,
    })
}

/// Plain errors of ioredis, which have no code but fixed texts.
fn by_text(text: &str) -> Option<Meaning> {
    Some(match text {
        "Command timed out" => UNANSWERED,
        "Connection is closed." | "Socket closed unexpectedly" => CONNECTION_CLOSED,
        "The client is closed" | "The client is offline" => CLIENT_CLOSED,
        "Connection timeout" => CONNECT_TIMEOUT,
        _ if text.starts_with("Reached the max retries per request limit") => GAVE_UP,
        _ if text.starts_with("Stream isn't writeable") => NOT_CONNECTED,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{AuthFailed, Internal, NetworkTimeout, ServiceUnavailable};

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
            (js("", "", ""), Internal, true),
        ] {
            let error = to_error_hiding(cause_of(&rejection), true, []);
            let found = (error.kind(), error.is_outcome_unknown());
            assert_eq!(found, (kind, lost), "{rejection:?}");
        }
    }
}
