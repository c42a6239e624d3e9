//! Logins that JavaScript is asked for, before each new connection.

use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use syncguard::{Error, ErrorKind, Login, LoginSource};
use tokio::time::timeout;

use crate::bridge::{Bridge, Rejection};
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
    /// `known` counts if JavaScript cannot be asked at once.
    pub(crate) fn new(bridge: Bridge, known: Option<Login>) -> Self {
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
    // Without the words of JavaScript's own error, which may contain the secret.
    let failed = |_| Error::new(ErrorKind::AuthFailed, "the password function failed");
    let answer = answer.map_err(failed)?;
    let text = |name| match answer.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::invalid(format!(
            "the {name} function must give a string"
        ))),
    };
    Ok(Login {
        user: text("user")?,
        password: text("password")?,
        database: text("database")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_logins() {
        let login = read(Ok(json!({ "user": "u", "database": null }))).unwrap();
        assert_eq!(login.user.as_deref(), Some("u"));
        assert_eq!((login.password, login.database), (None, None));
        let error = read(Ok(json!({ "password": 1 }))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("password"), "{error}");
        let rejection = Rejection {
            name: "Error".to_owned(),
            code: None,
            message: "the secret".to_owned(),
        };
        let error = read(Err(rejection)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed);
        assert!(!error.to_string().contains("secret"));
    }
}
