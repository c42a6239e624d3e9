//! The connection, and the four calls of Firestore's API that operations need.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_request::ConsistencySelector as BatchFrom;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::{
    ConsistencySelector as QueryFrom, QueryType,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::transaction_options::{
    Mode, ReadWrite,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    self as api, BatchGetDocumentsRequest, CommitRequest, RollbackRequest, RunQueryRequest,
    RunQueryResponse, TransactionOptions,
};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::StdError;
use tonic::transport;
use tonic::{Request, Streaming};

use super::access::{Access, Pings};
use super::listen::{Listening, topic};
use super::wire::{ReadReply, ResourceNames, milliseconds};
use crate::background::permits::Permits;
use crate::background::work::Work;
use crate::firestore::config::FirestoreConfig;
use crate::firestore::decision::Write;
use crate::firestore::error::Failure;
use crate::firestore::transport::{Documents, Page, ReadSet, StartedTransaction, Transport};
use crate::text::error::Error;
use crate::waiting::wakeups::{Wakeups, Watch};

/// How many calls are on their way at a time. Servers accept about a hundred on a connection, and further ones wait where
/// nobody can go before others.
const CALLS_AT_ONCE: usize = 100;

/// How long to try to roll back a transaction that nobody waits for.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);

/// What carries calls to Firestore: a [`tonic::transport::Channel`], or a service around one.
///
/// It sends each call once. An error of it that is an [`Error`] is that of the operation, and says that the call was
/// not sent; [`without_token`](super::super::without_token) makes one.
pub trait Channel:
    GrpcService<Body, Error: Into<StdError>, Future: Send, ResponseBody = Body>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Channel for S where
    S: GrpcService<Body, Error: Into<StdError>, Future: Send, ResponseBody = Body>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// A connection to one database. It connects when it is first used, and again after it was lost.
pub(in crate::firestore) struct Database<S = transport::Channel> {
    access: Arc<Access>,
    grpc: FirestoreClient<S>,
    permits: Arc<Permits>,
    /// `None` where nobody can be told of changes.
    wakeups: Option<Wakeups>,
}

impl Database {
    /// Prepares the connection without making it. Reads no file.
    pub(super) fn new(config: &FirestoreConfig) -> Result<Self, Error> {
        let access = Arc::new(Access::new(config));
        Ok(Self {
            grpc: access.client(Pings::for_operations(config.operation_timeout))?,
            permits: Permits::new(CALLS_AT_ONCE),
            wakeups: Some(Wakeups::new(Listening::new(&access))),
            access,
        })
    }
}

impl<S: Channel> Database<S> {
    /// Over a channel of the caller's, which adds the credentials.
    pub(in crate::firestore) fn over(channel: S, access: Access) -> Self {
        Self {
            access: Arc::new(access),
            grpc: FirestoreClient::new(channel),
            permits: Permits::new(CALLS_AT_ONCE),
            wakeups: None,
        }
    }
}

impl<S> Database<S> {
    async fn request<T>(&self, message: T) -> Result<Request<T>, Failure> {
        self.access.request(message).await
    }
}

/// The transport of one backend: its collections, over a connection.
pub(in crate::firestore) struct Client<S = transport::Channel> {
    connection: Arc<Database<S>>,
    names: Arc<LazyNames>,
    /// The work of the backend, in which rollbacks in the background are counted.
    work: Work,
}

/// How documents are read.
#[derive(Clone)]
enum Consistency {
    /// Outside of a transaction.
    Alone,
    /// They begin a transaction.
    Beginning(TransactionOptions),
    /// In the transaction with this id.
    Within(Vec<u8>),
}

impl Consistency {
    fn of_query(self) -> Option<QueryFrom> {
        match self {
            Self::Alone => None,
            Self::Beginning(options) => Some(QueryFrom::NewTransaction(options)),
            Self::Within(transaction) => Some(QueryFrom::Transaction(transaction)),
        }
    }

    fn of_documents(self) -> Option<BatchFrom> {
        match self {
            Self::Alone => None,
            Self::Beginning(options) => Some(BatchFrom::NewTransaction(options)),
            Self::Within(transaction) => Some(BatchFrom::Transaction(transaction)),
        }
    }
}

struct LazyNames {
    config: FirestoreConfig,
    /// Known once the database is.
    layout: OnceLock<ResourceNames>,
}

impl<S> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self {
            connection: Arc::clone(&self.connection),
            names: Arc::clone(&self.names),
            work: self.work.clone(),
        }
    }
}

impl<S: Channel> Client<S> {
    pub(in crate::firestore) fn new(
        connection: Arc<Database<S>>,
        config: &FirestoreConfig,
        work: Work,
    ) -> Self {
        Self {
            connection,
            names: Arc::new(LazyNames {
                config: config.clone(),
                layout: OnceLock::new(),
            }),
            work,
        }
    }

    async fn layout(&self) -> Result<&ResourceNames, Failure> {
        let database = self.connection.access.database().await?;
        let names = &*self.names;
        let layout = || ResourceNames::new(database.to_owned(), &names.config);
        Ok(names.layout.get_or_init(layout))
    }

    /// Starts a transaction with reads. If they fail, the transaction is rolled back.
    async fn start(self, what: ReadSet, repeats: Vec<u8>) -> Result<ReadReply, Failure> {
        let options = TransactionOptions {
            mode: Some(Mode::ReadWrite(ReadWrite {
                retry_transaction: repeats,
            })),
        };
        let mut reply = ReadReply::default();
        match self
            .fetch(&what, Consistency::Beginning(options), &mut reply)
            .await
        {
            Ok(()) => Ok(reply),
            Err(failure) => {
                if !reply.transaction.is_empty() {
                    let work = self.work.clone();
                    in_background(&work, self.end(reply.transaction));
                }
                Err(failure)
            }
        }
    }

    async fn fetch(
        &self,
        what: &ReadSet,
        mut how: Consistency,
        reply: &mut ReadReply,
    ) -> Result<(), Failure> {
        let layout = self.layout().await?;
        match what {
            ReadSet::Owned { lock_ids } => {
                for query in layout.by_lock_ids(lock_ids) {
                    self.fetch_query(query, how.clone(), reply).await?;
                    // The first has started the transaction.
                    if !reply.transaction.is_empty() {
                        how = Consistency::Within(reply.transaction.clone());
                    }
                }
            }
            ReadSet::Between {
                from,
                before,
                limit,
            } => {
                let query = layout.between(from, before, *limit);
                self.fetch_query(query, how, reply).await?;
            }
            ReadSet::Named { locks, counters } => {
                let locks = locks.iter().map(|lock| layout.lock(lock));
                let counters = counters.iter().map(|counter| layout.counter(counter));
                let documents = locks.chain(counters).collect();
                self.fetch_documents(documents, how, reply).await?;
            }
        }
        Ok(())
    }

    async fn fetch_query(
        &self,
        query: QueryType,
        how: Consistency,
        reply: &mut ReadReply,
    ) -> Result<(), Failure> {
        let layout = self.layout().await?;
        let asked = Instant::now();
        let mut parts = self.query(query, how).await?;
        while let Some(part) = parts.message().await? {
            reply.begun(part.transaction);
            let time = part.read_time.map(|it| milliseconds(it.seconds, it.nanos));
            reply.note_time(time, asked);
            if let Some(document) = part.document {
                reply.add(layout, document);
            }
        }
        Ok(())
    }

    async fn query(
        &self,
        query: QueryType,
        how: Consistency,
    ) -> Result<Streaming<RunQueryResponse>, Failure> {
        let request = RunQueryRequest {
            parent: self.layout().await?.documents(),
            query_type: Some(query),
            consistency_selector: how.of_query(),
            explain_options: None,
        };
        let request = self.connection.request(request).await?;
        let mut grpc = self.connection.grpc.clone();
        Ok(grpc.run_query(request).await?.into_inner())
    }

    async fn fetch_documents(
        &self,
        documents: Vec<String>,
        how: Consistency,
        reply: &mut ReadReply,
    ) -> Result<(), Failure> {
        use api::batch_get_documents_response::Result::Found;
        let layout = self.layout().await?;
        let mut unanswered = documents.len();
        let request = self
            .connection
            .request(BatchGetDocumentsRequest {
                database: layout.database().to_owned(),
                documents,
                mask: None,
                consistency_selector: how.of_documents(),
            })
            .await?;
        let mut grpc = self.connection.grpc.clone();
        let asked = Instant::now();
        let mut parts = grpc.batch_get_documents(request).await?.into_inner();
        while let Some(part) = parts.message().await? {
            reply.begun(part.transaction);
            let time = part.read_time.map(|it| milliseconds(it.seconds, it.nanos));
            reply.note_time(time, asked);
            unanswered = unanswered.saturating_sub(part.result.iter().len());
            if let Some(Found(document)) = part.result {
                reply.add(layout, document);
            }
        }
        // What nothing was said of must not be taken for a document that does not exist.
        match unanswered {
            0 => Ok(()),
            _ => Err(Failure::malformed()),
        }
    }

    /// Tries to roll back.
    async fn end(self, transaction: Vec<u8>) {
        let Ok(layout) = self.layout().await else {
            return;
        };
        let request = RollbackRequest {
            database: layout.database().to_owned(),
            transaction,
        };
        if let Ok(request) = self.connection.request(request).await {
            let _ = self.connection.grpc.clone().rollback(request).await;
        }
    }
}

/// Runs a task that no operation waits for. Without a runtime it does nothing, and Firestore itself ends the
/// transaction after a minute.
fn in_background(work: &Work, task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let counted = work.start_in_background();
        runtime.spawn(async move {
            let _counted = counted;
            let _ = tokio::time::timeout(CLEANUP_LIMIT, task).await;
        });
    }
}

/// A transaction that is being started. If it is dropped before the answer, it waits for the answer in the
/// background, because only the answer has the id that is needed to roll the transaction back.
struct Starting<S: Channel> {
    client: Client<S>,
    reply: Pin<Box<dyn Future<Output = Result<ReadReply, Failure>> + Send>>,
    is_answered: bool,
}

impl<S: Channel> Future for Starting<S> {
    type Output = Result<ReadReply, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.reply.as_mut().poll(context);
        self.is_answered = reply.is_ready();
        reply
    }
}

impl<S: Channel> Drop for Starting<S> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let client = self.client.clone();
        let reply = std::mem::replace(&mut self.reply, Box::pin(std::future::pending()));
        in_background(&self.client.work, async move {
            if let Ok(reply) = reply.await {
                client.end(reply.transaction).await;
            }
        });
    }
}

#[async_trait]
impl<S: Channel> Transport for Client<S> {
    async fn read(&self, what: &ReadSet) -> Result<Documents, Failure> {
        let _permit = self.connection.permits.acquire(false).await;
        let mut reply = ReadReply::default();
        self.fetch(what, Consistency::Alone, &mut reply).await?;
        Ok(reply.found)
    }

    async fn begin(&self, what: &ReadSet, repeats: Vec<u8>) -> Result<StartedTransaction, Failure> {
        // Releases and extensions: what frees or keeps a lock that is held goes first.
        let is_urgent = matches!(what, ReadSet::Owned { .. });
        let permit = self.connection.permits.acquire(is_urgent).await;
        let start = self.clone().start(what.clone(), repeats);
        let starting = Starting {
            client: self.clone(),
            reply: Box::pin(async move {
                let _permit = permit;
                start.await
            }),
            is_answered: false,
        };
        let reply = starting.await?;
        Ok(StartedTransaction {
            transaction: reply.transaction,
            found: reply.found,
        })
    }

    async fn more(&self, transaction: &[u8], what: &ReadSet) -> Result<Documents, Failure> {
        // As a commit: the transaction is to end soon.
        let _permit = self.connection.permits.acquire(true).await;
        let mut reply = ReadReply::default();
        let how = Consistency::Within(transaction.to_vec());
        self.fetch(what, how, &mut reply).await?;
        Ok(reply.found)
    }

    async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<(), Failure> {
        let layout = self.layout().await?;
        let writes = writes.into_iter();
        let request = CommitRequest {
            database: layout.database().to_owned(),
            writes: writes.map(|write| layout.write(write)).collect(),
            transaction: transaction.to_vec(),
        };
        // What has begun is to end soon: until then, the server keeps others away from its documents.
        let _permit = self.connection.permits.acquire(true).await;
        let request = self.connection.request(request).await?;
        self.connection.grpc.clone().commit(request).await?;
        Ok(())
    }

    fn abandon(self: Arc<Self>, transaction: Vec<u8>) {
        in_background(&self.work, Self::clone(&self).end(transaction));
    }

    async fn page(&self, after: Option<&str>, limit: usize) -> Result<Page, Failure> {
        let layout = self.layout().await?;
        let _permit = self.connection.permits.acquire(false).await;
        let mut reply = ReadReply::default();
        let asked = Instant::now();
        let mut parts = self
            .query(layout.page(after, limit), Consistency::Alone)
            .await?;
        while let Some(part) = parts.message().await? {
            let time = part.read_time.map(|it| milliseconds(it.seconds, it.nanos));
            reply.note_time(time, asked);
            if let Some(document) = part.document {
                reply.add(layout, document);
            }
        }
        Ok(Page {
            documents: reply.found.locks,
            server_time: reply.found.server_time,
        })
    }

    fn watch(&self, what: &ReadSet) -> Option<Watch> {
        let wakeups = self.connection.wakeups.as_ref()?;
        Some(wakeups.watch(&topic(&self.names.config.collection, what)?))
    }
}

impl<S> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
