//! On which of several hosts a session is opened.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::connect::{Connector, Purpose};
use super::session::Session;
use crate::postgres::error::Failure;
use crate::postgres::fault::Fault;

impl Connector {
    /// Opens a session on the first host that accepts us.
    pub(super) async fn connect(&self) -> Result<Session, Failure> {
        self.connect_for(Purpose::Work).await
    }

    /// The same, and hands over the channels of the notifications that arrive.
    pub(in crate::postgres) async fn connect_to_listen(
        &self,
    ) -> Result<(Session, UnboundedReceiver<String>), Failure> {
        let (channels, arrived) = unbounded_channel();
        let connection = self.connect_for(Purpose::Listen(&channels)).await?;
        Ok((connection, arrived))
    }

    async fn connect_for(&self, purpose: Purpose<'_>) -> Result<Session, Failure> {
        let hosts = &self.config.hosts;
        let count = hosts.len();
        let first = self.in_use();
        let mut last = Failure::new(Fault::ConnectTimeout);
        let mut is_former = false;
        for index in (0..count).map(|step| (first + step) % count) {
            let Some(host) = hosts.get(index) else {
                continue;
            };
            let attempt = HostAttempt {
                connector: self,
                next: index + 1,
            };
            match timeout(self.time_for_one(), self.open(host, purpose)).await {
                Ok(Ok(connection)) => {
                    self.note(index, connection.era.as_ref());
                    if self.is_former(&connection) {
                        is_former = true;
                        continue;
                    }
                    std::mem::forget(attempt);
                    self.first.store(index, Ordering::Relaxed);
                    self.is_failing.store(false, Ordering::Relaxed);
                    self.losses().made();
                    return Ok(connection);
                }
                Ok(Err(failure)) => last = failure,
                Err(_) => last = Failure::too_late(host),
            }
        }
        self.is_failing.store(true, Ordering::Relaxed);
        Err(match is_former {
            true => Failure::new(Fault::FormerPrimary).after(&last),
            false => last,
        })
    }

    /// The index of the host that sessions are opened on.
    pub(super) fn in_use(&self) -> usize {
        self.first.load(Ordering::Relaxed) % self.hosts().len().max(1)
    }

    /// Whether the last attempt failed on all hosts. If so, an empty pool is due to that and not to its size.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// How long to try one host, so that all of them are tried before the operation that waits gives up.
    pub(super) fn time_for_one(&self) -> Duration {
        let count = u32::try_from(self.config.hosts.len()).unwrap_or(u32::MAX);
        let all = self
            .config
            .connect_timeout
            .min(self.operation_timeout() * 9 / 10);
        all / count
    }

    /// Called when the host in use no longer accepts writes: the next attempt begins with another one.
    pub(super) fn try_next_host_first(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }
}

/// An attempt to open a session on one host. When it is dropped without a session, because the host
/// failed or took too long or nobody waits any more, the next call of `connect` begins with the next host.
struct HostAttempt<'a> {
    connector: &'a Connector,
    next: usize,
}

impl Drop for HostAttempt<'_> {
    fn drop(&mut self) {
        self.connector.first.store(self.next, Ordering::Relaxed);
    }
}
