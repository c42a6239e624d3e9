//! PostgreSQL through a client in JavaScript.

use std::fmt;
use std::io;

use async_trait::async_trait;
use serde_json::{Value, json};
use syncguard::postgres::{Failure, Fault, Param, Plan, Row, Transport};
use syncguard::{Error, ErrorKind};

use crate::clients::bridge::{Bridge, Rejection};

/// Runs statements through a client's own method for queries.
pub(crate) struct PostgresClient(Bridge);

impl fmt::Debug for PostgresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresClient")
    }
}

impl PostgresClient {
    pub(crate) fn new(bridge: Bridge) -> Self {
        Self(bridge)
    }

    /// The client's answer. JavaScript also answers, and does not reject, where the server reported an error:
    /// with its code, severity and words.
    async fn ask(&self, request: &Value) -> Result<Value, Failure> {
        let answer = self.0.ask(request).await.map_err(failure)?;
        let word = |name| answer.get(name).and_then(Value::as_str);
        match (word("code"), word("severity")) {
            (Some(code), severity @ Some(_)) => Err(failure_of(code, severity, word("message"))),
            _ => Ok(answer),
        }
    }
}

#[async_trait]
impl Transport for PostgresClient {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let params: Vec<Value> = plan
            .params
            .iter()
            .map(|param| match param {
                Param::Text(text) => json!(text),
                // As text, which the statements cast: a number of JavaScript has fewer digits.
                Param::BigInt(number) => json!(number.to_string()),
            })
            .collect();
        let request = json!({
            "sql": plan.statement.sql(),
            "params": params,
            "columns": plan.statement.columns(),
        });
        row(self.ask(&request).await?)
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.ask(&json!({ "batch": sql })).await.map(drop)
    }
}

fn row(value: Value) -> Result<Option<Row>, Failure> {
    let malformed = || Failure::new(Fault::Malformed).with_unknown_outcome();
    match value {
        Value::Null => Ok(None),
        Value::Array(columns) => columns
            .into_iter()
            .map(|column| match column {
                Value::Null => Ok(None),
                Value::String(text) => Ok(Some(text)),
                Value::Bool(yes) => Ok(Some(if yes { "t" } else { "f" }.to_owned())),
                Value::Number(number) => Ok(Some(number.to_string())),
                Value::Array(_) | Value::Object(_) => Err(malformed()),
            })
            .collect::<Result<Row, Failure>>()
            .map(Some),
        _ => Err(malformed()),
    }
}

fn failure(rejection: Rejection) -> Failure {
    failure_of(rejection.code.as_deref().unwrap_or_default(), None, None)
}

fn failure_of(code: &str, severity: Option<&str>, words: Option<&str>) -> Failure {
    match fault_of(code) {
        Some(Fault::State(state)) => Failure::reported(state, severity, words),
        Some(fault) => Failure::new(fault).with_unknown_outcome(),
        None => Failure::other(Error::new(
            ErrorKind::Internal,
            "the client failed with an error of its own",
        ))
        .with_unknown_outcome(),
    }
}

/// The fault for the `code` property of a client's error: an SQLSTATE, a code of the operating system, or one of the
/// client's own.
fn fault_of(code: &str) -> Option<Fault<'_>> {
    Some(match code {
        "ECONNREFUSED" => Fault::Io(io::ErrorKind::ConnectionRefused),
        "ENOENT" => Fault::Io(io::ErrorKind::NotFound),
        "ENOTFOUND" | "EAI_AGAIN" => Fault::UnknownHost,
        "EACCES" | "EPERM" => Fault::Io(io::ErrorKind::PermissionDenied),
        "ETIMEDOUT" => Fault::Io(io::ErrorKind::TimedOut),
        "ECONNRESET" | "EPIPE" | "EHOSTUNREACH" | "ENETUNREACH" | "ENETDOWN" => {
            Fault::Io(io::ErrorKind::ConnectionReset)
        }
        "CONNECT_TIMEOUT" => Fault::ConnectTimeout,
        "CONNECTION_CLOSED" | "CONNECTION_DESTROYED" => Fault::Closed,
        "CONNECTION_ENDED" => Fault::PoolClosed,
        "SASL_SIGNATURE_MISMATCH" | "AUTH_TYPE_NOT_IMPLEMENTED" => Fault::Session,
        state if is_state(state) => Fault::State(state),
        _ => return None,
    })
}

fn is_state(code: &str) -> bool {
    code.len() == 5
        && code
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
        && code.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_clients_become_rows() {
        assert_eq!(row(json!(null)).unwrap(), None);
        assert_eq!(
            row(json!(["a", null, true, 12])).unwrap(),
            Some(vec![
                Some("a".into()),
                None,
                Some("t".into()),
                Some("12".into())
            ])
        );
        for bad in [json!("a"), json!({}), json!([[]])] {
            assert_eq!(row(bad).unwrap_err().error().kind(), ErrorKind::Internal);
        }
    }

    #[test]
    fn rejections_are_classified_by_code() {
        for (code, kind, unknown) in [
            (Some("42P01"), ErrorKind::InvalidArgument, false),
            (Some("08P01"), ErrorKind::ServiceUnavailable, true),
            (Some("ECONNREFUSED"), ErrorKind::ServiceUnavailable, true),
            (Some("CONNECT_TIMEOUT"), ErrorKind::NetworkTimeout, true),
            (Some("whatever"), ErrorKind::Internal, true),
            (None, ErrorKind::Internal, true),
        ] {
            let failure = failure(Rejection {
                name: "Error".into(),
                code: code.map(str::to_owned),
                message: String::new(),
            });
            assert_eq!(failure.error().kind(), kind, "{code:?}");
            assert_eq!(failure.error().is_outcome_unknown(), unknown, "{code:?}");
        }
    }

    #[test]
    fn codes_are_known() {
        for (code, fault) in [
            (
                "ECONNREFUSED",
                Some(Fault::Io(io::ErrorKind::ConnectionRefused)),
            ),
            ("CONNECT_TIMEOUT", Some(Fault::ConnectTimeout)),
            ("CONNECTION_CLOSED", Some(Fault::Closed)),
            ("CONNECTION_ENDED", Some(Fault::PoolClosed)),
            ("40P01", Some(Fault::State("40P01"))),
            ("EPIPE", Some(Fault::Io(io::ErrorKind::ConnectionReset))),
            ("ENOTFOUND", Some(Fault::UnknownHost)),
            ("EBUSY", None),
            ("UNDEFINED_VALUE", None),
        ] {
            assert_eq!(fault_of(code), fault, "{code}");
        }
    }
}
