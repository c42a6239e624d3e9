//! Generates the server's service trait from a table of methods: no protoc is needed, because the
//! message types come compiled in a crate.

use tonic_build::manual::{Builder, Method, Service};

/// Trait method, RPC, request, response, whether the client streams, whether the server streams.
const METHODS: [(&str, &str, &str, &str, bool, bool); 12] = [
    (
        "get_document",
        "GetDocument",
        "GetDocumentRequest",
        "Document",
        false,
        false,
    ),
    (
        "list_documents",
        "ListDocuments",
        "ListDocumentsRequest",
        "ListDocumentsResponse",
        false,
        false,
    ),
    (
        "create_document",
        "CreateDocument",
        "CreateDocumentRequest",
        "Document",
        false,
        false,
    ),
    (
        "update_document",
        "UpdateDocument",
        "UpdateDocumentRequest",
        "Document",
        false,
        false,
    ),
    (
        "delete_document",
        "DeleteDocument",
        "DeleteDocumentRequest",
        "()",
        false,
        false,
    ),
    (
        "batch_get_documents",
        "BatchGetDocuments",
        "BatchGetDocumentsRequest",
        "BatchGetDocumentsResponse",
        false,
        true,
    ),
    (
        "begin_transaction",
        "BeginTransaction",
        "BeginTransactionRequest",
        "BeginTransactionResponse",
        false,
        false,
    ),
    (
        "commit",
        "Commit",
        "CommitRequest",
        "CommitResponse",
        false,
        false,
    ),
    (
        "rollback",
        "Rollback",
        "RollbackRequest",
        "()",
        false,
        false,
    ),
    (
        "run_query",
        "RunQuery",
        "RunQueryRequest",
        "RunQueryResponse",
        false,
        true,
    ),
    (
        "listen",
        "Listen",
        "ListenRequest",
        "ListenResponse",
        true,
        true,
    ),
    (
        "batch_write",
        "BatchWrite",
        "BatchWriteRequest",
        "BatchWriteResponse",
        false,
        false,
    ),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let service = METHODS.into_iter().fold(
        Service::builder()
            .name("Firestore")
            .package("google.firestore.v1"),
        |service, (name, route, input, output, client_streams, server_streams)| {
            let mut method = Method::builder()
                .name(name)
                .route_name(route)
                .input_type(path(input))
                .output_type(path(output))
                .codec_path("tonic_prost::ProstCodec");
            if client_streams {
                method = method.client_streaming();
            }
            if server_streams {
                method = method.server_streaming();
            }
            service.method(method.build())
        },
    );
    Builder::new()
        .build_client(false)
        .compile(&[service.build()]);
}

fn path(message: &str) -> String {
    match message {
        "()" => "crate::Empty".to_owned(),
        _ => format!("crate::proto::{message}"),
    }
}
