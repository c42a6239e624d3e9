//! Queries, lists and listening, through the emulator's gRPC API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use firestore_emulator::{Effect, Emulator, Fault, Lost, Options, Refusal};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_response::ResponseType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::{
    CollectionSelector, Direction, FieldFilter, FieldReference, Filter, Order, Projection, filter,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::{
    DocumentsTarget, QueryTarget, ResumeType, TargetType, query_target,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{self as api, *};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const DATABASE: &str = "projects/p/databases/(default)";
const ROOT: &str = "projects/p/databases/(default)/documents";

type Client = firestore_client::FirestoreClient<Channel>;

fn connect(emulator: &Emulator) -> Client {
    let endpoint = Channel::from_shared(format!("http://{}", emulator.address())).unwrap();
    Client::new(endpoint.connect_lazy())
}

fn number(number: i64) -> Value {
    Value {
        value_type: Some(ValueType::IntegerValue(number)),
    }
}

async fn put(client: &mut Client, id: &str, fields: &[(&str, i64)]) {
    let fields = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), number(*value)));
    write(
        client,
        write::Operation::Update(Document {
            name: format!("{ROOT}/c/{id}"),
            fields: fields.collect(),
            ..Document::default()
        }),
    )
    .await;
}

async fn delete(client: &mut Client, id: &str) {
    write(client, write::Operation::Delete(format!("{ROOT}/c/{id}"))).await;
}

async fn write(client: &mut Client, operation: write::Operation) {
    let write = Write {
        operation: Some(operation),
        ..Write::default()
    };
    let request = CommitRequest {
        database: DATABASE.to_owned(),
        writes: vec![write],
        transaction: Vec::new(),
    };
    client.commit(request).await.unwrap();
}

fn everything() -> api::StructuredQuery {
    api::StructuredQuery {
        from: vec![CollectionSelector {
            collection_id: "c".to_owned(),
            all_descendants: false,
        }],
        ..api::StructuredQuery::default()
    }
}

fn field(name: &str) -> Option<FieldReference> {
    Some(FieldReference {
        field_path: name.to_owned(),
    })
}

fn compared(name: &str, op: Operator, value: i64) -> Option<Filter> {
    Some(Filter {
        filter_type: Some(filter::FilterType::FieldFilter(FieldFilter {
            field: field(name),
            op: op.into(),
            value: Some(number(value)),
        })),
    })
}

fn one_of(name: &str, values: impl Iterator<Item = i64>) -> Filter {
    let values = values.map(number).collect();
    Filter {
        filter_type: Some(filter::FilterType::FieldFilter(FieldFilter {
            field: field(name),
            op: Operator::In.into(),
            value: Some(Value {
                value_type: Some(ValueType::ArrayValue(ArrayValue { values })),
            }),
        })),
    }
}

fn id(document: &Document) -> &str {
    document.name.rsplit('/').next().unwrap()
}

async fn run(client: &mut Client, query: api::StructuredQuery) -> Result<Vec<Document>, Status> {
    let request = RunQueryRequest {
        parent: ROOT.to_owned(),
        query_type: Some(run_query_request::QueryType::StructuredQuery(query)),
        ..RunQueryRequest::default()
    };
    let mut replies = client.run_query(request).await?.into_inner();
    let mut found = Vec::new();
    while let Some(reply) = replies.message().await? {
        found.extend(reply.document);
    }
    Ok(found)
}

async fn ids(client: &mut Client, query: api::StructuredQuery) -> String {
    let found = run(client, query).await.unwrap();
    found.iter().map(id).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn queries_filter_order_cut_and_select() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator);
    for (id, n) in [("a", 2), ("b", 1), ("d", 3)] {
        put(client, id, &[("n", n), ("m", n % 2)]).await;
    }
    put(client, "e", &[("other", 1)]).await;
    put(client, "a/c/nested", &[("n", 1)]).await;

    assert_eq!(ids(client, everything()).await, "a b d e");
    let odd = api::StructuredQuery {
        r#where: compared("m", Operator::Equal, 1),
        ..everything()
    };
    assert_eq!(ids(client, odd).await, "b d");
    let range = api::StructuredQuery {
        r#where: compared("n", Operator::LessThan, 3),
        ..everything()
    };
    assert_eq!(ids(client, range).await, "b a");
    let page = api::StructuredQuery {
        order_by: vec![Order {
            field: field("__name__"),
            direction: Direction::Descending.into(),
        }],
        offset: 1,
        limit: Some(2),
        select: Some(Projection {
            fields: vec![field("m").unwrap()],
        }),
        ..everything()
    };
    let found = run(client, page).await.unwrap();
    assert_eq!(found.iter().map(id).collect::<Vec<_>>(), ["d", "b"]);
    assert_eq!(found[0].fields, [("m".to_owned(), number(1))].into());

    for (values, found) in [(1..=2, Some("a b")), (3..=3, Some("d")), (1..=31, None)] {
        let several = api::StructuredQuery {
            r#where: Some(one_of("n", values)),
            ..everything()
        };
        match found {
            Some(found) => assert_eq!(ids(client, several).await, found),
            None => {
                let status = run(client, several).await.unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument);
            }
        }
    }

    let unsupported = api::StructuredQuery {
        r#where: compared("n", Operator::NotEqual, 1),
        ..everything()
    };
    let status = run(client, unsupported).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator);
    for id in ["a", "b", "d"] {
        put(client, id, &[]).await;
    }
    let mut request = ListDocumentsRequest {
        parent: ROOT.to_owned(),
        collection_id: "c".to_owned(),
        page_size: 2,
        ..ListDocumentsRequest::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = client
            .list_documents(request.clone())
            .await
            .unwrap()
            .into_inner();
        pages.push(page.documents.iter().map(id).collect::<Vec<_>>().join(" "));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(pages, ["a b", "d"]);
}

/// Listens to `target` and returns the stream; the sender keeps it open.
async fn listen(
    client: &mut Client,
    target: Target,
) -> (
    Streaming<ListenResponse>,
    mpsc::UnboundedSender<ListenRequest>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let request = ListenRequest {
        database: DATABASE.to_owned(),
        target_change: Some(listen_request::TargetChange::AddTarget(target)),
        ..ListenRequest::default()
    };
    sender.send(request).unwrap();
    let replies = client
        .listen(UnboundedReceiverStream::new(receiver))
        .await
        .unwrap();
    (replies.into_inner(), sender)
}

/// The next step, up to the message that says that it is whole.
async fn step(replies: &mut Streaming<ListenResponse>) -> Vec<String> {
    let mut step = Vec::new();
    loop {
        let reply = replies.message().await.unwrap().unwrap();
        match reply.response_type.unwrap() {
            ResponseType::TargetChange(change) => match change.target_change_type {
                0 => return step,
                kind => step.push(format!("target {kind}")),
            },
            ResponseType::DocumentChange(change) => {
                step.push(format!("set {}", id(&change.document.unwrap())));
            }
            ResponseType::DocumentDelete(gone) => {
                step.push(format!(
                    "deleted {}",
                    gone.document.rsplit('/').next().unwrap()
                ));
            }
            ResponseType::DocumentRemove(gone) => {
                step.push(format!(
                    "removed {}",
                    gone.document.rsplit('/').next().unwrap()
                ));
            }
            ResponseType::Filter(_) => step.push("filter".to_owned()),
        }
    }
}

#[tokio::test]
async fn listeners_see_every_commit_in_order() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator);
    put(client, "a", &[("on", 1)]).await;
    let query = api::StructuredQuery {
        r#where: compared("on", Operator::Equal, 1),
        ..everything()
    };
    let target = Target {
        target_id: 7,
        target_type: Some(TargetType::Query(QueryTarget {
            parent: ROOT.to_owned(),
            query_type: Some(query_target::QueryType::StructuredQuery(query)),
        })),
        ..Target::default()
    };
    let (mut replies, _open) = listen(client, target).await;
    assert_eq!(step(&mut replies).await, ["target 1", "set a", "target 3"]);
    put(client, "b", &[("on", 0)]).await;
    put(client, "b", &[("on", 1)]).await;
    put(client, "a", &[("on", 1), ("n", 1)]).await;
    put(client, "a", &[("on", 0)]).await;
    delete(client, "b").await;
    for expected in ["set b", "set a", "removed a", "deleted b"] {
        assert_eq!(step(&mut replies).await, [expected]);
    }
}

#[tokio::test]
async fn a_document_can_be_listened_to_before_it_is_there() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator);
    let target = Target {
        target_id: 1,
        target_type: Some(TargetType::Documents(DocumentsTarget {
            documents: vec![format!("{ROOT}/c/a")],
        })),
        // Who comes back is shown everything again.
        resume_type: Some(ResumeType::ResumeToken(vec![1])),
        ..Target::default()
    };
    let (mut replies, _open) = listen(client, target).await;
    let first = step(&mut replies).await;
    assert_eq!(first, ["target 1", "target 4", "deleted a", "target 3"]);
    put(client, "b", &[]).await;
    put(client, "a", &[]).await;
    delete(client, "a").await;
    assert_eq!(step(&mut replies).await, ["set a"]);
    assert_eq!(step(&mut replies).await, ["deleted a"]);
}

#[tokio::test]
async fn listeners_are_counted_hit_by_faults_and_ended() {
    let emulator = Emulator::start(Options::default()).unwrap();
    let client = &mut connect(&emulator);
    let target = |target_id| Target {
        target_id,
        target_type: Some(TargetType::Documents(DocumentsTarget {
            documents: vec![format!("{ROOT}/c/a")],
        })),
        ..Target::default()
    };
    let (mut replies, open) = listen(client, target(1)).await;
    step(&mut replies).await;
    assert_eq!((emulator.listeners(), emulator.targets()), (1, 1));
    let dropped = Effect::DropReply(Lost::Silence);
    let drop_one = Fault::new(dropped).on("ListenResponse").times(1);
    emulator.faults().set([drop_one]);
    put(client, "a", &[]).await;
    delete(client, "a").await;
    // The first step is empty.
    assert!(step(&mut replies).await.is_empty());
    assert_eq!(step(&mut replies).await, ["deleted a"]);
    let request = ListenRequest {
        target_change: Some(listen_request::TargetChange::RemoveTarget(1)),
        ..ListenRequest::default()
    };
    open.send(request).unwrap();
    let removed = replies.message().await.unwrap().unwrap();
    assert!(matches!(
        removed.response_type,
        Some(ResponseType::TargetChange(change)) if change.target_change_type == 2
    ));
    assert_eq!((emulator.listeners(), emulator.targets()), (1, 0));
    emulator.end_listeners();
    assert!(replies.message().await.unwrap().is_none());
    while emulator.listeners() > 0 {
        tokio::task::yield_now().await;
    }
    let (mut replies, _open) = listen(client, target(1)).await;
    step(&mut replies).await;
    let refused = Fault::new(Effect::Status(Refusal::Unavailable));
    emulator.faults().set([refused.on("ListenResponse")]);
    put(client, "a", &[]).await;
    let status = replies.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}
