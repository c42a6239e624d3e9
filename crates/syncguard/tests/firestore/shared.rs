//! Shared locks: what stands in Firestore, how often it is asked, and what becomes of readers who end, leave or are overtaken.

use std::time::Duration;

use firestore_emulator::{Effect, Fault};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use syncguard::firestore::DocumentIds;
use syncguard::{
    AcquireOutcome, AcquireRequest, Claim, Clock as _, ExtendOutcome, Extension, Grant, LockId,
    Operation, ReleaseOutcome, SystemClock, Ttl,
};
use tokio::task::JoinSet;

use crate::stage::{Server, text};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, take, try_take};
use crate::support::locks::{ManualClock, eventually, key, ttl};
use crate::support::readers::{join, leave, refused};
use crate::support::suite::tests;
use crate::support::waiters::soon;

tests![
    round_trips_of_readers,
    a_group_and_its_readers_have_documents_of_their_own,
    one_write_makes_the_group_last_for_several_heartbeats,
    a_reader_with_a_short_time_beside_one_with_a_long_one,
    a_reader_who_is_killed_costs_its_time_and_no_more,
    of_two_last_leavers_one_frees_the_key,
    who_joins_while_the_last_one_leaves_is_protected,
    many_readers_come_and_go_at_once,
    readers_who_have_ended_are_deleted_however_many,
    an_old_reader_has_lost_its_lock_to_a_new_group,
    a_writer_of_2_x_takes_a_group_that_has_ended,
    sets_with_one_group_are_extended_at_once,
    who_waits_to_read_listens_to_the_gate,
];

const TTL_MS: i64 = 30_000;

/// The path of the document of one who shares that key.
fn path(name: &str, grant: &Grant) -> String {
    let ids = DocumentIds::of(&key(name).reader(&grant.lock_id)).unwrap();
    format!("locks/{}", ids.lock)
}

async fn end_of(server: &Server, path: &str) -> i64 {
    match server.fields(path).await.unwrap()["expiresAtMs"] {
        ValueType::IntegerValue(end) => end,
        ref other => panic!("{other:?}"),
    }
}

fn calls(made: &[(&str, u64)]) -> Vec<(String, u64)> {
    let made = made.iter();
    made.map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

async fn round_trips_of_readers() {
    let server = Server::start();
    let backend = server.backend();
    let joining = calls(&[("BatchGetDocuments", 1), ("Commit", 1)]);
    let first = join(&*backend, "a", Ttl::DEFAULT).await;
    assert_eq!(server.calls().await, joining);
    let second = join(&*backend, "a", Ttl::DEFAULT).await;
    assert_eq!(server.calls().await, joining);

    let refusal = calls(&[("BatchGetDocuments", 1), ("Rollback", 1), ("RunQuery", 1)]);
    assert_eq!(refused(&*backend, "a").await, Some(true));
    assert_eq!(server.calls().await, refusal);

    let heartbeat = calls(&[("BatchGetDocuments", 1), ("Commit", 1), ("RunQuery", 1)]);
    let extended = backend.extend(&first.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    assert_eq!(server.calls().await, heartbeat);

    let look = calls(&[("BatchGetDocuments", 1), ("RunQuery", 1)]);
    assert!(backend.is_locked(&key("a")).await.unwrap());
    assert_eq!(server.calls().await, look);

    let leaving = calls(&[("BatchGetDocuments", 1), ("Commit", 1), ("RunQuery", 2)]);
    for grant in [first, second] {
        assert_eq!(leave(&*backend, &grant).await, ReleaseOutcome::Released);
        assert_eq!(server.calls().await, leaving);
    }
    assert_eq!(server.fields("locks/a").await, None);
}

async fn a_group_and_its_readers_have_documents_of_their_own() {
    let server = Server::start();
    let backend = server.backend();
    for (name, group, readers) in [
        ("k", "k", "k"),
        ("a/b", "a\u{37e}b", "a\u{37e}b"),
        (".", "\u{387}.", "."),
        ("__x__", "\u{387}__x__", "__x__"),
    ] {
        let grant = join(&*backend, name, Ttl::DEFAULT).await;
        let other = join(&*backend, name, Ttl::DEFAULT).await;
        let of_all = server.fields(&format!("locks/{group}")).await.unwrap();
        assert_eq!(of_all["lockId"], text(LockId::group(group).as_str()));
        assert_eq!(of_all["key"], text(name));
        let id = grant.lock_id.as_str();
        let own = format!("locks/{readers}\u{387}r{id}");
        let own = server.fields(&own).await.unwrap();
        assert_eq!(own["lockId"], text(id));
        assert_eq!(own["key"], text(&format!("{name}\u{37e}r{id}")));
        assert_eq!(own["fence"], of_all["fence"]);
        let counters = ["", &format!("\u{387}r{id}")];
        let counters = counters.map(|mark| format!("fence_counters/fence:{readers}{mark}"));
        let counter = server.fields(&counters[0]).await.unwrap();
        assert_eq!(
            (&counter["fence"], &counter["keyDebug"]),
            (&own["fence"], &text(name))
        );
        assert_eq!(server.fields(&counters[1]).await, None);
        for grant in [grant, other] {
            assert_eq!(leave(&*backend, &grant).await, ReleaseOutcome::Released);
        }
        assert_eq!(server.fields(&format!("locks/{group}")).await, None);
    }
}

async fn one_write_makes_the_group_last_for_several_heartbeats() {
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000);
    let backend = server.backend_on(clock.clone(), |_| {});
    let mut readers = vec![join(&*backend, "a", ttl(TTL_MS)).await];
    let end = end_of(&server, "locks/a").await;
    assert_eq!(end, clock.now_ms() + TTL_MS + TTL_MS / 2);
    clock.advance(Duration::from_secs(15));
    readers.push(join(&*backend, "a", ttl(TTL_MS)).await);
    for reader in &readers {
        backend.extend(&reader.lock_id, ttl(TTL_MS)).await.unwrap();
        assert_eq!(end_of(&server, &path("a", reader)).await, end);
    }
    assert_eq!(end_of(&server, "locks/a").await, end);
    clock.advance(Duration::from_secs(1));
    for reader in &readers {
        backend.extend(&reader.lock_id, ttl(TTL_MS)).await.unwrap();
        assert_eq!(end_of(&server, "locks/a").await, end + 1_000 + TTL_MS / 2);
    }
}

async fn a_reader_with_a_short_time_beside_one_with_a_long_one() {
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000);
    let backend = server.backend_on(clock.clone(), |_| {});
    for is_short_first in [true, false] {
        let times = if is_short_first {
            [100, 60_000]
        } else {
            [60_000, 100]
        };
        let one = join(&*backend, "a", ttl(times[0])).await;
        let other = join(&*backend, "a", ttl(times[1])).await;
        let (short, long) = if is_short_first {
            (one, other)
        } else {
            (other, one)
        };
        let end = end_of(&server, "locks/a").await;
        assert!(end >= long.expires_at_ms);
        // What it asks for is sooner than the end of the group, which stays.
        backend.extend(&short.lock_id, ttl(200)).await.unwrap();
        assert_eq!(end_of(&server, "locks/a").await, end);
        clock.advance(Duration::from_millis(1_300));
        let extended = backend.extend(&short.lock_id, ttl(60_000)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Absent { .. }));
        assert_eq!(refused(&*backend, "a").await, Some(true));
        let extended = backend.extend(&long.lock_id, ttl(60_000)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        assert_eq!(leave(&*backend, &long).await, ReleaseOutcome::Released);
        assert_eq!(refused(&*backend, "a").await, None);
    }
}

async fn a_reader_who_is_killed_costs_its_time_and_no_more() {
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000);
    let backend = server.backend_on(clock.clone(), |_| {});
    let killed = join(&*backend, "a", ttl(1_000)).await;
    let left = join(&*backend, "a", ttl(TTL_MS)).await;
    assert_eq!(leave(&*backend, &left).await, ReleaseOutcome::Released);
    clock.advance(Duration::from_millis(1_999));
    assert_eq!(refused(&*backend, "a").await, Some(true));
    assert!(backend.is_locked(&key("a")).await.unwrap());
    clock.advance(Duration::from_millis(1));
    assert!(end_of(&server, "locks/a").await > clock.now_ms());
    assert!(!backend.is_locked(&key("a")).await.unwrap());
    let writer = take(&*backend, [plain("a")]).await;
    assert!(writer[0].fence > killed.fence);
    assert_eq!(server.fields(&path("a", &killed)).await, None);
}

async fn of_two_last_leavers_one_frees_the_key() {
    let server = Server::start();
    let backends = [server.backend(), server.backend()];
    for _ in 0..10 {
        let mut leaving = JoinSet::new();
        let mut readers = Vec::new();
        for backend in &backends {
            readers.push(join(&**backend, "a", Ttl::DEFAULT).await);
        }
        // Both have seen each other before one of them is gone.
        let slow = Fault::new(Effect::LatencyMs(50)).on("Commit");
        server.emulator.faults().set([slow]);
        for (backend, reader) in backends.iter().cloned().zip(readers) {
            leaving.spawn(async move { leave(&*backend, &reader).await });
        }
        let outcomes = leaving.join_all().await;
        server.emulator.faults().set([]);
        assert_eq!(outcomes, [ReleaseOutcome::Released; 2]);
        assert_eq!(server.fields("locks/a").await, None);
    }
}

async fn who_joins_while_the_last_one_leaves_is_protected() {
    let server = Server::start();
    let backend = server.backend();
    let last = join(&*backend, "a", Ttl::DEFAULT).await;
    let slow = Fault::new(Effect::LatencyMs(300)).on("Commit");
    server.emulator.faults().set([slow.times(1)]);
    server.calls().await;
    let leaving = {
        let (backend, last) = (backend.clone(), last.clone());
        tokio::spawn(async move { leave(&*backend, &last).await })
    };
    eventually("it has seen that nobody is left", async || {
        server.emulator.faults().calls().contains_key("Commit")
    })
    .await;
    let joined = join(&*backend, "a", Ttl::DEFAULT).await;
    assert_eq!(leaving.await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(refused(&*backend, "a").await, Some(true));
    let extended = backend.extend(&joined.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
}

async fn many_readers_come_and_go_at_once() {
    let server = Server::start();
    let mut reading = JoinSet::new();
    for _ in 0..4 {
        let backend = server.backend();
        for _ in 0..10 {
            let backend = backend.clone();
            reading.spawn(async move {
                let reader = join(&*backend, "a", Ttl::DEFAULT).await;
                let extended = backend.extend(&reader.lock_id, ttl(60_000)).await.unwrap();
                assert!(matches!(extended, ExtendOutcome::Extended { .. }));
                assert_eq!(leave(&*backend, &reader).await, ReleaseOutcome::Released);
            });
        }
    }
    reading.join_all().await;
    let backend = server.backend();
    assert_eq!(server.fields("locks/a").await, None);
    assert_eq!(refused(&*backend, "a").await, None);
}

async fn readers_who_have_ended_are_deleted_however_many() {
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000);
    let backend = server.backend_on(clock.clone(), |_| {});
    for is_released in [true, false] {
        let last = join(&*backend, "a", ttl(TTL_MS)).await;
        let mut ended = Vec::new();
        for _ in 0..205 {
            ended.push(join(&*backend, "a", ttl(1_000)).await);
        }
        clock.advance(Duration::from_secs(5));
        assert_eq!(refused(&*backend, "a").await, Some(true));
        if is_released {
            assert_eq!(leave(&*backend, &last).await, ReleaseOutcome::Released);
            assert_eq!(server.fields("locks/a").await, None);
        } else {
            clock.advance(Duration::from_secs(30));
            take(&*backend, [plain("a")]).await;
        }
        for reader in [&ended[0], &ended[100], &ended[204]] {
            assert_eq!(server.fields(&path("a", reader)).await, None);
        }
    }
}

async fn an_old_reader_has_lost_its_lock_to_a_new_group() {
    let server = Server::start();
    let backend = server.backend();
    let old = join(&*backend, "a", Ttl::DEFAULT).await;
    assert!(backend.force_release(&key("a")).await.unwrap());
    let writer = take(&*backend, [plain("a")]).await;
    release(&*backend, ids(&writer)).await;
    let new = join(&*backend, "a", Ttl::DEFAULT).await;
    assert!(new.fence > writer[0].fence && writer[0].fence > old.fence);
    let end = end_of(&server, "locks/a").await;
    let extended = backend.extend(&old.lock_id, ttl(600_000)).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    assert_eq!(end_of(&server, "locks/a").await, end);
    assert_eq!(server.fields(&path("a", &old)).await, None);
    // One whose lock is not there any more, and one that has ended since, keep nobody out.
    let stays = join(&*backend, "a", Ttl::DEFAULT).await;
    assert!(backend.force_release(&key("a")).await.unwrap());
    let latest = join(&*backend, "a", Ttl::DEFAULT).await;
    assert_ne!(leave(&*backend, &stays).await, ReleaseOutcome::Released);
    assert_eq!(refused(&*backend, "a").await, Some(true));
    assert_eq!(leave(&*backend, &latest).await, ReleaseOutcome::Released);
    assert_eq!(refused(&*backend, "a").await, None);
}

async fn a_writer_of_2_x_takes_a_group_that_has_ended() {
    let server = Server::start();
    let clock = ManualClock::at(SystemClock.now_ms());
    let backend = server.backend_on(clock.clone(), |_| {});
    let reader = join(&*backend, "a", ttl(1_000)).await;
    clock.advance(Duration::from_millis(2_500));
    // It replaces the document, and adds one to the counter.
    let (now, lock_id) = (clock.now_ms(), LockId::generate().unwrap());
    let fence = format!("{:015}", reader.fence.get() + 1);
    let fields = [
        ("lockId", text(lock_id.as_str())),
        ("key", text("a")),
        ("fence", text(&fence)),
        ("expiresAtMs", ValueType::IntegerValue(now + TTL_MS)),
        ("acquiredAtMs", ValueType::IntegerValue(now)),
    ];
    server.put("locks/a", fields).await;
    let counter = [("fence", text(&fence)), ("keyDebug", text("a"))];
    server.put("fence_counters/fence:a", counter).await;
    let extended = backend.extend(&reader.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
    let joining = try_take(&*backend, [shared("a")]).await.unwrap();
    assert!(matches!(
        joining,
        AcquireOutcome::Locked {
            is_shared: false,
            ..
        }
    ));
    assert_eq!(end_of(&server, "locks/a").await, now + TTL_MS);
    backend.release(&lock_id).await.unwrap();
    let next = join(&*backend, "a", Ttl::DEFAULT).await;
    assert!(next.fence.to_string() > fence);
}

async fn sets_with_one_group_are_extended_at_once() {
    let server = Server::start();
    let backend = server.backend();
    let sets: [Vec<Claim>; 3] = [
        vec![shared("a"), plain("b")],
        vec![shared("a"), shared("c")],
        vec![shared("a"), shared("c"), plain("d")],
    ];
    let mut all = Vec::new();
    for claims in sets {
        all.extend(take(&*backend, claims).await);
    }
    server.calls().await;
    let extended = extend(&*backend, ids(&all), ttl(600_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("{extended:?}");
    };
    let made = calls(&[("BatchGetDocuments", 1), ("Commit", 1), ("RunQuery", 1)]);
    assert_eq!(server.calls().await, made);
    for name in ["a", "c"] {
        let end = end_of(&server, &format!("locks/{name}")).await;
        assert_eq!(end, expires_at_ms + 300_000);
    }
    // If one group is gone, nobody is extended.
    assert!(backend.force_release(&key("c")).await.unwrap());
    let extension = Extension::new(ids(&all), ttl(900_000));
    let answer = backend.ask(Operation::Extend(extension)).await.unwrap();
    assert!(matches!(answer, ExtendOutcome::Absent { .. }));
    assert_eq!(end_of(&server, "locks/a").await, expires_at_ms + 300_000);
    assert_eq!(end_of(&server, "locks/b").await, expires_at_ms);
    let released = release(&*backend, ids(&all)).await;
    let of_c = |outcome: &&ReleaseOutcome| **outcome != ReleaseOutcome::Released;
    assert!((1..=2).contains(&released.iter().filter(of_c).count()));
    for name in ["a", "b", "c", "d"] {
        assert_eq!(server.fields(&format!("locks/{name}")).await, None);
    }
}

async fn who_waits_to_read_listens_to_the_gate() {
    let server = Server::start();
    let (holder, other) = (server.backend(), server.backend());
    let gate = holder
        .acquire(&AcquireRequest::new(key("a").slot(0), Ttl::DEFAULT).unwrap())
        .await
        .unwrap();
    let AcquireOutcome::Acquired(gate) = gate else {
        panic!("{gate:?}");
    };
    assert!(try_take(&*other, [shared("a")]).await.unwrap().is_locked());
    let watch = other.watch(&shared("a")).unwrap();
    soon(watch.freed()).await;
    assert_eq!(server.emulator.targets(), 1);
    release(&*holder, ids(&gate)).await;
    soon(watch.freed()).await;
    let writer = take(&*holder, [plain("a")]).await;
    release(&*holder, ids(&writer)).await;
    soon(watch.freed()).await;
    drop(watch);
    eventually("no target", async || server.emulator.targets() == 0).await;
}
