//! The transport over a connection of our own, not through somebody else's client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::call::Call;
use super::config::RedisConfig;
use super::dialer::Dialer;
use super::error::{Cause, to_error, to_error_hiding};
use super::link::Link;
use super::listen::Subscriptions;
use super::pipeline::Answer;
use super::plan::{Form, Plan};
use super::reply::Reply;
use super::transport::Transport;
use crate::error::Error;
use crate::sending::before_sending;
use crate::waiting::wakeups::{Wakeups, Watch};

/// How long calls wait, at most, while the server refuses connections, because it may be restarting.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How many connections may be lost before a call is given to one of them.
const CONNECTIONS: u32 = 3;

/// Runs scripts over one connection, which is made when it is needed.
pub(super) struct DirectTransport {
    link: Link<Dialer>,
    wakeups: Wakeups,
}

impl DirectTransport {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let operation_timeout = config.locks.operation_timeout;
        let dialer = Dialer::new(config)?;
        Ok(Self {
            wakeups: Wakeups::new(Subscriptions(Arc::clone(&dialer.0))),
            link: Link::new(dialer, PATIENCE.min(operation_timeout / 2)),
        })
    }

    async fn call(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        for _ in 0..CONNECTIONS {
            let connection = before_sending(self.link.get()).await?;
            match connection.run(form, plan).await? {
                Answer::NotSent => {}
                answer => return Ok(answer),
            }
        }
        Err(to_error(Cause::Closed, false))
    }
}

#[async_trait]
impl Transport for DirectTransport {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let mut answer = self.call(Form::Hash, &plan).await?;
        if let Answer::NoScript = answer {
            // The server has lost its scripts, in a restart or a SCRIPT FLUSH.
            answer = self.call(Form::Source, &plan).await?;
        }
        answer.reply(|text| to_error_hiding(Cause::Reply(text), true, plan.secrets()))
    }

    fn send(&self, plan: &Plan, call: Call) -> bool {
        match self.link.current() {
            Some(connection) => connection.send(plan, call),
            None => {
                call.not_sent();
                false
            }
        }
    }

    fn flush(&self) {
        if let Some(connection) = self.link.current() {
            connection.flush();
        }
    }

    fn watch(&self, lock_key: &str) -> Option<Watch> {
        Some(self.wakeups.watch(lock_key))
    }

    fn trouble(&self) -> Option<Error> {
        self.link.trouble()
    }
}

impl Drop for DirectTransport {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl fmt::Debug for DirectTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
