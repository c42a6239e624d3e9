//! What a server says to a call.

use super::error::{Cause, to_error};
use super::reply::Reply;
use crate::text::error::Error;

/// What a server says to a call.
pub(super) enum Answer {
    Reply(Reply),
    /// It has run nothing, because it does not know the script of that hash.
    NoScript,
    /// An error, in its words.
    Refused(String),
    /// Nothing: the stream had ended before the call was given to it. Another one may carry it.
    NotSent,
}

impl Answer {
    /// The reply to a script that was sent in full, else the error. `refused` makes that of the server's words.
    pub(super) fn reply(self, refused: impl FnOnce(&str) -> Error) -> Result<Reply, Error> {
        match self {
            Self::Reply(reply) => Ok(reply),
            // No server says so of a script that it was sent in full: the answer may be that of another call.
            Self::NoScript => Err(to_error(Cause::Reply("NOSCRIPT"), true).with_unknown_outcome()),
            Self::Refused(text) => Err(refused(&text)),
            Self::NotSent => Err(to_error(Cause::Closed, false)),
        }
    }
}

/// The error of a call whose answer will not come.
pub(super) fn lost() -> Error {
    to_error(Cause::Closed, true)
}

/// The same, because its server is not the primary any more.
pub(super) fn former() -> Error {
    to_error(Cause::Former, true)
}
