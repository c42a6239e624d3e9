//! The caller's own client, and what its calls show of its connections.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::time::Instant;

use super::Transport;
use crate::network::client_connections::ClientConnections;
use crate::network::event_loop::Lane;
use crate::network::switches::SwitchListener;
use crate::redis::plan::Plan;
use crate::redis::reply::Reply;
use crate::text::error::{Error, ErrorKind};
use crate::waiting::wakeups::Watch;

/// Runs scripts through a client, and notes what becomes of its connections.
pub(in crate::redis) struct ClientScripts {
    client: Arc<dyn Transport>,
    connections: ClientConnections,
}

impl ClientScripts {
    pub(in crate::redis) fn new(
        client: Arc<dyn Transport>,
        connections: &ClientConnections,
    ) -> Self {
        Self {
            client,
            connections: connections.clone(),
        }
    }
}

#[async_trait]
impl Transport for ClientScripts {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let begun = Instant::now();
        let reply = self.client.run(plan).await;
        match &reply {
            Ok(_) => self.connections.answered(begun),
            Err(error) if is_of_connection(error) => self.connections.lost(),
            Err(_) => {}
        }
        reply
    }

    fn is_cluster(&self) -> bool {
        self.client.is_cluster()
    }

    fn has_fixed_calls(&self) -> bool {
        self.client.has_fixed_calls()
    }

    fn waits_for_replicas(&self) -> bool {
        self.client.waits_for_replicas()
    }

    async fn node_of(&self, key: &str) -> Result<Option<String>, Error> {
        self.client.node_of(key).await
    }

    fn lane(&self) -> Option<Lane> {
        self.client.lane()
    }

    fn watch(&self, lock_key: &str) -> Option<Watch> {
        self.client.watch(lock_key)
    }

    fn on_switch(&self, listener: Weak<SwitchListener>) {
        self.client.on_switch(Weak::clone(&listener));
        self.connections.add(listener);
    }

    fn trouble(&self) -> Option<Error> {
        self.client.trouble()
    }
}

/// Whether the connection ended under way: what the server itself refuses is known not to be done.
fn is_of_connection(error: &Error) -> bool {
    error.kind() == ErrorKind::ServiceUnavailable && error.is_outcome_unknown()
}

impl fmt::Debug for ClientScripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
