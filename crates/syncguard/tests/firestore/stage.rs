//! An emulator, backends on it, and documents as other programs would read and write them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firestore_emulator::{Emulator, Options};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    CommitRequest, Document, GetDocumentRequest, Value, Write,
};
use syncguard::firestore::{DocumentIds, FirestoreBackend, FirestoreConfig};
use syncguard::{Backend, Clock, SystemClock};
use tonic::transport::Channel;

use crate::support::locks::{AHEAD, eventually, key};

const DATABASE: &str = "projects/test/databases/(default)";

pub(crate) struct Server {
    pub(crate) emulator: Emulator,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self {
            emulator: Emulator::start(Options::default()).unwrap(),
        }
    }

    pub(crate) fn config(&self) -> FirestoreConfig {
        FirestoreConfig {
            emulator_host: Some(self.emulator.address().to_string()),
            // On a busy machine the emulator can be slow.
            operation_timeout: Duration::from_secs(30),
            ..FirestoreConfig::project("test")
        }
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.backend_with(|_| {})
    }

    pub(crate) fn backend_with(
        &self,
        change: impl FnOnce(&mut FirestoreConfig),
    ) -> Arc<dyn Backend> {
        self.backend_by(SystemClock, change)
    }

    /// On a clock that has nothing to do with the emulator's.
    pub(crate) fn backend_on(
        &self,
        clock: impl Clock,
        change: impl FnOnce(&mut FirestoreConfig),
    ) -> Arc<dyn Backend> {
        self.backend_by(clock, |config| {
            config.ignore_clock_skew = true;
            change(config);
        })
    }

    pub(crate) fn backend_by(
        &self,
        clock: impl Clock,
        change: impl FnOnce(&mut FirestoreConfig),
    ) -> Arc<dyn Backend> {
        let mut config = self.config();
        change(&mut config);
        Arc::new(FirestoreBackend::with_clock(config, clock).unwrap())
    }

    /// Lets the fences of a key be counted one by one.
    pub(crate) async fn count(&self, name: &str) {
        let counter = DocumentIds::of(&key(name)).unwrap().counter;
        let fence = text(&format!("{AHEAD:015}"));
        self.put(&format!("fence_counters/{counter}"), [("fence", fence)])
            .await;
    }

    /// The calls since the last time, once no transaction is open any more.
    pub(crate) async fn calls(&self) -> Vec<(String, u64)> {
        eventually("no transaction is open", async || {
            self.emulator.open_transactions() == 0
        })
        .await;
        let calls = self.emulator.faults().calls();
        self.emulator.faults().reset_calls();
        calls.into_iter().collect()
    }

    pub(crate) fn client(&self) -> FirestoreClient<Channel> {
        let address = format!("http://{}", self.emulator.address());
        FirestoreClient::new(Channel::from_shared(address).unwrap().connect_lazy())
    }

    /// The fields of a document, e.g. of `"locks/a"`.
    pub(crate) async fn fields(&self, path: &str) -> Option<HashMap<String, ValueType>> {
        fields(&mut self.client(), path).await
    }

    /// Puts a document with these fields.
    pub(crate) async fn put(
        &self,
        path: &str,
        fields: impl IntoIterator<Item = (&str, ValueType)>,
    ) {
        let document = document(path, fields);
        write(&mut self.client(), [Operation::Update(document)]).await;
    }
}

/// The name of a document, e.g. of `"locks/a"`.
pub(crate) fn name(path: &str) -> String {
    format!("{DATABASE}/documents/{path}")
}

pub(crate) fn document<'a>(
    path: &str,
    fields: impl IntoIterator<Item = (&'a str, ValueType)>,
) -> Document {
    let value = |value_type| Value {
        value_type: Some(value_type),
    };
    let fields = fields.into_iter();
    Document {
        name: name(path),
        fields: fields
            .map(|(name, it)| (name.to_owned(), value(it)))
            .collect(),
        ..Document::default()
    }
}

pub(crate) async fn fields(
    client: &mut FirestoreClient<Channel>,
    path: &str,
) -> Option<HashMap<String, ValueType>> {
    let request = GetDocumentRequest {
        name: name(path),
        ..GetDocumentRequest::default()
    };
    match client.get_document(request).await {
        Ok(document) => {
            let fields = document.into_inner().fields.into_iter();
            Some(
                fields
                    .map(|(name, value)| (name, value.value_type.unwrap()))
                    .collect(),
            )
        }
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::NotFound);
            None
        }
    }
}

pub(crate) async fn write(
    client: &mut FirestoreClient<Channel>,
    operations: impl IntoIterator<Item = Operation>,
) {
    let write = |operation| Write {
        operation: Some(operation),
        ..Write::default()
    };
    let request = CommitRequest {
        database: DATABASE.to_owned(),
        writes: operations.into_iter().map(write).collect(),
        transaction: Vec::new(),
    };
    client.commit(request).await.unwrap();
}

pub(crate) fn text(text: &str) -> ValueType {
    ValueType::StringValue(text.to_owned())
}
