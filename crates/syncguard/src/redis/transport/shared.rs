//! One connection for several backends.

use std::fmt;
use std::sync::Arc;

use super::Transport;
use super::cluster::ClusterTransport;
use super::direct::DirectTransport;
use crate::network::event_loop::EventLoop;
use crate::network::shared::SharedConnection;
use crate::redis::config::{RedisConfig, RedisServer};
use crate::redis::names::ClientPrefix;
use crate::text::error::Error;

/// A connection to one server, or connections to the nodes of one cluster. They are made when they are needed, and
/// closed with the last backend that uses them.
pub struct RedisConnection {
    config: RedisConfig,
    event_loop: Option<Arc<dyn EventLoop>>,
    transport: SharedConnection<dyn Transport>,
}

impl RedisConnection {
    /// Uses what `config` says about the server and how to connect to it. Of [`RedisConfig::locks`] it uses
    /// only the operation timeout, for everything that is sent over the connection. Does no I/O.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting.
    pub fn new(config: RedisConfig) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self {
            config,
            event_loop: None,
            transport: SharedConnection::default(),
        })
    }

    /// Lets connections live on `event_loop` for what is called there. Heartbeats, releases in the background and all
    /// else that is called on tokio use others, which are made when they are first needed.
    pub fn on_event_loop(mut self, event_loop: Arc<dyn EventLoop>) -> Self {
        self.event_loop = Some(event_loop);
        self
    }

    pub(in crate::redis) fn transport(&self) -> Result<Arc<dyn Transport>, Error> {
        self.transport
            .get_or_share(|| to(&self.config, self.event_loop.as_ref()))
    }

    pub(in crate::redis) fn client_prefix(&self) -> ClientPrefix {
        self.config.client_prefix()
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The transport to where `config` says that the server is. Does no I/O.
pub(in crate::redis) fn to(
    config: &RedisConfig,
    event_loop: Option<&Arc<dyn EventLoop>>,
) -> Result<Arc<dyn Transport>, Error> {
    Ok(match &config.server {
        RedisServer::Cluster(set) => Arc::new(ClusterTransport::new(config, set, event_loop)?),
        _ => Arc::new(DirectTransport::new(config, event_loop)?),
    })
}
