//! A connection of our own, whichever driver makes it.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::client::Dialer;
use super::config::RedisConfig;
use super::error::{Cause, reply_code, to_error_hiding};
use super::link::{Connection, Link};
use super::plan::Plan;
use super::reply::Reply;
use super::transport::Transport;
use crate::error::Error;

/// The longest that calls wait for a server that refuses connections: it may be restarting.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a script is named in a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Hash,
    Source,
}

/// What a server says to a call.
pub(super) enum Answer {
    Reply(Reply),
    /// An error, in its words.
    Refused(String),
}

/// A connection that runs scripts.
#[async_trait]
pub(super) trait Evaluate: Connection {
    /// Sends one call, once.
    async fn evaluate(&self, form: Form, plan: &Plan) -> Result<Answer, Error>;
}

/// Scripts over one connection, which is made when it is needed.
pub(super) struct NativeTransport {
    link: Link<Dialer>,
    /// The user's name and password.
    login: Vec<String>,
}

impl NativeTransport {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let operation_timeout = config.locks.operation_timeout;
        Ok(Self {
            link: Link::new(Dialer::new(config)?, PATIENCE.min(operation_timeout / 2)),
            login: [&config.username, &config.password]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
        })
    }

    async fn call(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        let connection = self.link.get().await?;
        let answer = connection.evaluate(form, plan).await?;
        if let Answer::Refused(text) = &answer
            && matches!(reply_code(text), Some("READONLY" | "NOAUTH"))
        {
            // The server is not what it was when the connection was made: look for it anew.
            self.link.replace(&connection);
        }
        Ok(answer)
    }
}

#[async_trait]
impl Transport for NativeTransport {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let mut answer = self.call(Form::Hash, &plan).await?;
        // The server has lost its scripts, in a restart or a SCRIPT FLUSH, and has run nothing.
        if let Answer::Refused(text) = &answer
            && reply_code(text) == Some("NOSCRIPT")
        {
            answer = self.call(Form::Source, &plan).await?;
        }
        match answer {
            Answer::Reply(reply) => Ok(reply),
            Answer::Refused(text) => {
                let secrets = plan.secrets().chain(self.login.iter().map(String::as_str));
                Err(to_error_hiding(Cause::Reply(&text), true, secrets))
            }
        }
    }

    fn trouble(&self) -> Option<Error> {
        self.link.trouble()
    }
}

impl Drop for NativeTransport {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl fmt::Debug for NativeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeTransport").finish_non_exhaustive()
    }
}
