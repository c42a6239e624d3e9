//! The caller's own client, and what its statements show of its connections.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::network::client_connections::ClientConnections;
use crate::network::switches::SwitchListener;
use crate::postgres::error::Failure;
use crate::postgres::statement::{Plan, Row, Transport};
use crate::text::error::ErrorKind;

/// Runs statements through a client, and notes what becomes of its connections.
pub(in crate::postgres) struct ClientStatements {
    client: Arc<dyn Transport>,
    connections: ClientConnections,
}

impl ClientStatements {
    pub(in crate::postgres) fn new(
        client: Arc<dyn Transport>,
        connections: &ClientConnections,
    ) -> Self {
        Self {
            client,
            connections: connections.clone(),
        }
    }

    async fn noted<T: Send>(
        &self,
        running: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let answer = running.await;
        match &answer {
            Ok(_) => self.connections.answered(begun),
            Err(failure) if is_of_connection(failure) => self.connections.lost(),
            Err(_) => {}
        }
        answer
    }
}

#[async_trait]
impl Transport for ClientStatements {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        self.noted(self.client.run(plan)).await
    }

    async fn run_late<'a>(
        &self,
        is_urgent: bool,
        plan: &(dyn Fn() -> Plan<'a> + Send + Sync),
    ) -> Result<Option<Row>, Failure> {
        self.noted(self.client.run_late(is_urgent, plan)).await
    }

    async fn run_beside(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        self.noted(self.client.run_beside(plan)).await
    }

    fn connections(&self) -> Option<usize> {
        self.client.connections()
    }

    fn on_switch(&self, listener: Weak<SwitchListener>) {
        self.client.on_switch(Weak::clone(&listener));
        self.connections.add(listener);
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.noted(self.client.batch(sql)).await
    }
}

/// Whether a connection has ended, or none could be made.
fn is_of_connection(failure: &Failure) -> bool {
    let error = failure.error();
    error.kind() == ErrorKind::ServiceUnavailable
        && (failure.state().is_none() || error.is_outcome_unknown())
}

impl fmt::Debug for ClientStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
