//! Shared locks: what stands in the tables, and what becomes of readers who end, leave or are overtaken.

use std::sync::Arc;

use futures::future::join_all;
use syncguard::postgres::{PostgresBackend, Tables};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ErrorKind, ExtendOutcome, Extension, LockGuard,
    LockId, LockOptions, Lookup, Operation, ReleaseOutcome, Ttl, lock,
};
use syncguard_clients::tokio_postgres::check;
use tokio_postgres::Client;

use crate::canonical::Canonical;
use crate::flights::{Flights, Proxy};
use crate::guards::refusal;
use crate::stage::{backend, options, server};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{acquire, eventually, key, try_acquire, ttl};
use crate::support::readers::{has_lost, holds, join, leave, refused};
use crate::support::suite::tests;

tests![
    a_group_and_its_readers_have_rows_of_their_own,
    round_trips_of_readers,
    a_group_ends_with_the_last_of_its_readers,
    what_is_left_of_readers_goes_with_the_last,
    an_old_reader_has_lost_its_lock_to_a_new_group,
    a_reader_comes_back_after_its_group_was_deleted,
    a_writer_of_2_x_takes_a_group_that_has_ended,
    a_writer_of_2_x_is_refused_by_readers,
    sets_with_one_group_are_extended_at_once,
    a_guard_keeps_the_group,
    a_guard_of_a_reader_without_a_group_is_refused,
    an_id_that_is_not_marked_is_refused,
    readers_are_found_by_their_index,
    without_the_index_readers_are_found_all_the_same,
];

const TTL_MS: i64 = 30_000;

/// The rows of a key and its readers: lock id, key of the user, fence, end.
pub(crate) async fn rows(
    client: &Client,
    tables: &Tables,
    name: &str,
) -> Vec<(String, String, String, i64)> {
    let sql = format!(
        "SELECT lock_id, user_key, fence, expires_at_ms FROM {} WHERE left(key, {}) = $1 ORDER BY length(key)",
        tables.locks(),
        name.chars().count()
    );
    let rows = client.query(&sql, &[&name]).await.unwrap();
    let each = rows.iter();
    each.map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect()
}

/// When the group of a key ends. `None` if nothing is there.
pub(crate) async fn end_of(client: &Client, tables: &Tables, name: &str) -> Option<i64> {
    let sql = format!(
        "SELECT expires_at_ms FROM {} WHERE key = $1",
        tables.locks()
    );
    let row = client.query_opt(&sql, &[&name]).await.unwrap();
    row.map(|row| row.get(0))
}

/// Lets time pass for one lock: it ends so much earlier.
async fn pass(client: &Client, tables: &Tables, lock_id: &LockId, ms: i64) {
    let sql = format!(
        "UPDATE {} SET expires_at_ms = expires_at_ms - $2 WHERE lock_id = $1",
        tables.locks()
    );
    let changed = client.execute(&sql, &[&lock_id.as_str(), &ms]).await;
    assert_eq!(changed.unwrap(), 1);
}

async fn a_group_and_its_readers_have_rows_of_their_own() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    for name in ["k", "a,b c", "K\u{e9}y"] {
        let readers = [
            join(&backend, name, ttl(TTL_MS)).await,
            join(&backend, name, ttl(TTL_MS)).await,
        ];
        let stored = rows(&client, &tables, name).await;
        assert_eq!(stored.len(), 3);
        let end = end_of(&client, &tables, name).await.unwrap();
        assert!(end >= readers[1].expires_at_ms);
        let fence = readers[0].fence.to_string();
        assert_eq!(stored[0].0, LockId::group(name).as_str());
        assert_eq!((&*stored[0].1, &stored[0].2), (name, &fence));
        for reader in &readers {
            let id = reader.lock_id.as_str();
            let own = stored.iter().find(|row| row.0 == id).unwrap();
            assert_eq!(own.1, format!("{name}\u{37e}r{id}"));
            assert_eq!((&own.2, own.3), (&fence, reader.expires_at_ms));
        }
        let counters = format!("SELECT count(*) FROM {}", tables.fences());
        let counters: i64 = client.query_one(&counters, &[]).await.unwrap().get(0);
        for reader in &readers {
            assert_eq!(leave(&backend, reader).await, ReleaseOutcome::Released);
        }
        assert!(rows(&client, &tables, name).await.is_empty());
        let kept = format!("SELECT count(*) FROM {}", tables.fences());
        let kept: i64 = client.query_one(&kept, &[]).await.unwrap().get(0);
        assert_eq!(counters, kept);
    }
    // One for each key, and none for readers.
    let counted = format!("SELECT count(*) FROM {}", tables.fences());
    let counted: i64 = client.query_one(&counted, &[]).await.unwrap().get(0);
    assert_eq!(counted, 3);
}

async fn round_trips_of_readers() {
    let proxy = Proxy::start(server().port()).await;
    let (_, tables) = backend(server().unix()).await;
    let backend = PostgresBackend::new(proxy.config(server().tcp()), options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    for counts in [false, true] {
        let check = |operation: &str, trips: usize| {
            let flights = proxy.take();
            let expected = Flights {
                requests: trips,
                replies: trips,
            };
            assert!(!counts || flights == expected, "{operation}: {flights:?}");
        };
        proxy.take();
        let first = join(&backend, "k", Ttl::DEFAULT).await;
        check("the first joins", 1);
        let second = join(&backend, "k", Ttl::DEFAULT).await;
        check("the second joins", 1);
        assert!(try_acquire(&backend, "k").await.unwrap().is_locked());
        check("a writer is refused", 1);
        holds(&backend, &first).await;
        check("extend", 1);
        for reader in [first, second] {
            leave(&backend, &reader).await;
            check("leave", 2);
        }
        // An id that begins as those of readers do may be anybody's.
        let id = LockId::parse("_wAAAAAAAAAAAAAAAAAAAA").unwrap();
        backend.release(&id).await.unwrap();
        check("release of nothing", 1);
    }
}

async fn a_group_ends_with_the_last_of_its_readers() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let mut readers = Vec::new();
    for ms in [20_000, 60_000, 40_000] {
        readers.push(join(&backend, "k", ttl(ms)).await);
    }
    let end = async || end_of(&client, &tables, "k").await;
    assert_eq!(end().await, Some(readers[1].expires_at_ms));
    // One that leaves early takes nothing along, and the last one leaves its time to the one before.
    leave(&backend, &readers[0]).await;
    assert_eq!(end().await, Some(readers[1].expires_at_ms));
    leave(&backend, &readers[1]).await;
    assert_eq!(end().await, Some(readers[2].expires_at_ms));
    let extended = backend.extend(&readers[2].lock_id, ttl(90_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended.unwrap() else {
        panic!("absent");
    };
    assert_eq!(end().await, Some(expires_at_ms));
    let shortened = backend.extend(&readers[2].lock_id, ttl(10_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = shortened.unwrap() else {
        panic!("absent");
    };
    assert_eq!(end().await, Some(expires_at_ms));
    leave(&backend, &readers[2]).await;
    assert_eq!(end().await, None);
}

async fn what_is_left_of_readers_goes_with_the_last() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let last = join(&backend, "k", Ttl::DEFAULT).await;
    let died = join_all((0..20).map(|_| join(&backend, "k", ttl(5_000)))).await;
    let beside = join(&backend, "kk", ttl(5_000)).await;
    for reader in died.iter().chain([&beside]) {
        pass(&client, &tables, &reader.lock_id, 10_000).await;
    }
    assert_eq!(leave(&backend, &last).await, ReleaseOutcome::Released);
    let left = rows(&client, &tables, "k").await;
    // Of the other key only.
    let mut ids: Vec<_> = left.iter().map(|row| row.0.as_str()).collect();
    ids.sort_unstable();
    let group = LockId::group("kk");
    let mut expected = [group.as_str(), beside.lock_id.as_str()];
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

async fn an_old_reader_has_lost_its_lock_to_a_new_group() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let (old, other) = (
        join(&backend, "k", Ttl::DEFAULT).await,
        join(&backend, "k", Ttl::DEFAULT).await,
    );
    // As SyncGuard 2.x frees it by force, which knows nothing of readers.
    let delete = format!("DELETE FROM {} WHERE key = 'k'", tables.locks());
    client.batch_execute(&delete).await.unwrap();
    let writer = acquire(&backend, "k").await;
    has_lost(&backend, &old).await;
    backend.release(&writer.lock_id).await.unwrap();
    let new = join(&backend, "k", Ttl::DEFAULT).await;
    assert!(new.fence > writer.fence && writer.fence > old.fence);
    let end = end_of(&client, &tables, "k").await;
    let lookup = Lookup::LockId(other.lock_id.clone());
    assert_eq!(backend.lookup(&lookup).await.unwrap(), None);
    assert_ne!(leave(&backend, &other).await, ReleaseOutcome::Released);
    assert_eq!(end_of(&client, &tables, "k").await, end);
    assert_eq!(refused(&backend, "k").await, Some(true));
    assert_eq!(leave(&backend, &new).await, ReleaseOutcome::Released);
    assert!(rows(&client, &tables, "k").await.is_empty());
}

async fn a_reader_comes_back_after_its_group_was_deleted() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let mut request = AcquireRequest::of([shared("k")], Ttl::DEFAULT).unwrap();
    backend.prepare(&mut request);
    let first = backend.acquire(&request).await.unwrap();
    let delete = format!("DELETE FROM {} WHERE key = 'k'", tables.locks());
    client.batch_execute(&delete).await.unwrap();
    let (AcquireOutcome::Acquired(first), AcquireOutcome::Acquired(again)) =
        (first, backend.acquire(&request).await.unwrap())
    else {
        panic!("locked");
    };
    assert!(again[0].fence > first[0].fence);
    holds(&backend, &again[0]).await;
}

async fn a_writer_of_2_x_takes_a_group_that_has_ended() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let reader = join(&backend, "k", ttl(5_000)).await;
    pass(&client, &tables, &reader.lock_id, 10_000).await;
    pass(&client, &tables, &LockId::group("k"), 10_000).await;
    let mut older = Canonical::new(server().client().await, &tables);
    let held = older.acquire(&key("k"), 60_000).await.unwrap().unwrap();
    has_lost(&backend, &reader).await;
    let end = end_of(&client, &tables, "k").await;
    assert_eq!(refused(&backend, "k").await, Some(false));
    let joining = try_take(&backend, [shared("k")]).await.unwrap();
    assert!(matches!(
        joining,
        AcquireOutcome::Locked {
            is_shared: false,
            ..
        }
    ));
    assert_eq!(end_of(&client, &tables, "k").await, end);
    assert!(older.release(&held.lock_id).await.unwrap());
    let next = join(&backend, "k", Ttl::DEFAULT).await;
    assert!(next.fence.get() > held.fence.unsigned_abs());
}

async fn a_writer_of_2_x_is_refused_by_readers() {
    let (backend, tables) = backend(server().unix()).await;
    let mut older = Canonical::new(server().client().await, &tables);
    let readers = [
        join(&backend, "k", Ttl::DEFAULT).await,
        join(&backend, "k", Ttl::DEFAULT).await,
    ];
    for reader in readers {
        assert!(older.acquire(&key("k"), 60_000).await.unwrap().is_none());
        // It frees nothing by the id that the table shows.
        assert_eq!(leave(&backend, &reader).await, ReleaseOutcome::Released);
    }
    assert!(older.acquire(&key("k"), 60_000).await.unwrap().is_some());
}

async fn sets_with_one_group_are_extended_at_once() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let mut all = Vec::new();
    for claims in [
        vec![shared("a"), plain("b")],
        vec![shared("a"), shared("c")],
        vec![shared("a"), shared("c"), plain("d"), slot("e", 3)],
    ] {
        all.extend(take(&backend, claims).await);
    }
    let extended = extend(&backend, ids(&all), ttl(600_000)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("{extended:?}");
    };
    for name in ["a", "b", "c", "d"] {
        assert_eq!(end_of(&client, &tables, name).await, Some(expires_at_ms));
    }
    // If one group is gone, nobody is extended.
    assert!(backend.force_release(&key("c")).await.unwrap());
    let extension = Extension::new(ids(&all), ttl(900_000));
    let answer = backend.ask(Operation::Extend(extension)).await.unwrap();
    assert!(matches!(answer, ExtendOutcome::Absent { .. }));
    for name in ["a", "b", "d"] {
        assert_eq!(end_of(&client, &tables, name).await, Some(expires_at_ms));
    }
    let released = release(&backend, ids(&all)).await;
    let gone = |outcome: &&ReleaseOutcome| **outcome != ReleaseOutcome::Released;
    assert_eq!(released.iter().filter(gone).count(), 2);
    for name in ["a", "b", "c", "d", "e"] {
        assert!(rows(&client, &tables, name).await.is_empty());
    }
}

/// A reader that the crate's own guard holds.
async fn reading(backend: &Arc<PostgresBackend>) -> LockGuard {
    let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
    lock(&backend, vec![shared("k")], &LockOptions::default())
        .await
        .unwrap()
}

async fn a_guard_keeps_the_group() {
    let (backend, tables) = backend(server().unix()).await;
    let backend = Arc::new(backend);
    let (guard, other) = (reading(&backend).await, reading(&backend).await);
    let mut client = server().client().await;
    let transaction = client.transaction().await.unwrap();
    check(&guard, &transaction).await.unwrap();
    // Others come, go on and leave meanwhile.
    let beside = join(&*backend, "k", Ttl::DEFAULT).await;
    holds(&*backend, &beside).await;
    assert_eq!(leave(&*backend, &beside).await, ReleaseOutcome::Released);
    other.release().await.unwrap();
    crate::guards::expire(&tables).await;
    // A writer gets the key only after the transaction.
    assert!(refused(&*backend, "k").await.is_some());
    transaction.commit().await.unwrap();
    assert_eq!(refused(&*backend, "k").await, None);
    let error = refusal(&mut client, &guard).await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    guard.keep();
}

async fn a_guard_of_a_reader_without_a_group_is_refused() {
    let (backend, tables) = backend(server().unix()).await;
    let backend = Arc::new(backend);
    let guard = reading(&backend).await;
    let mut client = server().client().await;
    let delete = format!("DELETE FROM {} WHERE key = 'k'", tables.locks());
    client.batch_execute(&delete).await.unwrap();
    let error = refusal(&mut client, &guard).await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    // A later group is another's.
    join(&*backend, "k", Ttl::DEFAULT).await;
    let error = refusal(&mut client, &guard).await;
    assert_eq!(error.kind(), ErrorKind::LockLost);
    guard.keep();
}

async fn an_id_that_is_not_marked_is_refused() {
    let (backend, tables) = backend(server().unix()).await;
    let mut claim = shared("k");
    claim.lock_id = LockId::parse("BAAAAAAAAAAAAAAAAAAAAA").unwrap();
    let request = AcquireRequest::of([claim], Ttl::DEFAULT).unwrap();
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let client = server().client().await;
    assert!(rows(&client, &tables, "k").await.is_empty());
}

/// The plan of the statement that looks for the readers of a key among many locks.
async fn readers_are_found_by_their_index() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let locks = tables.locks();
    let fill = format!(
        "INSERT INTO {locks} SELECT 'other ' || n, 'id ' || n, 9e15::bigint, 1, '1', 'other' FROM generate_series(1, 20000) AS n; \
         ANALYZE {locks}"
    );
    client.batch_execute(&fill).await.unwrap();
    let reader = join(&backend, "k", Ttl::DEFAULT).await;
    let read = async || -> i64 {
        let sql = "SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint FROM pg_stat_user_tables WHERE relname = $1";
        client.query_one(sql, &[&locks]).await.unwrap().get(0)
    };
    let before = read().await;
    assert_eq!(leave(&backend, &reader).await, ReleaseOutcome::Released);
    drop(backend);
    let used = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = $1";
    let index = format!("idx_{locks}_readers");
    eventually("the session has told what it read", async || {
        let row = client.query_one(used, &[&index]).await.unwrap();
        row.get::<_, i64>(0) > 0
    })
    .await;
    assert!(read().await - before < 1_000);
}

async fn without_the_index_readers_are_found_all_the_same() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let drop = format!("DROP INDEX idx_{}_readers", tables.locks());
    client.batch_execute(&drop).await.unwrap();
    let readers = [
        join(&backend, "k", Ttl::DEFAULT).await,
        join(&backend, "k", Ttl::DEFAULT).await,
    ];
    for reader in readers {
        assert_eq!(refused(&backend, "k").await, Some(true));
        leave(&backend, &reader).await;
    }
    assert!(rows(&client, &tables, "k").await.is_empty());
}
