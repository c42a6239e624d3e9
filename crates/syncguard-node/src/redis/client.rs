//! Redis through a client in JavaScript.

use std::fmt;

use async_trait::async_trait;
use napi_derive::napi;
use serde_json::{Value, json};
use syncguard::redis::{Cause, Plan, Reply, Transport};
use syncguard::{Error, ErrorKind};

use super::client_errors::{cause_of, is_reply};
use crate::clients::bridge::{Bridge, Rejection};

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

    fn has_fixed_calls(&self) -> bool {
        true
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let value = json!([1.5, 9007199254740993_i64, true, { "error": "MINE" }, [null]]);
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let expected = vec![
            bulk("1.5"),
            Reply::Int(9_007_199_254_740_993),
            Reply::Int(1),
            Reply::Error("MINE".to_owned()),
            Reply::Array(vec![Reply::Nil]),
        ];
        assert_eq!(users_reply(value).unwrap(), Reply::Array(expected));
        assert!(users_reply(json!({})).unwrap_err().is_outcome_unknown());
    }
}
