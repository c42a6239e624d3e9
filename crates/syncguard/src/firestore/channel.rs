//! Firestore over a channel that the application brings.

use std::sync::Arc;

use super::collections::{Collections, TransportState};
use super::connection::access::Access;
use super::connection::client::{Channel, Client, Database};
use super::{FirestoreBackend, FirestoreConfig};
use crate::background::work::Work;
use crate::text::error::Error;
use crate::values::time::SystemClock;

impl FirestoreBackend {
    /// A backend over a gRPC channel of the application's, which adds the credentials to calls, in the database with that
    /// resource name (`projects/my-project/databases/(default)`). It makes the same calls as a connection of its own.
    /// What `config` says about the database and how to connect to it does not count, nor does the environment.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over_channel(
        database: &str,
        channel: impl Channel,
        config: FirestoreConfig,
    ) -> Result<Self, Error> {
        let access = Access::of_channel(database, &config)?;
        let work = Work::default();
        let connection = Arc::new(Database::over(channel, access));
        let client = Client::new(connection, &config, work.clone());
        let state = TransportState::Started(Arc::new(client));
        let config = config.validated(|_| None)?;
        Ok(Self {
            collections: Collections::new(state, config, SystemClock, work),
        })
    }
}
