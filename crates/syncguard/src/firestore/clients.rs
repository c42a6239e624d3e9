//! Firestore through a client of the crate `firestore`, which the application brings.

use std::sync::Arc;

use firestore::FirestoreDb;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;

use super::connection::access::Access;
use super::connection::client::{Client, Connection};
use super::{FirestoreBackend, FirestoreConfig, State};
use crate::error::Error;
use crate::time::SystemClock;
use crate::work::Work;

impl FirestoreBackend {
    /// A backend over a client of the crate `firestore` 0.61, in its project and database.
    ///
    /// It uses the client's channel, with the client's credentials, and the same calls as a connection of our own: an
    /// acquisition, a release or an extension takes two round trips. What `config` says about the database and how to
    /// connect to it does not count, nor does the environment. The client stays the application's. Waiters poll.
    ///
    /// The crate `firestore` needs one of its features for TLS, `tls-roots` or `tls-webpki-roots`; the application
    /// chooses it in its own dependency.
    ///
    /// # Repetitions
    ///
    /// The calls go past the retries of the crate, so nothing is sent twice. A lost answer to a commit is an error with
    /// [`is_outcome_unknown`](Error::is_outcome_unknown), and an acquisition that ends so is released in the
    /// background. The caller may also repeat it with the same lock id: the answer is then the lock as it was
    /// granted, with the same fence. A release that ends so may have freed the lock; repeated, it says
    /// `Absent(NotFound)`.
    ///
    /// # Time
    ///
    /// [`FirestoreConfig::operation_timeout`] bounds an operation; a shorter limit of the client's channel applies as
    /// well. The clock is that of this machine.
    ///
    /// # Errors
    /// `InvalidArgument` that names the field of the configuration.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use firestore::FirestoreDb;
    /// use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
    /// use syncguard::{Backend, Key, LockOptions, lock};
    ///
    /// let db = FirestoreDb::new("my-project").await?;
    ///
    /// let backend = FirestoreBackend::over_firestore_db(&db, FirestoreConfig::default())?;
    /// let backend: Arc<dyn Backend> = Arc::new(backend);
    /// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn over_firestore_db(db: &FirestoreDb, config: FirestoreConfig) -> Result<Self, Error> {
        let config = config.validated(|_| None)?;
        let access = Access::of_client(db.get_database_path(), &config)?;
        let grpc = db.client().get_with(FirestoreClient::new);
        let work = Work::default();
        let connection = Arc::new(Connection::over(grpc, access));
        let client = Client::new(connection, &config, work.clone());
        let state = State::Started(Arc::new(client));
        Ok(Self {
            work,
            ..Self::starting(state, config, SystemClock)?
        })
    }
}
