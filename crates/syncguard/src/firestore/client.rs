//! The connection: Firestore's four calls that locks need.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_request::ConsistencySelector as BatchFrom;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::ConsistencySelector as QueryFrom;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::transaction_options::{
    Mode, ReadWrite,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    self as api, BatchGetDocumentsRequest, CommitRequest, RollbackRequest, RunQueryRequest,
    TransactionOptions,
};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig};
use tonic::{Extensions, Request};

use super::config::FirestoreConfig;
use super::decision::Write;
use super::error::Failure;
use super::token::{Key, Token};
use super::transport::{Begun, Documents, ReadSet, Transport};
use super::wire::{Layout, Reply};
use crate::error::{Error, ErrorKind};

const PUBLIC_HOST: &str = "firestore.googleapis.com";

/// How long to try to end a transaction that nobody waits for.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(5);

/// A connection to one database. It connects when it is used, and again after it broke.
pub(super) struct Line {
    grpc: FirestoreClient<Channel>,
    database: String,
    routing: MetadataMap,
    token: Option<Token>,
}

impl Line {
    /// Reads the credentials, and prepares the connection without making it.
    pub(super) fn new(config: &FirestoreConfig) -> Result<Self, Error> {
        let key = match config.emulator_host {
            None => Some(Key::load(&config.credentials)?),
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
        let mut routing = MetadataMap::new();
        for (name, value) in [
            ("google-cloud-resource-prefix", database.clone()),
            ("x-goog-request-params", format!("database={database}")),
        ] {
            let value = MetadataValue::try_from(value)
                .map_err(|_| Error::invalid("projectId or databaseId is not an id"))?;
            routing.insert(name, value);
        }
        if config.emulator_host.is_some() {
            // Emulators take this for somebody who may do everything.
            routing.insert("authorization", MetadataValue::from_static("Bearer owner"));
        }
        Ok(Self {
            grpc: FirestoreClient::new(channel(config)?),
            database,
            routing,
            token: key.map(Key::into_token).transpose()?,
        })
    }

    async fn request<T>(&self, message: T) -> Result<Request<T>, Failure> {
        let mut metadata = self.routing.clone();
        if let Some(token) = &self.token {
            let headers = token.headers().await.map_err(Failure::unsent)?;
            metadata.as_mut().extend(headers);
        }
        Ok(Request::from_parts(metadata, Extensions::new(), message))
    }
}

/// The collections of one backend, over a connection.
pub(super) struct Client {
    line: Arc<Line>,
    layout: Layout,
}

impl Client {
    pub(super) fn new(line: Arc<Line>, config: &FirestoreConfig) -> Self {
        let layout = Layout::new(line.database.clone(), config);
        Self { line, layout }
    }

    /// Reads, and starts a transaction if there are options for one.
    async fn fetch(
        &self,
        what: &ReadSet,
        options: Option<TransactionOptions>,
    ) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        match what {
            ReadSet::Owned { lock_id } => {
                let request = self
                    .line
                    .request(RunQueryRequest {
                        parent: self.layout.documents(),
                        query_type: Some(self.layout.by_lock_id(lock_id)),
                        consistency_selector: options.map(QueryFrom::NewTransaction),
                        explain_options: None,
                    })
                    .await?;
                let mut parts = self
                    .line
                    .grpc
                    .clone()
                    .run_query(request)
                    .await?
                    .into_inner();
                while let Some(part) = parts.message().await? {
                    reply.begun(part.transaction);
                    if let Some(document) = part.document {
                        reply.add(&self.layout, document);
                    }
                }
            }
            ReadSet::Lock { lock } => {
                let documents = vec![self.layout.lock(lock)];
                self.fetch_documents(documents, options, &mut reply).await?;
            }
            ReadSet::LockAndCounter { lock, counter } => {
                let documents = vec![self.layout.lock(lock), self.layout.counter(counter)];
                self.fetch_documents(documents, options, &mut reply).await?;
            }
        }
        Ok(reply)
    }

    async fn fetch_documents(
        &self,
        documents: Vec<String>,
        options: Option<TransactionOptions>,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        use api::batch_get_documents_response::Result::Found;
        let request = self
            .line
            .request(BatchGetDocumentsRequest {
                database: self.layout.database().to_owned(),
                documents,
                mask: None,
                consistency_selector: options.map(BatchFrom::NewTransaction),
            })
            .await?;
        let mut grpc = self.line.grpc.clone();
        let mut parts = grpc.batch_get_documents(request).await?.into_inner();
        while let Some(part) = parts.message().await? {
            reply.begun(part.transaction);
            if let Some(Found(document)) = part.result {
                reply.add(&self.layout, document);
            }
        }
        Ok(())
    }

    async fn rollback(&self, transaction: Vec<u8>) -> Result<(), Failure> {
        let request = RollbackRequest {
            database: self.layout.database().to_owned(),
            transaction,
        };
        let request = self.line.request(request).await?;
        self.line.grpc.clone().rollback(request).await?;
        Ok(())
    }
}

#[async_trait]
impl Transport for Client {
    async fn read(&self, what: &ReadSet) -> Result<Documents, Failure> {
        Ok(self.fetch(what, None).await?.found)
    }

    async fn begin(&self, what: &ReadSet, repeats: Vec<u8>) -> Result<Begun, Failure> {
        let options = TransactionOptions {
            mode: Some(Mode::ReadWrite(ReadWrite {
                retry_transaction: repeats,
            })),
        };
        let reply = self.fetch(what, Some(options)).await?;
        Ok(Begun {
            transaction: reply.transaction,
            found: reply.found,
        })
    }

    async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<(), Failure> {
        let writes = writes.into_iter();
        let request = CommitRequest {
            database: self.layout.database().to_owned(),
            writes: writes.map(|write| self.layout.write(write)).collect(),
            transaction: transaction.to_vec(),
        };
        let request = self.line.request(request).await?;
        self.line.grpc.clone().commit(request).await?;
        Ok(())
    }

    fn abandon(self: Arc<Self>, transaction: Vec<u8>) {
        // Without a runtime, Firestore ends it after a minute.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(ROLLBACK_LIMIT, self.rollback(transaction)).await;
            });
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

fn channel(config: &FirestoreConfig) -> Result<Channel, Error> {
    let (host, tls) = match (&config.emulator_host, &config.endpoint) {
        (Some(host), _) => (host.as_str(), false),
        (None, Some(endpoint)) => (endpoint.host.as_str(), endpoint.tls),
        (None, None) => (PUBLIC_HOST, true),
    };
    let scheme = if tls { "https" } else { "http" };
    let mut endpoint = Channel::from_shared(format!("{scheme}://{host}"))
        .map_err(|_| Error::invalid("host must be host or host:port"))?
        .connect_timeout(config.operation_timeout)
        .tcp_keepalive(Some(Duration::from_secs(60)))
        // Finds out that the other side is gone, also before a call has to.
        .http2_keep_alive_interval(Duration::from_secs(60))
        .keep_alive_timeout(Duration::from_secs(20))
        .keep_alive_while_idle(true);
    if tls {
        endpoint = endpoint
            .tls_config(ClientTlsConfig::new().with_webpki_roots())
            .map_err(|error| {
                Error::new(ErrorKind::Internal, "TLS could not be set up").with_source(error)
            })?;
    }
    Ok(endpoint.connect_lazy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::Credentials;

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
            let Err(error) = Line::new(&config) else {
                panic!("a connection to no project");
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
        let line = Line::new(&config).unwrap();
        assert_eq!(line.database, "projects/from-key/databases/(default)");
    }
}
