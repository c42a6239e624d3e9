//! A client that the application brings: its calls, its lost answers, and what is told of errors.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use firestore_emulator::{Effect, Fault, Lost, Refusal};
use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use syncguard::firestore::FirestoreConfig;
use syncguard::operation::{self, CallOptions};
use syncguard::{Absence, AcquireOutcome, Backend, ErrorKind, Operation, ReleaseOutcome};
use tonic::codegen::http::{Extensions, HeaderMap};

use crate::faults::lacks_a_part;
use crate::stage::Server;
use crate::support::attempts::Attempts as _;
use crate::support::clients::{firestore_db, firestore_db_as};
use crate::support::locks::{AHEAD, acquire, eventually, key, request};
use crate::support::suite::tests;

tests![
    an_operation_takes_two_round_trips,
    a_lost_answer_is_unknown_and_a_repetition_finds_the_lock,
    a_cancelled_operation_leaves_no_transaction_open,
    errors_are_those_of_connections_of_our_own,
    nothing_is_concluded_from_a_reply_that_lacks_a_part,
    credentials_without_a_token_are_told,
];

const CALL: CallOptions = CallOptions::DEFAULT;

async fn over(server: &Server) -> Arc<dyn Backend> {
    let address = server.emulator.address().to_string();
    let db = firestore_db(&address, "test").await;
    let config = FirestoreConfig::default();
    Arc::new(syncguard_clients::firestore_db::backend(&db, config).unwrap())
}

async fn an_operation_takes_two_round_trips() {
    let server = Server::start();
    let ours = over(&server).await;
    let once = |name: &str| (name.to_owned(), 1);
    let grant = acquire(&*ours, "k").await;
    assert_eq!(
        server.calls().await,
        [once("BatchGetDocuments"), once("Commit")]
    );
    ours.release(&grant.lock_id).await.unwrap();
    assert_eq!(server.calls().await, [once("Commit"), once("RunQuery")]);
    assert!(!ours.is_locked(&key("k")).await.unwrap());
    assert_eq!(server.calls().await, [once("BatchGetDocuments")]);
}

async fn a_lost_answer_is_unknown_and_a_repetition_finds_the_lock() {
    let server = Server::start();
    let (ours, beside) = (over(&server).await, server.backend());
    let lose_one = || {
        let lost = Fault::new(Effect::DropReply(Lost::Unavailable));
        server.emulator.faults().set([lost.on("Commit").times(1)]);
    };
    let wanted = request("k");
    server.count("k").await;
    lose_one();
    let error = ours.acquire(&wanted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.is_outcome_unknown());
    assert!(beside.is_locked(&key("k")).await.unwrap());
    let AcquireOutcome::Acquired(mut grants) = ours.acquire(&wanted).await.unwrap() else {
        panic!("locked for its own caller");
    };
    let grant = grants.remove(0);
    assert_eq!(grant.fence.get(), AHEAD + 1);
    lose_one();
    let error = ours.release(&wanted.claims[0].lock_id).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    let again = ours.release(&wanted.claims[0].lock_id).await.unwrap();
    assert_eq!(again, ReleaseOutcome::Absent(Absence::NotFound));
    assert_eq!(acquire(&*beside, "k").await.fence.get(), AHEAD + 2);
    // An attempt as users make them leaves nothing behind.
    lose_one();
    let lost =
        operation::run::<AcquireOutcome>(&ours, Operation::Acquire(request("l")), CALL, pending());
    assert!(lost.await.unwrap_err().is_outcome_unknown());
    eventually("what was granted is released", async || {
        !beside.is_locked(&key("l")).await.unwrap()
    })
    .await;
}

async fn a_cancelled_operation_leaves_no_transaction_open() {
    let server = Server::start();
    let ours = over(&server).await;
    acquire(&*ours, "warm").await;
    let slow = Fault::new(Effect::LatencyMs(300)).on("BatchGetDocuments");
    server.emulator.faults().set([slow]);
    let hurried = CallOptions {
        timeout: Some(Duration::from_millis(100)),
        ..CallOptions::default()
    };
    let answer = operation::run::<AcquireOutcome>(
        &ours,
        Operation::Acquire(request("k")),
        hurried,
        pending(),
    )
    .await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::NetworkTimeout);
    server.emulator.faults().set([]);
    // Waits until no transaction is open.
    server.calls().await;
    eventually("nothing is left", async || {
        !ours.is_locked(&key("k")).await.unwrap()
    })
    .await;
}

async fn errors_are_those_of_connections_of_our_own() {
    let server = Server::start();
    let (ours, native) = (over(&server).await, server.backend());
    for refusal in [
        Refusal::PermissionDenied,
        Refusal::Unauthenticated,
        Refusal::ResourceExhausted,
        Refusal::Unavailable,
        Refusal::Internal,
        Refusal::DeadlineExceeded,
    ] {
        for method in ["BatchGetDocuments", "Commit"] {
            let refused = Fault::new(Effect::Status(refusal)).on(method);
            server.emulator.faults().set([refused]);
            let error = ours.acquire(&request("secret")).await.unwrap_err();
            let expected = native.acquire(&request("secret")).await.unwrap_err();
            assert_eq!(error.kind(), expected.kind(), "{refusal:?}");
            assert_eq!(error.message(), expected.message());
            let unknown = expected.is_outcome_unknown();
            assert_eq!(error.is_outcome_unknown(), unknown, "{refusal:?}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}

async fn nothing_is_concluded_from_a_reply_that_lacks_a_part() {
    let server = Server::start();
    lacks_a_part(&server, over(&server).await).await;
}

/// Credentials that give no token.
#[derive(Debug)]
struct Refused {
    is_transient: bool,
}

impl CredentialsProvider for Refused {
    async fn headers(
        &self,
        _: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        Err(CredentialsError::from_msg(
            self.is_transient,
            "no token today",
        ))
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

async fn credentials_without_a_token_are_told() {
    let server = Server::start();
    let address = server.emulator.address().to_string();
    for (is_transient, kind) in [
        (false, ErrorKind::AuthFailed),
        (true, ErrorKind::ServiceUnavailable),
    ] {
        let credentials = Credentials::from(Refused { is_transient });
        let db = firestore_db_as(&address, "test", credentials).await;
        let config = FirestoreConfig::default();
        let ours = syncguard_clients::firestore_db::backend(&db, config).unwrap();
        let error = ours.acquire(&request("k")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.message().contains("access token"), "{error}");
        assert!(format!("{error:?}").contains("no token today"), "{error:?}");
        assert!(!error.is_outcome_unknown());
    }
    assert!(server.calls().await.is_empty(), "nothing was sent");
}
