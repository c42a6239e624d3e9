//! The RPCs that write outside of a commit.

use std::collections::HashSet;

use googleapis_tonic_google_firestore_v1::google::rpc;
use tonic::Status;

use crate::path::check_parent;
use crate::proto::precondition::ConditionType;
use crate::proto::write::Operation;
use crate::proto::{
    BatchWriteResponse, CreateDocumentRequest, Document, Precondition, UpdateDocumentRequest, Write,
};
use crate::query::masked;
use crate::store::{ReadFrom, Store};
use crate::writes;

/// Creates a document, under an id of its own if the request names none.
pub(crate) fn create(store: &Store, request: CreateDocumentRequest) -> Result<Document, Status> {
    check_parent(&request.parent)?;
    let id = match request.document_id {
        id if id.is_empty() => std::iter::repeat_with(fastrand::alphanumeric)
            .take(20)
            .collect(),
        id => id,
    };
    let write = Write {
        operation: Some(Operation::Update(Document {
            name: format!("{}/{}/{id}", request.parent, request.collection_id),
            ..request.document.unwrap_or_default()
        })),
        current_document: Some(Precondition {
            condition_type: Some(ConditionType::Exists(false)),
        }),
        ..Write::default()
    };
    masked(&written(store, write)?, request.mask.as_ref())
}

/// Updates or inserts a document.
pub(crate) fn update(store: &Store, request: UpdateDocumentRequest) -> Result<Document, Status> {
    let write = Write {
        operation: Some(Operation::Update(request.document.unwrap_or_default())),
        update_mask: request.update_mask,
        current_document: request.current_document,
        ..Write::default()
    };
    masked(&written(store, write)?, request.mask.as_ref())
}

/// Applies each write alone.
pub(crate) fn batch(store: &Store, batch: &[Write]) -> Result<BatchWriteResponse, Status> {
    let mut seen = HashSet::new();
    for write in batch {
        if !seen.insert(writes::target(write)?) {
            return Err(Status::invalid_argument(
                "a batch writes a document only once",
            ));
        }
    }
    let mut response = BatchWriteResponse::default();
    for result in store.write_each(batch) {
        response.status.push(match &result {
            Ok(_) => rpc::Status::default(),
            Err(status) => rpc::Status {
                code: status.code().into(),
                message: status.message().to_owned(),
                details: Vec::new(),
            },
        });
        response.write_results.push(result.unwrap_or_default());
    }
    Ok(response)
}

fn written(store: &Store, write: Write) -> Result<Document, Status> {
    let name = writes::target(&write)?.to_owned();
    store.commit(&[], &[write])?;
    let found = store.get(&[name], ReadFrom::Now)?.value.pop().flatten();
    let document = found.ok_or_else(|| Status::aborted("the document was deleted meanwhile"))?;
    Ok((*document).clone())
}
