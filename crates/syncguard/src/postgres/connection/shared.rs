//! One pool of connections for several backends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::pool::Pool;
use super::quota::Quotas;
use crate::network::shared::SharedConnection;
use crate::postgres::config::PostgresConfig;
use crate::postgres::statement::Transport;
use crate::postgres::wakeups::listen::Notifications;
use crate::text::error::Error;
use crate::waiting::wakeups::Wakeups;

/// Connections to one server. They are made when they are needed, and closed with the last backend that uses
/// them.
pub struct PostgresConnection {
    config: PostgresConfig,
    operation_timeout: Duration,
    current: SharedConnection<TransportInUse>,
}

impl PostgresConnection {
    /// Opens nothing before the first operation. `operation_timeout` is how long a statement on these
    /// connections may take.
    ///
    /// # Errors
    /// `InvalidArgument` for settings that cannot work.
    pub fn new(config: PostgresConfig, operation_timeout: Duration) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self {
            config,
            operation_timeout,
            current: SharedConnection::default(),
        })
    }

    pub(in crate::postgres) fn shared(&self) -> Result<Arc<TransportInUse>, Error> {
        self.current.get_or_make(|| {
            let pool = Pool::new(self.config.clone(), self.operation_timeout)?;
            let listen = Notifications::new(pool.connector());
            // Without prepared statements, sessions count as shared, and who shares one cannot listen.
            let wakeups = self.config.prepare.then(|| Wakeups::new(listen));
            Ok(TransportInUse {
                wakeups,
                ..TransportInUse::new(Arc::new(pool))
            })
        })
    }
}

impl fmt::Debug for PostgresConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConnection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The transport that statements run on, and how many operations are using it.
pub(in crate::postgres) struct TransportInUse {
    pub(in crate::postgres) transport: Arc<dyn Transport>,
    /// `None` if the transport does not say how many connections it has.
    pub(in crate::postgres) quotas: Option<Quotas>,
    /// Who waits for which lock, if there may be a session that listens.
    pub(in crate::postgres) wakeups: Option<Wakeups>,
    under_way: AtomicUsize,
}

impl TransportInUse {
    pub(in crate::postgres) fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            quotas: transport.connections().map(Quotas::new),
            transport,
            wakeups: None,
            under_way: AtomicUsize::new(0),
        }
    }

    /// Whether operations are under way for more than three quarters of the connections.
    pub(in crate::postgres) fn is_busy(&self) -> bool {
        let most = self.transport.connections();
        most.is_some_and(|most| self.under_way.load(Ordering::Relaxed) > most * 3 / 4)
    }

    /// Counts an operation as under way until the value is dropped.
    pub(in crate::postgres) fn begin(&self) -> impl Drop + '_ {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }
}

impl fmt::Debug for TransportInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportInUse")
            .field("transport", &self.transport)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
