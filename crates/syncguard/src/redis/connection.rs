//! One connection for several backends.

use std::fmt;
use std::sync::Arc;

use super::config::RedisConfig;
use super::names::ClientPrefix;
use super::transport::{self, Transport};
use crate::error::Error;
use crate::shared::Shared;

/// A connection to one server, or connections to the nodes of one cluster. They are made when they are needed, and
/// closed with the last backend that uses them.
pub struct RedisConnection {
    config: RedisConfig,
    transport: Shared<dyn Transport>,
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
            transport: Shared::default(),
        })
    }

    pub(super) fn transport(&self) -> Result<Arc<dyn Transport>, Error> {
        self.transport.get_or_share(|| transport::to(&self.config))
    }

    pub(super) fn client_prefix(&self) -> ClientPrefix {
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
