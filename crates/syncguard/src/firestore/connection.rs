//! One connection for several backends.

use std::fmt;
use std::sync::Arc;

use super::client::Connection;
use super::config::FirestoreConfig;
use crate::error::Error;
use crate::shared::Shared;

/// A connection to one database. It is made when it is needed, and ends with the last backend on it.
pub struct FirestoreConnection {
    config: FirestoreConfig,
    current: Shared<Connection>,
}

impl FirestoreConnection {
    /// What `config` says of the database and the way to it; of the rest, only the operations' time limit
    /// counts, for connecting. Nothing is read and nobody is asked yet.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field of the configuration.
    pub fn new(config: FirestoreConfig) -> Result<Self, Error> {
        Ok(Self {
            config: config.validated(|name| std::env::var(name).ok())?,
            current: Shared::default(),
        })
    }

    /// The connection itself; a failure is tried again by the next call.
    pub(super) fn shared(&self) -> Result<Arc<Connection>, Error> {
        self.current.get_or_make(|| Connection::new(&self.config))
    }
}

impl fmt::Debug for FirestoreConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirestoreConnection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
