//! A call of the server that no task waits for.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cluster::Redirect;
use super::error::{Cause, reply_code, to_error, to_error_hiding};
use super::pipeline::Answer;
use super::scripts::Scripts;
use crate::backend::{OnSent, Operation, Outcome, Sent};
use crate::error::Error;

/// An operation, and whom to tell how it went. A [`Transport`](super::Transport) that takes it tells exactly once.
pub struct Call {
    operation: Operation,
    scripts: Arc<Scripts>,
    deadline: Instant,
    on_sent: OnSent,
}

impl Call {
    pub(super) fn new(
        operation: Operation,
        scripts: Arc<Scripts>,
        deadline: Instant,
        on_sent: OnSent,
    ) -> Self {
        Self {
            operation,
            scripts,
            deadline,
            on_sent,
        }
    }

    /// When its time is over.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Ends it before anything was sent.
    pub fn not_sent(self) {
        (self.on_sent)(Sent::NotSent(self.operation));
    }

    /// Ends it with the server's answer.
    pub(super) fn answered(self, answer: Result<Answer, Error>) {
        let is_undone = match &answer {
            Ok(Answer::NoScript | Answer::NotSent) => true,
            Ok(Answer::Reply(reply)) => self.scripts.is_elsewhere(reply),
            // In a cluster, the ordinary way finds the right node, or the right moment.
            Ok(Answer::Refused(text)) => {
                self.scripts.names.is_in_cluster() && Redirect::read(text).is_some()
            }
            Err(_) => false,
        };
        if is_undone {
            return self.not_sent();
        }
        let outcome = read(answer, &self.operation, &self.scripts);
        (self.on_sent)(Sent::Answered(outcome));
    }

    /// Ends it because its time is over. `answer` is what may still come.
    pub(super) fn late(self, answer: oneshot::Receiver<Result<Answer, Error>>) {
        let (operation, scripts) = (self.operation, self.scripts);
        (self.on_sent)(Sent::Late(Box::pin(async move {
            let answer = answer.await.unwrap_or_else(|_| Err(lost()));
            read(answer, &operation, &scripts)
        })));
    }
}

/// The error of a call whose answer will not come.
pub(super) fn lost() -> Error {
    to_error(Cause::Closed, true)
}

fn read(
    answer: Result<Answer, Error>,
    operation: &Operation,
    scripts: &Scripts,
) -> Result<Outcome, Error> {
    let reply = answer?.reply(|text| match scripts.plan(operation) {
        Ok(Some(sent)) => to_error_hiding(Cause::Reply(text), true, sent.secrets()),
        // It is not known any more what the server's words may quote.
        Ok(None) => to_error(Cause::Reply(reply_code(text).unwrap_or("ERR")), true),
        Err(error) => error,
    });
    scripts.outcome(operation, &reply?)
}
