//! One connection for several backends.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::client::Connection;
use super::config::FirestoreConfig;
use crate::error::Error;

/// A connection to one database. It is made when it is needed, and ends with the last backend on it.
pub struct FirestoreConnection {
    config: FirestoreConfig,
    current: Mutex<Weak<Connection>>,
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
            current: Mutex::default(),
        })
    }

    /// The connection itself; a failure is tried again by the next call.
    pub(super) fn shared(&self) -> Result<Arc<Connection>, Error> {
        // A panic leaves nothing half done here.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = current.upgrade() {
            return Ok(shared);
        }
        let made = Arc::new(Connection::new(&self.config)?);
        *current = Arc::downgrade(&made);
        Ok(made)
    }
}

impl fmt::Debug for FirestoreConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirestoreConnection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
