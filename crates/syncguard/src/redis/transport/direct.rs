//! The transport over a connection of our own, not through somebody else's client.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::Transport;
use crate::network::event_loop::EventLoop;
use crate::network::event_loop::Lane;
use crate::network::switches::SwitchListener;
use crate::redis::answer::Answer;
use crate::redis::config::RedisConfig;
use crate::redis::connection::script_connection::{Connections, PATIENCE};
use crate::redis::connection::target::Target;
use crate::redis::error::{Cause, to_error};
use crate::redis::plan::{Plan, ScriptForm};
use crate::redis::reply::Reply;
use crate::redis::wakeups::listen::Subscriptions;
use crate::text::error::Error;
use crate::waiting::wakeups::{Wakeups, Watch};

/// How many connections may be lost before a call is given to one of them.
const CONNECTIONS: u32 = 3;

/// Runs scripts on one server.
pub(super) struct DirectTransport {
    target: Arc<Target>,
    connections: Connections,
    wakeups: Wakeups,
}

impl DirectTransport {
    /// Does no I/O.
    pub(super) fn new(
        config: &RedisConfig,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) -> Result<Self, Error> {
        let target = Arc::new(Target::new(config)?);
        let patience = PATIENCE.min(config.locks.operation_timeout / 2);
        Ok(Self {
            connections: Connections::new(&target, event_loop, patience),
            wakeups: Wakeups::new(Subscriptions(Arc::clone(&target))),
            target,
        })
    }

    async fn call(&self, form: ScriptForm, plan: &Plan) -> Result<Answer, Error> {
        let link = self.connections.for_plan(plan);
        for _ in 0..CONNECTIONS {
            let connection = plan.sending().before(link.get()).await?;
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
        let mut answer = self.call(ScriptForm::Hash, &plan).await?;
        if let Answer::NoScript = answer {
            // The server has lost its scripts, in a restart or a SCRIPT FLUSH.
            answer = self.call(ScriptForm::Source, &plan).await?;
        }
        answer.reply(|text| plan.error(Cause::Reply(text)))
    }

    fn waits_for_replicas(&self) -> bool {
        true
    }

    fn lane(&self) -> Option<Lane> {
        Some(self.connections.lane())
    }

    fn watch(&self, lock_key: &str) -> Option<Watch> {
        Some(self.wakeups.watch(lock_key))
    }

    fn on_switch(&self, listener: Weak<SwitchListener>) {
        if let Some(switches) = self.target.switches() {
            switches.add(Weak::clone(&listener));
        }
        self.target.losses().add(listener);
    }

    fn trouble(&self) -> Option<Error> {
        self.connections.trouble()
    }
}

impl fmt::Debug for DirectTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
