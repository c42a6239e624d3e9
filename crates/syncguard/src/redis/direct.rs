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
    /// For plans that wait for replicas: the server runs nothing else of a connection that waits.
    waiting: Link<Dialer>,
    wakeups: Wakeups,
}

impl DirectTransport {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let operation_timeout = config.locks.operation_timeout;
        let dialer = Dialer::new(config)?;
        let patience = PATIENCE.min(operation_timeout / 2);
        Ok(Self {
            wakeups: Wakeups::new(Subscriptions(Arc::clone(&dialer.0))),
            waiting: Link::new(Dialer(Arc::clone(&dialer.0)), patience),
            link: Link::new(dialer, patience),
        })
    }

    async fn call(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        let link = match plan.replication() {
            None => &self.link,
            Some(_) => &self.waiting,
        };
        for _ in 0..CONNECTIONS {
            let connection = before_sending(link.get()).await?;
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

    fn waits_for_replicas(&self) -> bool {
        true
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
        self.link.trouble().or_else(|| self.waiting.trouble())
    }
}

impl Drop for DirectTransport {
    fn drop(&mut self) {
        self.link.close();
        self.waiting.close();
    }
}

impl fmt::Debug for DirectTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
