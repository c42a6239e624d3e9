//! The transport to a Redis Cluster.
//!
//! Each node has a connection of its own, which is made when it is needed. A node that does not serve a hash slot says so
//! before it runs a script. So the script may be sent again to the node that it names, and nothing else is ever sent
//! twice. Why no driver does this here: docs/decisions/drivers.md, "Why hash slots are followed here".

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::Transport;
use crate::network::event_loop::EventLoop;
use crate::network::event_loop::Lane;
use crate::network::switches::SwitchListener;
use crate::random;
use crate::redis::answer::Answer;
use crate::redis::config::{RedisCluster, RedisConfig};
use crate::redis::connection::cluster::redirect::Redirect;
use crate::redis::connection::cluster::routes::{Node, Routes};
use crate::redis::error::{Cause, has_met_cluster_down, reply_code, to_error};
use crate::redis::hash_slots;
use crate::redis::plan::{Plan, ScriptForm};
use crate::redis::reply::Reply;
use crate::redis::wakeups::cluster::ClusterSubscriptions;
use crate::text::error::Error;
use crate::waiting::wakeups::{Wakeups, Watch};

/// How often a call may be sent to another node.
const REDIRECTS: u32 = 16;
/// More than these show that the nodes do not agree yet, so that it is worth waiting.
const QUICK_REDIRECTS: u32 = 3;
/// The first and the longest pause before a call is sent again.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// Runs scripts on the nodes of a cluster.
pub(super) struct ClusterTransport {
    routes: Arc<Routes>,
    wakeups: Wakeups,
    operation_timeout: Duration,
}

impl ClusterTransport {
    /// Does no I/O.
    pub(super) fn new(
        config: &RedisConfig,
        set: &RedisCluster,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) -> Result<Self, Error> {
        let routes = Routes::new(config, set, event_loop)?;
        Ok(Self {
            wakeups: Wakeups::new(ClusterSubscriptions(Arc::clone(&routes))),
            routes,
            operation_timeout: config.locks.operation_timeout,
        })
    }

    /// The hash slot of a plan: that of its first key, because all are in the same.
    fn slot(plan: &Plan) -> u16 {
        plan.keys().next().map_or(0, hash_slots::key_slot)
    }
}

#[async_trait]
impl Transport for ClusterTransport {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        // Before the operation's own time is over, so that the reason can be told.
        let patience = self.operation_timeout.mul_f64(0.75);
        let mut routing = Routing {
            routes: &self.routes,
            plan: &plan,
            slot: Self::slot(&plan),
            asked: None,
            form: ScriptForm::Hash,
            redirects: 0,
            pause: PAUSES[0],
            until: Instant::now() + patience,
        };
        loop {
            if let Some(reply) = routing.attempt().await? {
                return Ok(reply);
            }
        }
    }

    fn is_cluster(&self) -> bool {
        true
    }

    fn waits_for_replicas(&self) -> bool {
        true
    }

    fn lane(&self) -> Option<Lane> {
        Some(self.routes.lane())
    }

    async fn node_of(&self, key: &str) -> Result<Option<String>, Error> {
        let node = self.routes.owner(hash_slots::key_slot(key)).await?;
        Ok(node.map(|node| format!("{}:{}", node.address.0, node.address.1)))
    }

    fn watch(&self, lock_key: &str) -> Option<Watch> {
        Some(self.wakeups.watch(lock_key))
    }

    fn on_switch(&self, listener: Weak<SwitchListener>) {
        self.routes.switches().add(Weak::clone(&listener));
        self.routes.losses().add(listener);
    }

    fn trouble(&self) -> Option<Error> {
        self.routes.trouble()
    }
}

impl Drop for ClusterTransport {
    fn drop(&mut self) {
        self.routes.close();
    }
}

impl fmt::Debug for ClusterTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTransport").finish_non_exhaustive()
    }
}

/// The way of one script to the node that runs it.
struct Routing<'a> {
    routes: &'a Routes,
    plan: &'a Plan,
    slot: u16,
    /// The node to ask next, although it does not serve the hash slot yet.
    asked: Option<Arc<Node>>,
    form: ScriptForm,
    redirects: u32,
    pause: Duration,
    /// When to stop waiting for the cluster.
    until: Instant,
}

impl Routing<'_> {
    /// Sends the script to one node. `None`: it was not run, and is to be sent again.
    async fn attempt(&mut self) -> Result<Option<Reply>, Error> {
        let asked = self.asked.take();
        let is_asked = asked.is_some();
        let node = match asked {
            Some(node) => node,
            None => match self
                .plan
                .sending()
                .before(self.routes.owner(self.slot))
                .await?
            {
                Some(node) => node,
                None => {
                    self.routes.find_soon();
                    return self.wait(to_error(Cause::NoNode, false)).await;
                }
            },
        };
        let connecting = node.connections.for_plan(self.plan).get();
        let connection = match self.plan.sending().before(connecting).await {
            Ok(connection) => connection,
            Err(error) => return self.somewhere_else(&node, error).await,
        };
        let (asking, answer) = match is_asked {
            true => {
                let (asking, answer) = connection.run_asking(self.form, self.plan).await?;
                (Some(asking), answer)
            }
            false => (None, connection.run(self.form, self.plan).await?),
        };
        match answer {
            // It has lost its scripts, in a restart or a SCRIPT FLUSH, or has never seen this one.
            Answer::NoScript if matches!(self.form, ScriptForm::Hash) => {
                self.form = ScriptForm::Source;
                self.asked = is_asked.then_some(node);
                Ok(None)
            }
            // The connection was lost before: another one is made.
            Answer::NotSent if self.redirects < REDIRECTS => {
                self.redirects += 1;
                self.asked = is_asked.then_some(node);
                Ok(None)
            }
            Answer::Refused(text) => self.refused(&node, asking, &text).await,
            answer => answer.reply(|text| self.error(text)).map(Some),
        }
    }

    async fn refused(
        &mut self,
        node: &Arc<Node>,
        asking: Option<Answer>,
        text: &str,
    ) -> Result<Option<Reply>, Error> {
        let error = || self.error(text);
        // A script of the caller's may say that itself, and is never sent twice.
        let is_down = !self.plan.is_callers() && has_met_cluster_down(text);
        match Redirect::read(text).or(is_down.then_some(Redirect::Down)) {
            // It is to be known by a name, and has none.
            Some(Redirect::Moved("?", _) | Redirect::Ask("?", _)) => {
                self.routes.find().await;
                self.redirected(text).await
            }
            Some(Redirect::Moved(host, port)) => {
                // Without ASKING, a node refuses what it is asked: the reason is that it was not allowed.
                if let Some(Answer::Refused(text)) = asking {
                    return Err(self.error(&text));
                }
                let owner = self.named(node, host, port)?;
                self.routes.moved(self.slot, &owner);
                self.redirected(text).await
            }
            Some(Redirect::Ask(host, port)) => {
                self.asked = Some(self.named(node, host, port)?);
                self.redirected(text).await
            }
            Some(Redirect::TryAgain) => {
                let error = error();
                // The nodes agree, and the keys are on their way.
                self.redirects = 0;
                self.wait(error).await
            }
            Some(Redirect::Down) => {
                self.routes.find_soon();
                let error = error();
                self.wait(error).await
            }
            Some(Redirect::Loading) => {
                let error = error();
                self.somewhere_else(node, error).await
            }
            None => {
                if reply_code(text) == Some("READONLY") {
                    self.routes.find_soon();
                }
                Err(error())
            }
        }
    }

    /// The node at the address that `node` has told.
    fn named(&self, node: &Node, host: &str, port: u16) -> Result<Arc<Node>, Error> {
        // Without a host, it is on that of the node that tells.
        let host = if host.is_empty() {
            &node.address.0
        } else {
            host
        };
        self.routes.node((host, port))
    }

    /// Tries again if by now another node than `node` serves the hash slot. Nothing was sent to it, or it has run nothing.
    async fn somewhere_else(
        &mut self,
        node: &Arc<Node>,
        error: Error,
    ) -> Result<Option<Reply>, Error> {
        self.redirects += 1;
        if !error.kind().is_transient()
            || self.redirects > REDIRECTS
            || Instant::now() >= self.until
        {
            return Err(error);
        }
        self.routes.find().await;
        match self.routes.known_owner(self.slot) {
            Some(owner) if !Arc::ptr_eq(&owner, node) => Ok(None),
            _ => Err(error),
        }
    }

    async fn redirected(&mut self, text: &str) -> Result<Option<Reply>, Error> {
        self.form = ScriptForm::Hash;
        self.redirects += 1;
        if self.redirects <= QUICK_REDIRECTS {
            return Ok(None);
        }
        let error = to_error(Cause::Unsettled, false);
        if self.redirects <= REDIRECTS {
            return self.wait(error).await;
        }
        let message = format!("{}: {text}", error.message());
        Err(Error::new(error.kind(), message))
    }

    /// Waits a moment, for as long as there is time, and then gives up with `error`.
    async fn wait(&mut self, error: Error) -> Result<Option<Reply>, Error> {
        let pause = random::scattered(self.pause);
        if Instant::now() + pause >= self.until {
            return Err(error);
        }
        // A little longer than it waits, for the way of the next attempt.
        self.routes.waits(Instant::now() + 2 * PAUSES[1], &error);
        sleep(pause).await;
        self.pause = (self.pause * 2).min(PAUSES[1]);
        Ok(None)
    }

    fn error(&self, text: &str) -> Error {
        self.plan.error(Cause::Reply(text))
    }
}
