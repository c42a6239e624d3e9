//! The RPCs: from a request to the store and back.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use tonic::{Request, Response, Status, Streaming};

use crate::faults::{Faults, Lost, Part};
use crate::generated::firestore_server::Firestore;
use crate::listen::Streams;
use crate::path::check_id;
use crate::proto::batch_get_documents_request::ConsistencySelector as BatchFrom;
use crate::proto::batch_get_documents_response::Result as Got;
use crate::proto::get_document_request::ConsistencySelector as GetFrom;
use crate::proto::list_documents_request::ConsistencySelector as ListFrom;
use crate::proto::run_query_request::{ConsistencySelector as QueryFrom, QueryType};
use crate::proto::structured_query::CollectionSelector;
use crate::proto::{self as api, *};
use crate::query::{Query, masked};
use crate::store::{ReadFrom, Store};
use crate::time::timestamp;
use crate::transactions::no_read_time;
use crate::writing::{batch, create, update};

type Reply<T> = Result<Response<T>, Status>;
type Replies<T> = BoxStream<'static, Result<T, Status>>;

/// Firestore's API over a store.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) store: Arc<Store>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) streams: Arc<Streams>,
}

impl Service {
    /// Answers one call, if the faults in force let it.
    async fn answer<T>(
        &self,
        method: &str,
        work: impl FnOnce(&Store) -> Result<T, Status>,
    ) -> Reply<T> {
        self.answer_without(method, |store, _| work(store)).await
    }

    /// The same for a reply of which a part may be missing.
    async fn answer_without<T>(
        &self,
        method: &str,
        work: impl FnOnce(&Store, Option<Part>) -> Result<T, Status>,
    ) -> Reply<T> {
        let fate = self.faults.draw(method);
        if !fate.delay.is_zero() {
            tokio::time::sleep(fate.delay).await;
        }
        if let Some(refusal) = fate.refusal {
            return Err(refusal.into());
        }
        let answer = work(&self.store, fate.omitted);
        match fate.lost {
            None => answer.map(Response::new),
            Some(Lost::Unavailable) => Err(Status::unavailable("the reply is lost to order")),
            Some(Lost::Silence) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl Firestore for Service {
    type BatchGetDocumentsStream = Replies<BatchGetDocumentsResponse>;
    type RunQueryStream = Replies<RunQueryResponse>;
    type ListenStream = Replies<ListenResponse>;

    async fn get_document(&self, request: Request<GetDocumentRequest>) -> Reply<Document> {
        let request = request.into_inner();
        let work = |store: &Store| {
            let from = match request.consistency_selector {
                None => ReadFrom::Now,
                Some(GetFrom::Transaction(id)) => ReadFrom::Transaction(id),
                Some(GetFrom::ReadTime(_)) => return Err(no_read_time()),
            };
            let found = store
                .get(std::slice::from_ref(&request.name), from)?
                .value
                .pop();
            let document = found.flatten().ok_or_else(|| {
                Status::not_found(format!("Document \"{}\" not found.", request.name))
            })?;
            masked(&document, request.mask.as_ref())
        };
        self.answer("GetDocument", work).await
    }

    async fn list_documents(
        &self,
        request: Request<ListDocumentsRequest>,
    ) -> Reply<ListDocumentsResponse> {
        let request = request.into_inner();
        self.answer("ListDocuments", |store| list(store, request))
            .await
    }

    async fn create_document(&self, request: Request<CreateDocumentRequest>) -> Reply<Document> {
        let request = request.into_inner();
        self.answer("CreateDocument", |store| create(store, request))
            .await
    }

    async fn update_document(&self, request: Request<UpdateDocumentRequest>) -> Reply<Document> {
        let request = request.into_inner();
        self.answer("UpdateDocument", |store| update(store, request))
            .await
    }

    async fn delete_document(&self, request: Request<DeleteDocumentRequest>) -> Reply<()> {
        let request = request.into_inner();
        let work = |store: &Store| {
            let write = Write {
                operation: Some(write::Operation::Delete(request.name)),
                current_document: request.current_document,
                ..Write::default()
            };
            store.commit(&[], &[write]).map(|_| ())
        };
        self.answer("DeleteDocument", work).await
    }

    async fn batch_get_documents(
        &self,
        request: Request<BatchGetDocumentsRequest>,
    ) -> Reply<Self::BatchGetDocumentsStream> {
        let request = request.into_inner();
        let work = |store: &Store, omitted| batch_get(store, request, omitted);
        self.answer_without("BatchGetDocuments", work).await
    }

    async fn begin_transaction(
        &self,
        request: Request<BeginTransactionRequest>,
    ) -> Reply<BeginTransactionResponse> {
        let request = request.into_inner();
        let work = |store: &Store| {
            let transaction = store.begin(request.options.as_ref())?;
            Ok(BeginTransactionResponse { transaction })
        };
        self.answer("BeginTransaction", work).await
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Reply<CommitResponse> {
        let request = request.into_inner();
        let work = |store: &Store| {
            let (write_results, time) = store.commit(&request.transaction, &request.writes)?;
            Ok(CommitResponse {
                write_results,
                commit_time: Some(timestamp(time)),
            })
        };
        self.answer("Commit", work).await
    }

    async fn rollback(&self, request: Request<RollbackRequest>) -> Reply<()> {
        let request = request.into_inner();
        self.answer("Rollback", |store| store.rollback(&request.transaction))
            .await
    }

    async fn run_query(&self, request: Request<RunQueryRequest>) -> Reply<Self::RunQueryStream> {
        let request = request.into_inner();
        let work = |store: &Store, omitted| run_query(store, request, omitted);
        self.answer_without("RunQuery", work).await
    }

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Reply<Self::ListenStream> {
        let requests = request.into_inner();
        self.answer("Listen", |store| Ok(self.streams.start(store, requests)))
            .await
    }

    async fn batch_write(&self, request: Request<BatchWriteRequest>) -> Reply<BatchWriteResponse> {
        let request = request.into_inner();
        self.answer("BatchWrite", |store| batch(store, &request.writes))
            .await
    }
}

fn batch_get(
    store: &Store,
    request: BatchGetDocumentsRequest,
    omitted: Option<Part>,
) -> Result<Replies<BatchGetDocumentsResponse>, Status> {
    let from = match request.consistency_selector {
        None => ReadFrom::Now,
        Some(BatchFrom::Transaction(id)) => ReadFrom::Transaction(id),
        Some(BatchFrom::NewTransaction(options)) => ReadFrom::New(options),
        Some(BatchFrom::ReadTime(_)) => return Err(no_read_time()),
    };
    let read = store.get(&request.documents, from)?;
    let response = |transaction, result| BatchGetDocumentsResponse {
        transaction,
        read_time: Some(timestamp(read.time)),
        result,
    };
    let mut responses = Vec::with_capacity(request.documents.len().max(1));
    for (name, found) in request.documents.into_iter().zip(read.value) {
        let result = match found {
            Some(document) => Got::Found(masked(&document, request.mask.as_ref())?),
            None => Got::Missing(name),
        };
        responses.push(response(Vec::new(), Some(result)));
    }
    if omitted == Some(Part::Documents) {
        responses.clear();
    }
    if responses.is_empty() {
        responses.push(response(Vec::new(), None));
    }
    if let Some(first) = responses.first_mut()
        && omitted != Some(Part::Transaction)
    {
        first.transaction = read.transaction;
    }
    Ok(replies(responses))
}

fn run_query(
    store: &Store,
    request: RunQueryRequest,
    omitted: Option<Part>,
) -> Result<Replies<RunQueryResponse>, Status> {
    let from = match request.consistency_selector {
        None => ReadFrom::Now,
        Some(QueryFrom::Transaction(id)) => ReadFrom::Transaction(id),
        Some(QueryFrom::NewTransaction(options)) => ReadFrom::New(options),
        Some(QueryFrom::ReadTime(_)) => return Err(no_read_time()),
    };
    let Some(QueryType::StructuredQuery(structured)) = request.query_type else {
        return Err(Status::invalid_argument("no query"));
    };
    let query = Query::new(&request.parent, &structured)?;
    let read = store.query(&query, from)?;
    let response = |document| RunQueryResponse {
        document,
        read_time: Some(timestamp(read.time)),
        ..RunQueryResponse::default()
    };
    let found = read.value.iter();
    let mut responses: Vec<_> = found
        .map(|document| response(Some(query.project(document))))
        .collect();
    if responses.is_empty() {
        responses.push(response(None));
    }
    if let Some(first) = responses.first_mut()
        && omitted != Some(Part::Transaction)
    {
        first.transaction = read.transaction;
    }
    Ok(replies(responses))
}

fn list(store: &Store, request: ListDocumentsRequest) -> Result<ListDocumentsResponse, Status> {
    const DEFAULT_PAGE: usize = 300;
    check_id(&request.collection_id)?;
    if !matches!(request.order_by.as_str(), "" | "__name__") {
        return Err(Status::unimplemented(
            "this emulator lists in the order of names only",
        ));
    }
    let from = match request.consistency_selector {
        None => ReadFrom::Now,
        Some(ListFrom::Transaction(id)) => ReadFrom::Transaction(id),
        Some(ListFrom::ReadTime(_)) => return Err(no_read_time()),
    };
    let all = api::StructuredQuery {
        from: vec![CollectionSelector {
            collection_id: request.collection_id,
            all_descendants: false,
        }],
        ..api::StructuredQuery::default()
    };
    let page = match usize::try_from(request.page_size) {
        Ok(0) | Err(_) => DEFAULT_PAGE,
        Ok(size) => size,
    };
    let found = store
        .query(&Query::new(&request.parent, &all)?, from)?
        .value;
    let mut rest = found
        .into_iter()
        .skip_while(|document| document.name <= request.page_token)
        .peekable();
    let mut documents = Vec::new();
    while documents.len() < page
        && let Some(document) = rest.next()
    {
        documents.push(masked(&document, request.mask.as_ref())?);
    }
    let last = documents.last().map(|document| document.name.clone());
    Ok(ListDocumentsResponse {
        documents,
        // The name of the last document shown: the next page starts after it.
        next_page_token: rest.peek().and(last).unwrap_or_default(),
    })
}

fn replies<T: Send + 'static>(responses: Vec<T>) -> Replies<T> {
    Box::pin(stream::iter(responses.into_iter().map(Ok)))
}
