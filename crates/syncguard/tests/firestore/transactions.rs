//! How often Firestore is asked, and that every transaction ends.

use std::time::Duration;

use firestore_emulator::{Effect, Fault};
use syncguard::{ExtendOutcome, Lookup, ReleaseOutcome, Ttl};

use crate::stage::Server;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, try_acquire};
use crate::support::suite::tests;

tests![
    round_trips_are_as_few_as_can_be,
    a_dropped_attempt_leaves_no_transaction_open,
    an_attempt_dropped_while_it_begins_leaves_no_transaction_open,
    closing_leaves_no_transaction_open,
];

async fn round_trips_are_as_few_as_can_be() {
    let server = Server::start();
    let backend = server.backend();
    let a = key("a");
    let none = |calls: &[(&str, u64)]| -> Vec<(String, u64)> {
        calls
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    let grant = acquire(&*backend, a.as_str()).await;
    assert_eq!(
        server.calls().await,
        none(&[("BatchGetDocuments", 1), ("Commit", 1)])
    );

    assert!(
        try_acquire(&*backend, a.as_str())
            .await
            .unwrap()
            .is_locked()
    );
    assert_eq!(
        server.calls().await,
        none(&[("BatchGetDocuments", 1), ("Rollback", 1)])
    );

    let extended = backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    assert_eq!(
        server.calls().await,
        none(&[("Commit", 1), ("RunQuery", 1)])
    );

    assert!(backend.is_locked(&a).await.unwrap());
    assert_eq!(server.calls().await, none(&[("BatchGetDocuments", 1)]));
    assert!(
        backend
            .lookup(&Lookup::Key(a.clone()))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(server.calls().await, none(&[("BatchGetDocuments", 1)]));
    let by_id = Lookup::LockId(grant.lock_id.clone());
    assert!(backend.lookup(&by_id).await.unwrap().is_some());
    assert_eq!(server.calls().await, none(&[("RunQuery", 1)]));

    let released = backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert_eq!(
        server.calls().await,
        none(&[("Commit", 1), ("RunQuery", 1)])
    );
}

async fn a_dropped_attempt_leaves_no_transaction_open() {
    let server = Server::start();
    let backend = server.backend();
    let (a, busy) = (key("a"), key("busy"));
    let held = acquire(&*backend, busy.as_str()).await;
    // Refused reads, dropped attempts, contention: all end what they began.
    server
        .emulator
        .faults()
        .set([Fault::new(Effect::LatencyMs(30)).on("Commit")]);
    for _ in 0..5 {
        let attempt = try_acquire(&*backend, a.as_str());
        let _ = tokio::time::timeout(Duration::from_millis(10), attempt).await;
        try_acquire(&*backend, busy.as_str()).await.unwrap();
    }
    eventually("no transaction is open", async || {
        server.emulator.open_transactions() == 0
    })
    .await;
    assert!(
        backend
            .lookup(&Lookup::LockId(held.lock_id))
            .await
            .unwrap()
            .is_some()
    );
}

async fn an_attempt_dropped_while_it_begins_leaves_no_transaction_open() {
    let server = Server::start();
    let (backend, a) = (server.backend(), key("a"));
    acquire(&*backend, a.as_str()).await;
    // Somewhere on the way to the server, in it, or on the way back.
    for patience in (0..2_000).step_by(10).map(Duration::from_micros) {
        let _ = tokio::time::timeout(patience, try_acquire(&*backend, a.as_str())).await;
    }
    eventually("no transaction is open", async || {
        server.emulator.open_transactions() == 0
    })
    .await;
}

async fn closing_leaves_no_transaction_open() {
    let server = Server::start();
    let backend = server.backend();
    acquire(&*backend, "a").await;
    for _ in 0..10 {
        // Is answered before the transaction has ended.
        let outcome = try_acquire(&*backend, "a").await.unwrap();
        assert!(outcome.is_locked());
    }
    backend.close().await;
    assert_eq!(server.emulator.open_transactions(), 0);
}
