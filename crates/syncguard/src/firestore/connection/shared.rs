//! One connection for several backends.

use std::fmt;
use std::sync::Arc;

use super::client::Database;
use crate::firestore::config::FirestoreConfig;
use crate::network::shared::SharedConnection;
use crate::text::error::Error;

/// A connection to one database. It is made when it is needed, and closed with the last backend that uses it.
pub struct FirestoreConnection {
    config: FirestoreConfig,
    current: SharedConnection<Database>,
}

impl FirestoreConnection {
    /// Uses what `config` says about the database and how to connect to it. Of the other settings it uses only the
    /// operation timeout, as the limit for connecting. Reads no file and does no I/O yet.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field of the configuration.
    pub fn new(config: FirestoreConfig) -> Result<Self, Error> {
        Ok(Self {
            config: config.validated(|name| std::env::var(name).ok())?,
            current: SharedConnection::default(),
        })
    }

    /// The connection itself. After a failure, the next call tries again.
    pub(in crate::firestore) fn shared(&self) -> Result<Arc<Database>, Error> {
        self.current.get_or_make(|| Database::new(&self.config))
    }
}

impl fmt::Debug for FirestoreConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirestoreConnection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
