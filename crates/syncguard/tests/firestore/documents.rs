//! What stands in Firestore: the format that other clients share, and what to do with what they leave.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use syncguard::firestore::Warning;
use syncguard::{
    Absence, AcquireRequest, ErrorKind, ExtendOutcome, LockId, Lookup, Owner, ReleaseOutcome, Ttl,
    hash_key,
};

use crate::stage::{Server, text};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, ManualClock, acquire, eventually, key, try_acquire};
use crate::support::suite::tests;

tests![
    locks_and_counters_have_the_shared_format,
    a_lock_of_another_client_is_respected_extended_and_released,
    duplicates_are_reported_and_only_expired_ones_are_deleted,
    cleanup_deletes_what_is_long_over_and_never_a_counter,
    keys_that_firestore_forbids_as_ids_work,
    a_malformed_document_is_an_error_and_stays,
    collections_can_be_chosen,
];

const NOW: i64 = 1_700_000_000_000;

/// A lock as another client writes it.
fn lock(lock_id: &LockId, expires_at_ms: i64) -> [(&'static str, ValueType); 5] {
    [
        ("lockId", text(lock_id.as_str())),
        ("expiresAtMs", ValueType::IntegerValue(expires_at_ms)),
        ("acquiredAtMs", ValueType::IntegerValue(NOW - 1)),
        ("key", text("k")),
        ("fence", text("000000000000007")),
    ]
}

async fn locks_and_counters_have_the_shared_format() {
    let server = Server::start();
    let backend = server.backend_on(ManualClock::at(NOW), |_| {});
    let mut request = AcquireRequest::new(key("k"), Ttl::DEFAULT).unwrap();
    request.labels.owner = Some(Owner::new("worker 1").unwrap());
    backend.acquire(&request).await.unwrap();
    let stored = server.fields("locks/k").await.unwrap();
    let expected = [
        ("lockId", text(request.claims[0].lock_id.as_str())),
        ("expiresAtMs", ValueType::IntegerValue(NOW + 30_000)),
        ("acquiredAtMs", ValueType::IntegerValue(NOW)),
        ("key", text("k")),
        ("fence", text("001700000000000")),
        ("owner", text("worker 1")),
    ];
    assert_eq!(
        stored,
        expected
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    );
    let counter = server.fields("fence_counters/fence:k").await.unwrap();
    let expected = [("fence", text("001700000000000")), ("keyDebug", text("k"))];
    assert_eq!(
        counter,
        expected
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    );

    backend.release(&request.claims[0].lock_id).await.unwrap();
    assert_eq!(server.fields("locks/k").await, None);
    assert_eq!(server.fields("fence_counters/fence:k").await, Some(counter));
}

async fn a_lock_of_another_client_is_respected_extended_and_released() {
    let server = Server::start();
    let backend = server.backend_on(ManualClock::at(NOW), |_| {});
    let lock_id = LockId::generate().unwrap();
    let mut fields = lock(&lock_id, NOW + 1).to_vec();
    // JavaScript may write a number that is whole as a double, and members that we do not know.
    fields[2].1 = ValueType::DoubleValue((NOW - 1) as f64);
    fields.push(("unknown", text("kept")));
    server.put("locks/k", fields).await;
    server
        .put(
            "fence_counters/fence:k",
            [("fence", text("000000000000007"))],
        )
        .await;

    assert!(try_acquire(&*backend, "k").await.unwrap().is_locked());
    let record = backend
        .lookup(&Lookup::LockId(lock_id.clone()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((record.fence.get(), record.acquired_at_ms), (7, NOW - 1));
    assert!(record.labels.is_empty());
    let extended = backend.extend(&lock_id, Ttl::DEFAULT).await.unwrap();
    assert_eq!(
        extended,
        ExtendOutcome::Extended {
            expires_at_ms: NOW + 30_000
        }
    );
    let stored = server.fields("locks/k").await.unwrap();
    assert_eq!(stored.get("unknown"), Some(&text("kept")));
    assert_eq!(
        backend.release(&lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
    let fence = acquire(&*backend, "k").await.fence.get();
    assert_eq!(fence, NOW.unsigned_abs());
}

async fn duplicates_are_reported_and_only_expired_ones_are_deleted() {
    let server = Server::start();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let backend = server.backend_on(ManualClock::at(NOW), |config| {
        config.on_warning = Some(Arc::new(move |warning: &Warning| {
            sink.lock().unwrap().push(warning.clone());
        }));
    });
    let id = LockId::generate().unwrap();
    let warning = |live, expired| Warning::DuplicateLockId {
        lock_id_hash: hash_key(id.as_str()),
        live,
        expired,
    };
    let heard = || std::mem::take(&mut *heard.lock().unwrap());

    server.put("locks/a", lock(&id, NOW + 1)).await;
    server.put("locks/b", lock(&id, NOW + 1)).await;
    server.put("locks/c", lock(&id, NOW - 1000)).await;
    let absent = Absence::NotFound;
    assert_eq!(
        backend.release(&id).await.unwrap(),
        ReleaseOutcome::Absent(absent)
    );
    let extended = backend.extend(&id, Ttl::DEFAULT).await.unwrap();
    assert_eq!(extended, ExtendOutcome::absent(absent));
    assert_eq!(
        backend.lookup(&Lookup::LockId(id.clone())).await.unwrap(),
        None
    );
    assert_eq!(heard(), vec![warning(2, 1); 3]);
    for path in ["locks/a", "locks/b", "locks/c"] {
        assert!(server.fields(path).await.is_some());
    }

    server.put("locks/b", lock(&id, NOW - 1000)).await;
    assert!(
        backend
            .lookup(&Lookup::LockId(id.clone()))
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        server.fields("locks/b").await.is_some(),
        "lookup only reads"
    );
    let extended = backend.extend(&id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    assert_eq!(heard(), vec![warning(1, 2); 2]);
    assert!(server.fields("locks/a").await.is_some());
    assert_eq!(server.fields("locks/b").await, None);
    assert_eq!(server.fields("locks/c").await, None);
}

async fn cleanup_deletes_what_is_long_over_and_never_a_counter() {
    let server = Server::start();
    let clock = ManualClock::at(NOW);
    let backend = server.backend_on(clock.clone(), |config| config.cleanup_in_is_locked = true);
    let grant = acquire(&*backend, "k").await;
    let counter = server.fields("fence_counters/fence:k").await;
    clock.0.store(grant.expires_at_ms + 2000, Ordering::SeqCst);
    server.emulator.faults().reset_calls();
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    assert_eq!(server.calls().await, [("BatchGetDocuments".to_owned(), 1)]);

    clock.0.store(grant.expires_at_ms + 2001, Ordering::SeqCst);
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    eventually("the lock is deleted", async || {
        server.fields("locks/k").await.is_none()
    })
    .await;
    assert_eq!(server.fields("fence_counters/fence:k").await, counter);
}

async fn keys_that_firestore_forbids_as_ids_work() {
    let server = Server::start();
    let backend = server.backend();
    let long = "/".repeat(512);
    for text in [
        "a/b",
        "a/b/c",
        "/",
        ".",
        "..",
        "__x__",
        "____",
        long.as_str(),
    ] {
        server.count(text).await;
        let grant = acquire(&*backend, text).await;
        assert!(backend.is_locked(&key(text)).await.unwrap());
        let record = backend
            .lookup(&Lookup::LockId(grant.lock_id.clone()))
            .await
            .unwrap();
        assert_eq!(record.unwrap().key.as_str(), text);
        assert_eq!(
            backend.release(&grant.lock_id).await.unwrap(),
            ReleaseOutcome::Released
        );
        let again = acquire(&*backend, text).await;
        assert_eq!(
            again.fence.get(),
            AHEAD + 2,
            "the counter of {text} is not its own"
        );
    }
}

async fn a_malformed_document_is_an_error_and_stays() {
    let server = Server::start();
    let backend = server.backend();
    server.put("locks/a", [("lockId", text("x"))]).await;
    server
        .put(
            "fence_counters/fence:b",
            [("fence", ValueType::IntegerValue(7))],
        )
        .await;
    for name in ["a", "b"] {
        let error = try_acquire(&*backend, name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
    assert!(backend.is_locked(&key("a")).await.is_err());
    assert!(server.fields("locks/a").await.is_some());
    assert_eq!(server.fields("locks/b").await, None);
    eventually("no transaction is open", async || {
        server.emulator.open_transactions() == 0
    })
    .await;
}

async fn collections_can_be_chosen() {
    let server = Server::start();
    let backend = server.backend_with(|config| {
        config.collection = "my locks".to_owned();
        config.fence_collection = "my fences".to_owned();
    });
    let grant = acquire(&*backend, "k").await;
    assert!(server.fields("my locks/k").await.is_some());
    assert!(server.fields("my fences/fence:k").await.is_some());
    assert_eq!(
        backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
}
