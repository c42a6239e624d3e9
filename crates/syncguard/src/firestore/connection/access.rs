//! How to reach one database: where it is, and as whom.

use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use tonic::codegen::http::Uri;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Extensions, Request};

use super::connector::ChannelConnector;
use super::token::{KeyFile, Token};
use crate::firestore::config::FirestoreConfig;
use crate::firestore::error::Failure;
use crate::network::loaded::Loaded;
use crate::network::tls::{Check, client_config};
use crate::text::error::Error;

const PUBLIC_HOST: &str = "firestore.googleapis.com";

/// The longest silence on a connection in use before it is probed.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// A database, and the rights to use it. The credentials are read when they are first needed.
pub(in crate::firestore) struct Access {
    config: FirestoreConfig,
    entry: Loaded<Account>,
}

/// What is known once the credentials are read, which may name the project.
struct Account {
    /// The database's resource name.
    database: String,
    routing: MetadataMap,
    token: Option<Token>,
}

/// When a connection on which a call waits is tested by an HTTP/2 ping. Without an answer it is closed.
///
/// Servers refuse clients that ping often, or while no call waits.
pub(super) struct Pings {
    /// How long nothing may arrive before.
    interval: Duration,
    /// How long the other side may take to answer.
    patience: Duration,
}

impl Pings {
    /// Finds out within an operation's time that the connection was lost: two pings within that time are tolerated.
    pub(super) fn for_operations(operation_timeout: Duration) -> Self {
        Self {
            interval: (operation_timeout / 2).min(LONGEST_SILENCE),
            patience: (operation_timeout / 4).clamp(Duration::from_millis(100), LONGEST_SILENCE),
        }
    }

    /// For a stream that is open for long, and on which nothing happens most of the time.
    pub(super) fn for_listening() -> Self {
        Self {
            interval: Duration::from_secs(30),
            patience: Duration::from_secs(10),
        }
    }
}

impl Account {
    /// Reads the credentials.
    fn read(config: &FirestoreConfig) -> Result<Self, Error> {
        let key = match config.emulator_host {
            None => Some(KeyFile::load(&config.credentials)?),
            Some(_) => None,
        };
        let known = config.project_id.as_deref();
        let project = known
            .or_else(|| key.as_ref()?.project_id())
            .filter(|project| !project.is_empty())
            .ok_or_else(|| {
                Error::invalid("projectId is missing: set it, or GOOGLE_CLOUD_PROJECT")
            })?;
        let database = format!("projects/{project}/databases/{}", config.database_id);
        let mut routing = routing(&database)?;
        if config.emulator_host.is_some() {
            // To emulators, this token means an administrator.
            routing.insert("authorization", MetadataValue::from_static("Bearer owner"));
        }
        Ok(Self {
            database,
            routing,
            token: key.map(KeyFile::into_token).transpose()?,
        })
    }
}

impl Access {
    /// Does no I/O.
    pub(super) fn new(config: &FirestoreConfig) -> Self {
        Self {
            config: config.clone(),
            entry: Loaded::new(),
        }
    }

    /// To the database with that resource name, over a channel of the caller's, which adds the credentials.
    pub(in crate::firestore) fn of_channel(
        database: &str,
        config: &FirestoreConfig,
    ) -> Result<Self, Error> {
        Ok(Self {
            config: config.clone(),
            entry: Loaded::ready(Account {
                database: database.to_owned(),
                routing: routing(database)?,
                token: None,
            }),
        })
    }

    async fn entry(&self) -> Result<&Account, Failure> {
        // Less than the operation's own limit, so that the error says what took so long.
        let limit = self.config.operation_timeout * 9 / 10;
        let config = self.config.clone();
        let read = move || Account::read(&config);
        let entry = self.entry.get("the credentials for firestore", limit, read);
        entry.await.map_err(Failure::unsent)
    }

    /// The database's resource name.
    pub(super) async fn database(&self) -> Result<&str, Failure> {
        Ok(&self.entry().await?.database)
    }

    /// How long one operation may take.
    pub(super) fn operation_timeout(&self) -> Duration {
        self.config.operation_timeout
    }

    /// A connection of its own, which is made when it is first used, and again after it was lost.
    pub(super) fn client(&self, pings: Pings) -> Result<FirestoreClient<Channel>, Error> {
        channel(&self.config, &pings).map(FirestoreClient::new)
    }

    /// `message` as a request with these rights.
    pub(super) async fn request<T>(&self, message: T) -> Result<Request<T>, Failure> {
        let entry = self.entry().await?;
        let mut metadata = entry.routing.clone();
        if let Some(token) = &entry.token {
            let headers = token.headers().await.map_err(Failure::unsent)?;
            metadata.as_mut().extend(headers);
        }
        Ok(Request::from_parts(metadata, Extensions::new(), message))
    }
}

/// The headers by which Firestore finds the database.
fn routing(database: &str) -> Result<MetadataMap, Error> {
    let mut routing = MetadataMap::new();
    for (name, value) in [
        ("google-cloud-resource-prefix", database.to_owned()),
        ("x-goog-request-params", format!("database={database}")),
    ] {
        let value = MetadataValue::try_from(value).map_err(|_| {
            Error::invalid("projectId or databaseId has characters that ids cannot have")
        })?;
        routing.insert(name, value);
    }
    Ok(routing)
}

fn channel(config: &FirestoreConfig, pings: &Pings) -> Result<Channel, Error> {
    let (host, tls) = match (&config.emulator_host, &config.endpoint) {
        (Some(host), _) => (host.as_str(), false),
        (None, Some(endpoint)) => (endpoint.host.as_str(), endpoint.tls),
        (None, None) => (PUBLIC_HOST, true),
    };
    let unusable = || Error::invalid("host must be host or host:port");
    // The library would refuse to connect for a scheme for which it makes no TLS itself, so only requests have it.
    let scheme = if tls { "https" } else { "http" };
    let origin = Uri::try_from(format!("{scheme}://{host}")).map_err(|_| unusable())?;
    let trusted = config.default_roots.read();
    let settings = tls.then(|| client_config(Check::AuthorityAndName, trusted, None));
    let connector = ChannelConnector::new(settings.transpose()?);
    let endpoint = Channel::from_shared(format!("http://{host}"))
        .map_err(|_| unusable())?
        .origin(origin)
        // Less than the operation's own limit, so that the error says what took so long.
        .connect_timeout(config.operation_timeout * 3 / 4)
        // HTTP/2 pings find connections that were lost without notice. One is sent when nothing arrives during a
        // call, and with the first call on a connection that was idle. Without an answer, the connection is closed
        // before the call's time is over.
        .http2_keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.patience)
        .keep_alive_while_idle(false);
    Ok(endpoint.connect_with_connector_lazy(connector))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::Credentials;
    use crate::text::error::ErrorKind;

    #[test]
    fn without_a_project_the_first_operation_says_so() {
        for (emulator_host, credentials) in [
            (
                Some("127.0.0.1:1".to_owned()),
                Credentials::ApplicationDefault,
            ),
            (None, Credentials::Json("{}".to_owned())),
        ] {
            let config = FirestoreConfig {
                emulator_host,
                credentials,
                ..FirestoreConfig::default()
            };
            let Err(error) = Account::read(&config) else {
                panic!("access to no project");
            };
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(
                error.message(),
                "projectId is missing: set it, or GOOGLE_CLOUD_PROJECT"
            );
        }
    }

    #[tokio::test]
    async fn the_project_can_come_from_the_key() {
        let text = r#"{"client_email":"a@b","private_key":"k","project_id":"from-key"}"#;
        let config = FirestoreConfig {
            credentials: Credentials::Json(text.to_owned()),
            ..FirestoreConfig::default()
        };
        let access = Access::new(&config);
        let database = access.database().await.unwrap();
        assert_eq!(database, "projects/from-key/databases/(default)");
    }
}
