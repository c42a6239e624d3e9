//! An emulator, backends on it, and documents as other programs would read and write them.

pub mod proxy;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firestore_emulator::{Emulator, Options};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    CommitRequest, Document, GetDocumentRequest, Value, Write,
};
use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Clock, Error, Grant, Key, SystemClock, Ttl,
};
use tonic::transport::Channel;

const DATABASE: &str = "projects/test/databases/(default)";

pub struct Server {
    pub emulator: Emulator,
}

impl Server {
    pub fn start() -> Self {
        Self {
            emulator: Emulator::start(Options::default()).unwrap(),
        }
    }

    pub fn config(&self) -> FirestoreConfig {
        FirestoreConfig {
            emulator_host: Some(self.emulator.address().to_string()),
            ..FirestoreConfig::project("test")
        }
    }

    pub fn backend(&self) -> Arc<dyn Backend> {
        self.backend_with(|_| {})
    }

    pub fn backend_with(&self, change: impl FnOnce(&mut FirestoreConfig)) -> Arc<dyn Backend> {
        self.backend_on(SystemClock, change)
    }

    pub fn backend_on(
        &self,
        clock: impl Clock,
        change: impl FnOnce(&mut FirestoreConfig),
    ) -> Arc<dyn Backend> {
        let mut config = self.config();
        change(&mut config);
        Arc::new(FirestoreBackend::with_clock(config, clock).unwrap())
    }

    /// The calls since the last time, once no transaction is open any more.
    pub async fn calls(&self) -> Vec<(String, u64)> {
        eventually(async || self.emulator.open_transactions() == 0).await;
        let calls = self.emulator.faults().calls();
        self.emulator.faults().reset_calls();
        calls.into_iter().collect()
    }

    fn client(&self) -> FirestoreClient<Channel> {
        let address = format!("http://{}", self.emulator.address());
        FirestoreClient::new(Channel::from_shared(address).unwrap().connect_lazy())
    }

    /// The fields of a document, e.g. of `"locks/a"`.
    pub async fn fields(&self, path: &str) -> Option<HashMap<String, ValueType>> {
        let request = GetDocumentRequest {
            name: format!("{DATABASE}/documents/{path}"),
            ..GetDocumentRequest::default()
        };
        match self.client().get_document(request).await {
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

    /// Puts a document with these fields.
    pub async fn put(&self, path: &str, fields: impl IntoIterator<Item = (&str, ValueType)>) {
        let value = |value_type| Value {
            value_type: Some(value_type),
        };
        let fields = fields.into_iter();
        let document = Document {
            name: format!("{DATABASE}/documents/{path}"),
            fields: fields
                .map(|(name, it)| (name.to_owned(), value(it)))
                .collect(),
            ..Document::default()
        };
        let write = Write {
            operation: Some(Operation::Update(document)),
            ..Write::default()
        };
        let request = CommitRequest {
            database: DATABASE.to_owned(),
            writes: vec![write],
            transaction: Vec::new(),
        };
        self.client().commit(request).await.unwrap();
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub fn text(text: &str) -> ValueType {
    ValueType::StringValue(text.to_owned())
}

pub async fn try_acquire(backend: &Arc<dyn Backend>, key: &Key) -> Result<AcquireOutcome, Error> {
    let request = AcquireRequest::new(key.clone(), Ttl::DEFAULT).unwrap();
    backend.acquire(&request).await
}

pub async fn acquire(backend: &Arc<dyn Backend>, key: &Key) -> Grant {
    match try_acquire(backend, key).await.unwrap() {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked => panic!("the key is locked"),
    }
}

/// Asks until the answer is yes; fails after 20 s.
pub async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
