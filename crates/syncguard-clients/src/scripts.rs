//! Scripts of Redis over a client: sent by their hash, and by their text when the server does not know them.
//!
//! What differs between clients is in the trait [`Client`]: how a script is sent, and what an error means.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use syncguard::redis::{
    Cause, ClientPrefix, Plan, RedisBackend, RedisLocks, Reply, Transport, reply_code,
};
use syncguard::{Error, ErrorKind};

/// A client that can send scripts.
pub(crate) trait Client: Send + Sync + 'static {
    /// What it is called, for `Debug`.
    const NAME: &'static str;

    /// Sends the command: `EVALSHA` or `EVAL`, the script's hash or text, and what the plan says.
    fn call(
        &self,
        command: &'static str,
        script: &str,
        plan: &Plan,
    ) -> impl Future<Output = Result<Reply, ClientError>> + Send;
}

/// The backend over a client.
pub(crate) fn backend(client: impl Client, locks: &RedisLocks) -> Result<RedisBackend, Error> {
    RedisBackend::over(Arc::new(ClientTransport(client)), ClientPrefix::None, locks)
}

/// The transport over a client.
struct ClientTransport<C>(C);

#[async_trait]
impl<C: Client> Transport for ClientTransport<C> {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let script = plan.script();
        let mut answer = self.0.call("EVALSHA", script.sha(), &plan).await;
        if answer.as_ref().is_err_and(ClientError::is_no_script) {
            answer = self.0.call("EVAL", script.source(), &plan).await;
        }
        answer.map_err(|trouble| trouble.into_error(&plan))
    }
}

impl<C: Client> fmt::Debug for ClientTransport<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(C::NAME)
    }
}

/// An error of a client.
pub(crate) struct ClientError {
    /// The kind of the client's own failure, what happened, and whether the command may have been carried out. `None`: the
    /// server replied with an error.
    failure: Option<(ErrorKind, &'static str, bool)>,
    /// The client's own words, or the server's.
    words: String,
    /// Its cause, if that can show nothing of what was sent.
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether an earlier sending of the same command may have been carried out: clients may repeat commands.
    may_be_repeated: bool,
}

impl ClientError {
    /// The server's reply. Its first word is its code.
    pub(crate) fn reply(words: impl Into<String>) -> Self {
        Self {
            failure: None,
            words: words.into(),
            source: None,
            may_be_repeated: false,
        }
    }

    pub(crate) fn failure(
        kind: ErrorKind,
        what: &'static str,
        may_be_done: bool,
        words: impl Into<String>,
    ) -> Self {
        Self {
            failure: Some((kind, what, may_be_done)),
            ..Self::reply(words)
        }
    }

    /// The same with its cause, which must show nothing of what was sent.
    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// The same of a client that repeats commands, or not.
    pub(crate) fn repeated(self, may_be_repeated: bool) -> Self {
        Self {
            may_be_repeated,
            ..self
        }
    }

    /// A reply that is none of Redis'.
    pub(crate) fn unreadable() -> Self {
        let what = "the client gave a malformed reply";
        Self::failure(ErrorKind::Internal, what, true, "")
    }

    fn is_no_script(&self) -> bool {
        self.failure.is_none() && reply_code(&self.words) == Some("NOSCRIPT")
    }

    /// The error for the caller, without anything that the plan holds.
    pub(crate) fn into_error(self, plan: &Plan) -> Error {
        let words = self.words.as_str();
        let cause = match self.failure {
            None => Cause::Reply(words),
            Some((kind, what, may_be_done)) => Cause::Client {
                kind,
                what,
                may_be_done,
                words,
            },
        };
        let mut error = plan.error(cause);
        if self.may_be_repeated {
            error = error.with_unknown_outcome();
        }
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

// What happened, in the words that all clients share.
pub(crate) const CLOSED: &str = "the connection to redis was closed";
pub(crate) const UNANSWERED: &str = "redis did not answer in time";
pub(crate) const FAILED: &str = "the redis client failed";
pub(crate) const LOGIN: &str = "the redis client could not log in";

/// What an operation sends on the key "secret", whose lock is named "locks:secret".
#[cfg(test)]
pub(crate) fn secret_plan() -> Plan {
    use syncguard::redis::{Names, force_release};
    let names = Names::new("locks", ClientPrefix::None);
    let key = syncguard::Key::new("secret");
    force_release::plan(&names.unwrap(), &key.unwrap(), None).unwrap()
}
