//! Firestore through a client of the crate `firestore`.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use firestore::FirestoreDb;
use firestore::gcloud_sdk::error::{Error as SdkError, ErrorKind as SdkKind};
use syncguard::Error;
use syncguard::firestore::{FirestoreBackend, FirestoreConfig, without_token};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};

/// A backend over a client of the crate `firestore` 0.61, in its project and database.
///
/// It uses the client's channel, with the client's credentials, and the same calls as a connection of syncguard's own: an
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
/// use syncguard::firestore::FirestoreConfig;
/// use syncguard::{Backend, Key, LockOptions, lock};
///
/// let db = FirestoreDb::new("my-project").await?;
///
/// let backend = syncguard_clients::firestore_db::backend(&db, FirestoreConfig::default())?;
/// let backend: Arc<dyn Backend> = Arc::new(backend);
/// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn backend(db: &FirestoreDb, config: FirestoreConfig) -> Result<FirestoreBackend, Error> {
    let channel = db.client().get_with(Authorized);
    FirestoreBackend::over_channel(db.get_database_path(), channel, config)
}

type BoxError = Box<dyn StdError + Send + Sync>;

/// The channel of a client, which adds the credentials. Errors say whether it was those that were missing.
#[derive(Clone)]
struct Authorized<S>(S);

impl<S> Service<Request<Body>> for Authorized<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async { answer.await.map_err(recognized) })
    }
}

/// The error, as one that the backend knows if the credentials gave no token.
fn recognized(error: BoxError) -> BoxError {
    let sdk = error
        .downcast_ref::<SdkError>()
        .or_else(|| error.downcast_ref::<Box<SdkError>>().map(AsRef::as_ref));
    let (words, is_transient) = match sdk.map(SdkError::kind) {
        Some(SdkKind::Credentials(error)) => (error.to_string(), error.is_transient()),
        Some(SdkKind::CredentialsBuild(error)) => (error.to_string(), false),
        Some(SdkKind::CryptoProviderMissing) => (error.to_string(), false),
        _ => return error,
    };
    without_token(is_transient).with_source(words).into()
}
