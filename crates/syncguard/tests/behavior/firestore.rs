//! Firestore's fixture: on an emulator of our own, or on whatever listens at `FIRESTORE_EMULATOR_HOST`; and the same
//! through a client of an application.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use firestore_emulator::{Emulator, Options};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    CommitRequest, Document, GetDocumentRequest, Value, Write,
};
use syncguard::firestore::{DocumentIds, FirestoreBackend, FirestoreConfig};
use syncguard::{Backend, Key};
use tonic::transport::Channel;

use crate::fixture::{Fixture, OPERATION_TIMEOUT, Setup, Store};
use crate::support::locks::ManualClock;

#[derive(Default)]
pub(crate) struct OnEmulator(Mutex<Option<Emulator>>);

/// The same through a client of the crate `firestore`.
#[derive(Default)]
pub(crate) struct ByFirestoreDb(OnEmulator);

#[async_trait]
impl Store for ByFirestoreDb {
    fn name(&self) -> &'static str {
        "firestore_db"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let (address, project) = (self.0.address(), project());
        let config = FirestoreConfig {
            cleanup_in_is_locked: setup.cleanup_in_is_locked,
            operation_timeout: OPERATION_TIMEOUT,
            ..FirestoreConfig::default()
        };
        let make = async || {
            let db = crate::support::clients::firestore_db(&address, &project).await;
            let backend = syncguard_clients::firestore_db::backend(&db, config.clone()).unwrap();
            Arc::new(backend) as Arc<dyn Backend>
        };
        let (backend, peer) = (make().await, make().await);
        Box::new(Firestore::new(&address, &project, backend, peer, None))
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// A database of its own: queries see no other test's locks.
fn project() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("behavior-{}-{number}", std::process::id())
}

impl OnEmulator {
    fn address(&self) -> String {
        if let Ok(address) = std::env::var("FIRESTORE_EMULATOR_HOST") {
            return address;
        }
        let mut own = self.0.lock().unwrap();
        let emulator = own.get_or_insert_with(|| Emulator::start(Options::default()).unwrap());
        emulator.address().to_string()
    }
}

#[async_trait]
impl Store for OnEmulator {
    fn name(&self) -> &'static str {
        "firestore"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let (address, project) = (self.address(), project());
        let clock = ManualClock::at(1_700_000_000_000);
        let make = || -> Arc<dyn Backend> {
            let config = FirestoreConfig {
                emulator_host: Some(address.clone()),
                cleanup_in_is_locked: setup.cleanup_in_is_locked,
                ignore_clock_skew: true,
                operation_timeout: OPERATION_TIMEOUT,
                ..FirestoreConfig::project(&project)
            };
            Arc::new(FirestoreBackend::with_clock(config, clock.clone()).unwrap())
        };
        let (backend, peer) = (make(), make());
        Box::new(Firestore::new(
            &address,
            &project,
            backend,
            peer,
            Some(clock),
        ))
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

struct Firestore {
    backend: Arc<dyn Backend>,
    peer: Arc<dyn Backend>,
    /// The backends' clock, unless they use the machine's.
    clock: Option<ManualClock>,
    client: FirestoreClient<Channel>,
    database: String,
}

impl Firestore {
    fn new(
        address: &str,
        project: &str,
        backend: Arc<dyn Backend>,
        peer: Arc<dyn Backend>,
        clock: Option<ManualClock>,
    ) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        Self {
            backend,
            peer,
            clock,
            client: FirestoreClient::new(channel.connect_lazy()),
            database: format!("projects/{project}/databases/(default)"),
        }
    }

    fn name(&self, collection: &str, id: &str) -> String {
        format!("{}/documents/{collection}/{id}", self.database)
    }
}

#[async_trait]
impl Fixture for Firestore {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    fn peer(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.peer)
    }

    /// The group's document stays as it is, because Firestore takes about one write of it per second.
    fn tells_that_a_reader_left(&self) -> bool {
        false
    }

    async fn pass(&self, time: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(time),
            None => tokio::time::sleep(time).await,
        }
    }

    async fn set_fence_counter(&self, key: &Key, counter: i64) {
        let id = DocumentIds::of(key).unwrap().counter;
        let text = Value {
            value_type: Some(ValueType::StringValue(format!("{counter:015}"))),
        };
        let document = Document {
            name: self.name("fence_counters", &id),
            fields: [("fence".to_owned(), text)].into(),
            ..Document::default()
        };
        let write = Write {
            operation: Some(Operation::Update(document)),
            ..Write::default()
        };
        let request = CommitRequest {
            database: self.database.clone(),
            writes: vec![write],
            transaction: Vec::new(),
        };
        self.client.clone().commit(request).await.unwrap();
    }

    async fn has_record(&self, key: &Key) -> bool {
        let id = DocumentIds::of(key).unwrap().lock;
        let request = GetDocumentRequest {
            name: self.name("locks", &id),
            ..GetDocumentRequest::default()
        };
        match self.client.clone().get_document(request).await {
            Ok(_) => true,
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::NotFound);
                false
            }
        }
    }
}
