//! The guarantees of the emulator, through its gRPC API.

// Helpers of tests are tests to us, not to the lint.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use firestore_emulator::{Effect, Emulator, Fault, Lost, Options, Refusal};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{self as api, *};
use tonic::transport::Channel;
use tonic::{Code, Status};

const DATABASE: &str = "projects/p/databases/(default)";

type Client = firestore_client::FirestoreClient<Channel>;

async fn connect(emulator: &Emulator) -> Client {
    let endpoint = Channel::from_shared(format!("http://{}", emulator.address())).unwrap();
    Client::new(endpoint.connect().await.unwrap())
}

fn name(id: &str) -> String {
    format!("{DATABASE}/documents/c/{id}")
}

fn text(value: &str) -> Value {
    Value {
        value_type: Some(value::ValueType::StringValue(value.to_owned())),
    }
}

fn set(id: &str, value: &str) -> Write {
    Write {
        operation: Some(write::Operation::Update(Document {
            name: name(id),
            fields: [("v".to_owned(), text(value))].into(),
            ..Document::default()
        })),
        ..Write::default()
    }
}

async fn commit(client: &mut Client, transaction: &[u8], writes: Vec<Write>) -> Result<(), Status> {
    let request = CommitRequest {
        database: DATABASE.to_owned(),
        writes,
        transaction: transaction.to_vec(),
    };
    client.commit(request).await.map(|_| ())
}

/// Reads one document in a new transaction: its id and the document's value.
async fn begin_with_get(client: &mut Client, id: &str) -> (Vec<u8>, Option<Value>) {
    let new = batch_get_documents_request::ConsistencySelector::NewTransaction;
    let request = BatchGetDocumentsRequest {
        database: DATABASE.to_owned(),
        documents: vec![name(id)],
        mask: None,
        consistency_selector: Some(new(TransactionOptions::default())),
    };
    let mut replies = client
        .batch_get_documents(request)
        .await
        .unwrap()
        .into_inner();
    let reply = replies.message().await.unwrap().unwrap();
    (reply.transaction, value_of(reply.result))
}

async fn get(client: &mut Client, transaction: &[u8], id: &str) -> Option<Value> {
    let within = batch_get_documents_request::ConsistencySelector::Transaction;
    let request = BatchGetDocumentsRequest {
        database: DATABASE.to_owned(),
        documents: vec![name(id)],
        mask: None,
        consistency_selector: Some(within(transaction.to_vec()))
            .filter(|_| !transaction.is_empty()),
    };
    let mut replies = client
        .batch_get_documents(request)
        .await
        .unwrap()
        .into_inner();
    value_of(replies.message().await.unwrap().unwrap().result)
}

fn value_of(result: Option<batch_get_documents_response::Result>) -> Option<Value> {
    match result {
        Some(batch_get_documents_response::Result::Found(found)) => found.fields.get("v").cloned(),
        _ => None,
    }
}

/// Queries `v == value` in a new transaction: its id and how many were found.
async fn begin_with_query(client: &mut Client, value: &str) -> (Vec<u8>, usize) {
    use structured_query::{CollectionSelector, FieldFilter, FieldReference, Filter, filter};
    let query = api::StructuredQuery {
        from: vec![CollectionSelector {
            collection_id: "c".to_owned(),
            all_descendants: false,
        }],
        r#where: Some(Filter {
            filter_type: Some(filter::FilterType::FieldFilter(FieldFilter {
                field: Some(FieldReference {
                    field_path: "v".to_owned(),
                }),
                op: structured_query::field_filter::Operator::Equal.into(),
                value: Some(text(value)),
            })),
        }),
        ..api::StructuredQuery::default()
    };
    let request = RunQueryRequest {
        parent: format!("{DATABASE}/documents"),
        query_type: Some(run_query_request::QueryType::StructuredQuery(query)),
        consistency_selector: Some(run_query_request::ConsistencySelector::NewTransaction(
            TransactionOptions::default(),
        )),
        explain_options: None,
    };
    let mut replies = client.run_query(request).await.unwrap().into_inner();
    let mut transaction = Vec::new();
    let mut found = 0;
    while let Some(reply) = replies.message().await.unwrap() {
        transaction.extend(reply.transaction);
        found += usize::from(reply.document.is_some());
    }
    (transaction, found)
}

#[tokio::test]
async fn what_a_transaction_has_read_must_hold_at_its_commit() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator).await;
    commit(client, &[], vec![set("read", "1")]).await.unwrap();

    let (lost_update, _) = begin_with_get(client, "read").await;
    commit(client, &[], vec![set("read", "2")]).await.unwrap();
    let status = commit(client, &lost_update, vec![set("read", "3")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Aborted);

    let (missing, found) = begin_with_get(client, "missing").await;
    assert_eq!(found, None);
    commit(client, &[], vec![set("missing", "1")])
        .await
        .unwrap();
    let status = commit(client, &missing, vec![set("missing", "2")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Aborted);

    let (phantom, found) = begin_with_query(client, "p").await;
    assert_eq!(found, 0);
    commit(client, &[], vec![set("phantom", "p")])
        .await
        .unwrap();
    let status = commit(client, &phantom, vec![set("other", "p")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(get(client, &[], "other").await, None);

    let (unrelated, _) = begin_with_get(client, "read").await;
    let (also, _) = begin_with_query(client, "absent").await;
    commit(client, &[], vec![set("elsewhere", "1")])
        .await
        .unwrap();
    commit(client, &unrelated, vec![set("read", "4")])
        .await
        .unwrap();
    commit(client, &also, vec![set("yet another", "1")])
        .await
        .unwrap();
    assert_eq!(emulator.open_transactions(), 0);
}

#[tokio::test]
async fn all_reads_of_a_transaction_are_of_one_moment() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator).await;
    commit(client, &[], vec![set("a", "1"), set("b", "1")])
        .await
        .unwrap();
    let (transaction, a) = begin_with_get(client, "a").await;
    commit(client, &[], vec![set("a", "2"), set("b", "2")])
        .await
        .unwrap();
    assert_eq!(a, Some(text("1")));
    assert_eq!(get(client, &transaction, "b").await, Some(text("1")));
    assert_eq!(get(client, &[], "b").await, Some(text("2")));
}

#[tokio::test]
async fn a_failed_commit_leaves_nothing_and_ends_its_transaction() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator).await;
    let (transaction, _) = begin_with_get(client, "a").await;
    let mut update = set("b", "1");
    update.current_document = Some(Precondition {
        condition_type: Some(precondition::ConditionType::Exists(true)),
    });
    let status = commit(client, &transaction, vec![set("a", "1"), update])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(get(client, &[], "a").await, None);
    let status = commit(client, &transaction, vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn abandoned_transactions_are_forgotten() {
    let limit = Duration::from_millis(50);
    let options = Options {
        transaction_idle_limit: limit,
        ..Options::default()
    };
    let emulator = Emulator::start(options).unwrap();
    let client = &mut connect(&emulator).await;
    let (first, _) = begin_with_get(client, "a").await;
    tokio::time::sleep(limit * 2).await;
    let status = commit(client, &first, vec![set("a", "1")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("transaction has expired"));
    begin_with_get(client, "a").await;
    assert_eq!(emulator.open_transactions(), 1);
}

#[tokio::test]
async fn read_only_transactions_cannot_write() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator).await;
    let mode = transaction_options::Mode::ReadOnly(transaction_options::ReadOnly::default());
    let request = BeginTransactionRequest {
        database: DATABASE.to_owned(),
        options: Some(TransactionOptions { mode: Some(mode) }),
    };
    let transaction = client
        .begin_transaction(request)
        .await
        .unwrap()
        .into_inner()
        .transaction;
    let status = commit(client, &transaction, vec![set("a", "1")])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn faults_come_to_order_and_calls_are_counted() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator).await;
    emulator
        .faults()
        .set([Fault::new(Effect::Status(Refusal::ResourceExhausted)).times(1)]);
    let status = commit(client, &[], vec![set("a", "1")]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(get(client, &[], "a").await, None);

    let dropped = Effect::DropReply(Lost::Unavailable);
    emulator
        .faults()
        .set([Fault::new(dropped).on("Commit").times(1)]);
    let status = commit(client, &[], vec![set("a", "1")]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(get(client, &[], "a").await, Some(text("1")));

    let silence = Effect::DropReply(Lost::Silence);
    emulator.faults().set([Fault::new(silence).on("Commit")]);
    let lost = commit(client, &[], vec![set("a", "2")]);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), lost)
            .await
            .is_err()
    );
    assert_eq!(get(client, &[], "a").await, Some(text("2")));

    let calls = emulator.faults().calls();
    assert_eq!(calls.get("Commit"), Some(&3));
    assert_eq!(calls.get("BatchGetDocuments"), Some(&3));
}
