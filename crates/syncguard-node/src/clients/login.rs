//! Logins that JavaScript is asked for, before each new connection.

use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use syncguard::{Error, ErrorKind, Login, LoginSource};
use tokio::time::timeout;

use crate::clients::bridge::{Bridge, Rejection};
use crate::mutex::lock;

/// How long JavaScript may be too busy to be asked. Then its last word counts: locks must be extended meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// What JavaScript says for each connection: an object with `user`, `password` and `database`, each of them a string if
/// it is there.
pub(crate) struct JavaScriptLogin {
    bridge: Bridge,
    /// What it has said last.
    known: Mutex<Option<Login>>,
}

impl JavaScriptLogin {
    /// `known` counts if JavaScript cannot be asked at once, unless nobody can log in before it was asked.
    pub(crate) fn new(bridge: Bridge, known: Login, is_needed: Option<bool>) -> Self {
        let known = (is_needed != Some(true)).then_some(known);
        Self {
            bridge,
            known: Mutex::new(known),
        }
    }

    fn known(&self) -> Option<Login> {
        lock(&self.known).clone()
    }
}

#[async_trait]
impl LoginSource for JavaScriptLogin {
    async fn login(&self) -> Result<Login, Error> {
        let asked_at = Instant::now();
        let question = json!({ "login": true });
        let mut answer = pin!(self.bridge.ask(&question));
        let answer = match timeout(PATIENCE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => match self.known() {
                Some(known) if !self.bridge.has_looked_since(asked_at) => return Ok(known),
                // It works on the answer.
                _ => answer.await,
            },
        };
        let login = read(answer)?;
        *lock(&self.known) = Some(login.clone());
        Ok(login)
    }
}

fn read(answer: Result<Value, Rejection>) -> Result<Login, Error> {
    // Its name and code say what it was. Not its words, which may contain the secret.
    let answer = answer.map_err(|Rejection { name, code, .. }| {
        let failed = Error::new(ErrorKind::AuthFailed, "the function for the login failed");
        failed.with_source(match code {
            Some(code) => format!("{name} ({code})"),
            None => name,
        })
    })?;
    let text = |name: &str, option: &str| match answer.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::invalid(format!(
            "the {option} function must give a string"
        ))),
    };
    Ok(Login {
        user: text("user", "username")?,
        password: text("password", "password")?,
        database: text("database", "database")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::error::causes;

    #[test]
    fn answers_become_logins() {
        let login = read(Ok(json!({ "user": "u", "database": null }))).unwrap();
        assert_eq!(login.user.as_deref(), Some("u"));
        assert_eq!((login.password, login.database), (None, None));
        for (answer, option) in [
            (json!({ "password": 1 }), "password"),
            (json!({ "user": false }), "username"),
        ] {
            let error = read(Ok(answer)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(option), "{error}");
        }
    }

    #[test]
    fn what_a_function_throws_is_the_cause_without_its_words() {
        for (code, cause) in [
            (None, "ExpiredToken"),
            (Some("E1".to_owned()), "ExpiredToken (E1)"),
        ] {
            let rejection = Rejection {
                name: "ExpiredToken".to_owned(),
                code,
                message: "the secret is too old".to_owned(),
            };
            let error = read(Err(rejection)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AuthFailed);
            assert!(!error.message().contains("ExpiredToken"), "{error}");
            assert_eq!(causes(&error), [cause]);
        }
    }
}
