//! Clients that the application brings, as transports.
//!
//! Each sends the script by its hash, and by its text when the server does not know it. What differs is in the
//! trait [`Client`]: how a script is sent, and what an error means.

#[cfg(feature = "fred")]
mod fred;
#[cfg(feature = "redis-rs")]
mod redis_rs;

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;

use async_trait::async_trait;

use super::error::{Cause, reply_code, to_error_hiding};
use super::plan::{Form, Plan};
use super::reply::Reply;
use super::transport::Transport;
use crate::error::{Error, ErrorKind};

/// A client that can send scripts.
trait Client: Send + Sync + 'static {
    /// What it is called, for `Debug`.
    const NAME: &'static str;

    /// Sends the plan as one command.
    fn call(&self, form: Form, plan: &Plan) -> impl Future<Output = Result<Reply, Trouble>> + Send;
}

/// The transport over a client.
struct Over<C>(C);

#[async_trait]
impl<C: Client> Transport for Over<C> {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let mut answer = self.0.call(Form::Hash, &plan).await;
        if answer.as_ref().is_err_and(Trouble::is_no_script) {
            answer = self.0.call(Form::Source, &plan).await;
        }
        answer.map_err(|trouble| trouble.into_error(&plan))
    }
}

impl<C: Client> fmt::Debug for Over<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(C::NAME)
    }
}

/// An error of a client.
struct Trouble {
    what: What,
    /// The client's own words, or the server's.
    words: String,
    /// Its cause, if that can show nothing of what was sent.
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether an earlier sending of the same command may have been carried out: clients may repeat commands.
    may_be_repeated: bool,
}

enum What {
    /// The server replied with an error.
    Reply,
    /// The kind of the client's own failure, what happened, and whether the command may have been carried out.
    Failure(ErrorKind, &'static str, bool),
}

impl Trouble {
    /// The server's reply. Its first word is its code.
    fn reply(words: impl Into<String>) -> Self {
        Self {
            what: What::Reply,
            words: words.into(),
            source: None,
            may_be_repeated: false,
        }
    }

    fn failure(kind: ErrorKind, what: &'static str, may_be_done: bool) -> Self {
        Self {
            what: What::Failure(kind, what, may_be_done),
            ..Self::reply("")
        }
    }

    /// A reply that is none of Redis'.
    fn unreadable() -> Self {
        Self::failure(
            ErrorKind::Internal,
            "the client gave a malformed reply",
            true,
        )
    }

    fn is_no_script(&self) -> bool {
        matches!(self.what, What::Reply) && reply_code(&self.words) == Some("NOSCRIPT")
    }

    /// The error for the caller, without anything that the plan holds.
    fn into_error(self, plan: &Plan) -> Error {
        let words = self.words.as_str();
        let cause = match self.what {
            What::Reply => Cause::Reply(words),
            What::Failure(kind, what, may_be_done) => Cause::Client {
                kind,
                what,
                may_be_done,
                words,
            },
        };
        let mut error = to_error_hiding(cause, true, plan.secrets());
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
const CLOSED: &str = "the connection to redis was closed";
const UNANSWERED: &str = "redis did not answer in time";
const FAILED: &str = "the redis client failed";
const LOGIN: &str = "the redis client could not log in";
