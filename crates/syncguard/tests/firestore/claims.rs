//! Several locks at once, and slots: how often Firestore is asked, what stands in it, and what others do meanwhile.

use std::future::pending;
use std::time::{Duration, Instant};

use firestore_emulator::{Effect, Fault, Lost, Refusal};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation as Written;
use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Batch, Claim, Clock as _, ErrorKind, ExtendOutcome,
    Extension, Grant, LockId, Operation, ReleaseOutcome, Slots, SystemClock, Ttl,
};

use crate::stage::{self, Server, text};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, acquire, eventually, key, ttl};
use crate::support::suite::tests;
use crate::support::waiters::soon;

tests![
    round_trips_do_not_grow_with_the_number_of_keys,
    slots_are_looked_for_first,
    slots_and_their_counters_have_documents_of_their_own,
    a_slot_that_is_taken_meanwhile_is_no_reason_to_fail,
    a_conflict_leaves_nothing_of_the_attempt_before,
    a_lost_reply_leaves_none_of_several_locks_behind,
    an_exhausted_counter_leaves_nothing,
    a_repetition_is_answered_as_it_was_granted,
    a_stream_tells_of_all_slots_of_a_key,
    one_free_slot_of_a_thousand_is_found_soon,
];

fn plain(names: &[String]) -> AcquireRequest {
    let claims = names.iter().map(|name| Claim::new(key(name)).unwrap());
    AcquireRequest::of(claims, Ttl::DEFAULT).unwrap()
}

fn named(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("k{number:03}")).collect()
}

fn slot(name: &str, count: u16) -> Claim {
    Claim::slot(key(name), Slots::new(count).unwrap()).unwrap()
}

fn of(claims: impl IntoIterator<Item = Claim>) -> AcquireRequest {
    AcquireRequest::of(claims, Ttl::DEFAULT).unwrap()
}

async fn take(backend: &dyn Backend, request: &AcquireRequest) -> Batch<Grant> {
    match backend.acquire(request).await.unwrap() {
        AcquireOutcome::Acquired(grants) => grants,
        locked => panic!("{locked:?}"),
    }
}

async fn take_slot(backend: &dyn Backend, name: &str, count: u16) -> Grant {
    take(backend, &of([slot(name, count)])).await.remove(0)
}

async fn release(backend: &dyn Backend, lock_ids: Batch<LockId>) -> Batch<ReleaseOutcome> {
    backend
        .ask(Operation::Release(lock_ids.into()))
        .await
        .unwrap()
}

fn calls(made: &[(&str, u64)]) -> Vec<(String, u64)> {
    let made = made.iter();
    made.map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

async fn round_trips_do_not_grow_with_the_number_of_keys() {
    let server = Server::start();
    let backend = server.backend();
    // A query takes at most 30 lock ids.
    for (count, queries) in [(4, 1), (30, 1), (31, 2), (100, 4)] {
        let request = plain(&named(count));
        let grants = take(&*backend, &request).await;
        assert_eq!(grants.len(), count);
        let made = calls(&[("BatchGetDocuments", 1), ("Commit", 1)]);
        assert_eq!(server.calls().await, made);
        let made = calls(&[("BatchGetDocuments", 1), ("Rollback", 1)]);
        assert!(
            backend
                .acquire(&plain(&named(4)))
                .await
                .unwrap()
                .is_locked()
        );
        assert_eq!(server.calls().await, made);
        let made = calls(&[("Commit", 1), ("RunQuery", queries)]);
        let extension = Extension::new(request.lock_ids(), ttl(60_000));
        let extended = backend.ask(Operation::Extend(extension)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        assert_eq!(server.calls().await, made);
        let released = release(&*backend, request.lock_ids()).await;
        assert_eq!(released.to_vec(), vec![ReleaseOutcome::Released; count]);
        assert_eq!(server.calls().await, made);
    }
}

async fn slots_are_looked_for_first() {
    let server = Server::start();
    let backend = server.backend();
    for _ in 0..5 {
        take_slot(&*backend, "a", 5).await;
        let made = calls(&[("BatchGetDocuments", 1), ("Commit", 1), ("RunQuery", 1)]);
        assert_eq!(server.calls().await, made);
    }
    let full = of([slot("a", 5), Claim::new(key("b")).unwrap()]);
    assert!(backend.acquire(&full).await.unwrap().is_locked());
    assert_eq!(server.calls().await, calls(&[("RunQuery", 1)]));
}

async fn slots_and_their_counters_have_documents_of_their_own() {
    let server = Server::start();
    let backend = server.backend();
    for (name, id) in [
        ("k", "k"),
        ("a/b", "a\u{37e}b"),
        ("__x__", "__x__"),
        (".", "."),
    ] {
        let grant = take_slot(&*backend, name, 1).await;
        let lock = server.fields(&format!("locks/{id}\u{387}1")).await.unwrap();
        let stored = format!("{name}\u{37e}1");
        assert_eq!(lock["key"], text(&stored));
        assert_eq!(lock["fence"], text(&grant.fence.to_string()));
        let counter = server
            .fields(&format!("fence_counters/fence:{id}\u{387}1"))
            .await;
        assert_eq!(counter.unwrap()["keyDebug"], text(&stored));
        acquire(&*backend, name).await;
    }
}

/// The lock of another client on a slot of "a".
async fn put_slot(server: &Server, number: u16) {
    let end = SystemClock.now_ms() + 30_000;
    let lock_id = LockId::generate().unwrap();
    let fields = [
        ("lockId", text(lock_id.as_str())),
        ("expiresAtMs", ValueType::IntegerValue(end)),
    ];
    server.put(&format!("locks/a\u{387}{number}"), fields).await;
}

async fn a_slot_that_is_taken_meanwhile_is_no_reason_to_fail() {
    let server = Server::start();
    let backend = server.backend();
    put_slot(&server, 1).await;
    let slow = Fault::new(Effect::LatencyMs(200)).on("BatchGetDocuments");
    for (is_one_freed, expected) in [(true, Some(1)), (false, None)] {
        server.emulator.faults().set([slow.clone().times(1)]);
        server.calls().await;
        let attempt = {
            let (backend, request) = (backend.clone(), of([slot("a", 2)]));
            tokio::spawn(async move { backend.acquire(&request).await.unwrap() })
        };
        eventually("it has chosen", async || {
            server
                .emulator
                .faults()
                .calls()
                .contains_key("BatchGetDocuments")
        })
        .await;
        put_slot(&server, 2).await;
        if is_one_freed {
            let first = Written::Delete(stage::name("locks/a\u{387}1"));
            stage::write(&mut server.client(), [first]).await;
        }
        let got = match attempt.await.unwrap() {
            AcquireOutcome::Acquired(grants) => grants[0].slot,
            _ => None,
        };
        assert_eq!(got, expected);
        let second = Written::Delete(stage::name("locks/a\u{387}2"));
        stage::write(&mut server.client(), [second]).await;
    }
}

async fn a_conflict_leaves_nothing_of_the_attempt_before() {
    let server = Server::start();
    let backend = server.backend();
    for name in ["k000", "k001"] {
        server.count(name).await;
    }
    server.calls().await;
    let aborted = Fault::new(Effect::Status(Refusal::Aborted)).on("Commit");
    server.emulator.faults().set([aborted.times(3)]);
    let grants = take(&*backend, &plain(&named(2))).await;
    assert_eq!(
        server.calls().await,
        calls(&[("BatchGetDocuments", 4), ("Commit", 4)])
    );
    for grant in &grants {
        assert_eq!(grant.fence.get(), AHEAD + 1);
    }
}

async fn a_lost_reply_leaves_none_of_several_locks_behind() {
    let server = Server::start();
    let backend = server.backend();
    let lost = Fault::new(Effect::DropReply(Lost::Unavailable)).on("Commit");
    server.emulator.faults().set([lost.times(1)]);
    let request = of([slot("a", 3), slot("a", 3), Claim::new(key("b")).unwrap()]);
    let call = CallOptions::DEFAULT;
    let answer =
        operation::run::<AcquireOutcome>(&backend, Operation::Acquire(request), call, pending());
    assert!(answer.await.unwrap_err().is_outcome_unknown());
    eventually("all are released", async || {
        let mut locked = backend.is_locked(&key("b")).await.unwrap();
        for number in 1..=3 {
            locked |= backend.is_locked(&key("a").slot(number)).await.unwrap();
        }
        !locked
    })
    .await;
}

async fn an_exhausted_counter_leaves_nothing() {
    let server = Server::start();
    let backend = server.backend();
    let last = [("fence", text("900000000000000"))];
    server.put("fence_counters/fence:k001", last).await;
    let error = backend.acquire(&plain(&named(3))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(!error.is_outcome_unknown());
    for name in named(3) {
        assert_eq!(server.fields(&format!("locks/{name}")).await, None);
    }
    assert_eq!(server.fields("fence_counters/fence:k000").await, None);
    server.calls().await;
}

async fn a_repetition_is_answered_as_it_was_granted() {
    let server = Server::start();
    let backend = server.backend();
    let request = of([
        slot("a", 4),
        slot("a", 4),
        Claim::new(key("b")).unwrap(),
        slot("c", 9),
    ]);
    let first = take(&*backend, &request).await;
    for _ in 0..5 {
        assert_eq!(take(&*backend, &request).await, first);
    }
    // A part of it that is still there does not stand for the whole.
    backend.release(&request.claims[2].lock_id).await.unwrap();
    assert!(backend.acquire(&request).await.unwrap().is_locked());
    assert!(!backend.is_locked(&key("b")).await.unwrap());
}

async fn a_stream_tells_of_all_slots_of_a_key() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(take_slot(&*holder, "a/b", 3).await);
    }
    let elsewhere = take_slot(&*holder, "a", 1).await;
    let watch = other.watch(&slot("a/b", 3)).unwrap();
    soon(watch.freed()).await;
    assert!(watch.is_listening());
    assert_eq!(server.emulator.targets(), 1);
    holder.extend(&held[0].lock_id, ttl(60_000)).await.unwrap();
    holder.release(&elsewhere.lock_id).await.unwrap();
    let heard = other.watch(&Claim::new(key("later")).unwrap()).unwrap();
    soon(heard.freed()).await;
    let woken = tokio::time::timeout(Duration::ZERO, watch.freed()).await;
    assert!(woken.is_err(), "what is held still wakes nobody");
    for grant in &held {
        holder.release(&grant.lock_id).await.unwrap();
        soon(watch.freed()).await;
    }
    drop((watch, heard));
    eventually("no target", async || server.emulator.targets() == 0).await;
}

async fn one_free_slot_of_a_thousand_is_found_soon() {
    let server = Server::start();
    let backend = server.backend();
    for _ in 0..10 {
        take(&*backend, &of((0..100).map(|_| slot("a", 1000)))).await;
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        assert!(backend.force_release(&key("a").slot(517)).await.unwrap());
        let start = Instant::now();
        assert_eq!(take_slot(&*backend, "a", 1000).await.slot, Some(517));
        times.push(start.elapsed());
    }
    times.sort();
    // A quarter of them, because the machine may be busy.
    assert!(times[5] < Duration::from_millis(500), "{times:?}");
}
