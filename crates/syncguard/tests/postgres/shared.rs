//! Shared locks: what stands in the tables, and what becomes of readers who end, leave or are overtaken.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::future::join_all;
use syncguard::postgres::{PostgresBackend, Tables};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ErrorKind, ExtendOutcome, Extension, Grant, LockGuard,
    LockId, LockOptions, Lookup, Operation, Owner, ReleaseOutcome, Ttl, lock,
};
use syncguard_clients::tokio_postgres::check;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::canonical::Canonical;
use crate::flights::{Flights, Proxy};
use crate::groups::{COUNT, at_once, scarce};
use crate::guards::refusal;
use crate::scene::named;
use crate::stage::{backend, count, options, server, sessions, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{AHEAD, acquire, eventually, key, try_acquire, ttl};
use crate::support::suite::tests;

tests![
    a_group_and_its_readers_have_rows_of_their_own,
    round_trips_of_readers,
    a_group_ends_with_the_last_of_its_readers,
    of_two_last_leavers_one_frees_the_key,
    who_joins_while_the_last_one_leaves_is_protected,
    who_extends_while_another_leaves_is_protected,
    many_readers_come_and_go_at_once,
    what_is_left_of_readers_goes_with_the_last,
    an_old_reader_has_lost_its_lock_to_a_new_group,
    a_reader_comes_back_after_its_group_was_deleted,
    a_writer_of_2_x_takes_a_group_that_has_ended,
    a_writer_of_2_x_is_refused_by_readers,
    sets_with_one_group_are_extended_at_once,
    heartbeats_of_many_readers_run_in_groups,
    many_join_in_a_round_trip,
    many_who_ask_at_once_are_refused_by_one_writer,
    a_join_that_nobody_waits_for_leaves_no_group,
    a_guard_keeps_the_group,
    a_guard_of_a_reader_without_a_group_is_refused,
    an_id_that_is_not_marked_is_refused,
    readers_are_found_by_their_index,
    without_the_index_readers_are_found_all_the_same,
];

const TTL_MS: i64 = 30_000;

async fn join(backend: &dyn Backend, name: &str, ttl: Ttl) -> Grant {
    let mut request = AcquireRequest::of([shared(name)], ttl).unwrap();
    backend.prepare(&mut request);
    match backend.acquire(&request).await.unwrap() {
        AcquireOutcome::Acquired(grants) => grants[0].clone(),
        outcome => panic!("{outcome:?}"),
    }
}

/// Whether a writer is refused by readers; `None` if it gets the lock, which it gives back.
async fn refused(backend: &dyn Backend, name: &str) -> Option<bool> {
    match try_take(backend, [plain(name)]).await.unwrap() {
        AcquireOutcome::Locked { is_shared, .. } => Some(is_shared),
        AcquireOutcome::Acquired(grants) => {
            release(backend, ids(&grants)).await;
            None
        }
        AcquireOutcome::Done(_) => panic!("done"),
    }
}

async fn leave(backend: &dyn Backend, grant: &Grant) -> ReleaseOutcome {
    backend.release(&grant.lock_id).await.unwrap()
}

async fn holds(backend: &dyn Backend, grant: &Grant) {
    let extended = backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
}

async fn has_lost(backend: &dyn Backend, grant: &Grant) {
    let extended = backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    assert!(matches!(extended, ExtendOutcome::Absent { .. }));
}

/// The rows of a key and its readers: lock id, key of the user, fence, end.
async fn rows(client: &Client, tables: &Tables, name: &str) -> Vec<(String, String, String, i64)> {
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
async fn end_of(client: &Client, tables: &Tables, name: &str) -> Option<i64> {
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
    // A shorter time raises nothing.
    backend
        .extend(&readers[2].lock_id, ttl(1_000))
        .await
        .unwrap();
    assert_eq!(end().await, Some(expires_at_ms));
    leave(&backend, &readers[2]).await;
    assert_eq!(end().await, None);
}

async fn of_two_last_leavers_one_frees_the_key() {
    let (one, tables) = backend(server().unix()).await;
    let other = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    let client = server().client().await;
    for _ in 0..50 {
        let readers = [
            join(&one, "k", Ttl::DEFAULT).await,
            join(&other, "k", Ttl::DEFAULT).await,
        ];
        let left = tokio::join!(leave(&one, &readers[0]), leave(&other, &readers[1]));
        assert_eq!(left, (ReleaseOutcome::Released, ReleaseOutcome::Released));
        assert!(rows(&client, &tables, "k").await.is_empty());
    }
}

/// Keeps the row of a key locked, so that whoever changes its group waits with the snapshot that it has.
async fn stopped(client: &Client, tables: &Tables, name: &str) {
    let sql = format!(
        "BEGIN; SELECT FROM {} WHERE key = '{name}' FOR UPDATE",
        tables.locks()
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn who_joins_while_the_last_one_leaves_is_protected() {
    let (_, tables) = backend(server().unix()).await;
    let (client, watcher) = (server().client().await, server().client().await);
    let [leaver, joiner] = ["leaver in join", "joiner in join"].map(|name| {
        let backend = PostgresBackend::new(named(name, server().unix()), options(&tables));
        Arc::new(backend.unwrap())
    });
    // Whoever comes first to the row of the group.
    for leaves_first in [true, false] {
        let last = join(&*leaver, "k", Ttl::DEFAULT).await;
        stopped(&client, &tables, "k").await;
        let leaving = || {
            let (leaver, last) = (Arc::clone(&leaver), last.clone());
            tokio::spawn(async move { leave(&*leaver, &last).await })
        };
        let joining = || {
            let joiner = Arc::clone(&joiner);
            tokio::spawn(async move { join(&*joiner, "k", Ttl::DEFAULT).await })
        };
        let (left, joined) = if leaves_first {
            let left = leaving();
            until_waiting(&watcher, "leaver in join", 1).await;
            let joined = joining();
            until_waiting(&watcher, "joiner in join", 1).await;
            (left, joined)
        } else {
            let joined = joining();
            until_waiting(&watcher, "joiner in join", 1).await;
            let left = leaving();
            until_waiting(&watcher, "leaver in join", 1).await;
            (left, joined)
        };
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(left.await.unwrap(), ReleaseOutcome::Released);
        let joined = joined.await.unwrap();
        assert_eq!(refused(&*leaver, "k").await, Some(true));
        holds(&*joiner, &joined).await;
        leave(&*joiner, &joined).await;
        assert!(rows(&watcher, &tables, "k").await.is_empty());
    }
}

async fn who_extends_while_another_leaves_is_protected() {
    let (_, tables) = backend(server().unix()).await;
    let (client, watcher) = (server().client().await, server().client().await);
    let [leaver, stays] = ["leaver in extend", "stays in extend"].map(|name| {
        let backend = PostgresBackend::new(named(name, server().unix()), options(&tables));
        Arc::new(backend.unwrap())
    });
    let last = join(&*leaver, "k", ttl(60_000)).await;
    let short = join(&*stays, "k", ttl(10_000)).await;
    stopped(&client, &tables, "k").await;
    let extending = {
        let (stays, id) = (Arc::clone(&stays), short.lock_id.clone());
        tokio::spawn(async move { stays.extend(&id, ttl(50_000)).await.unwrap() })
    };
    until_waiting(&watcher, "stays in extend", 1).await;
    // Its snapshot shows the other as it was before.
    let leaving = tokio::spawn(async move { leave(&*leaver, &last).await });
    until_waiting(&watcher, "leaver in extend", 1).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(leaving.await.unwrap(), ReleaseOutcome::Released);
    let ExtendOutcome::Extended { expires_at_ms } = extending.await.unwrap() else {
        panic!("absent");
    };
    let end = end_of(&watcher, &tables, "k").await.unwrap();
    assert!(end >= expires_at_ms, "{end} {expires_at_ms}");
}

async fn many_readers_come_and_go_at_once() {
    let (_, tables) = backend(server().unix()).await;
    let mut reading = JoinSet::new();
    for _ in 0..4 {
        let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
        let backend = Arc::new(backend);
        for _ in 0..10 {
            let backend = Arc::clone(&backend);
            reading.spawn(async move {
                for _ in 0..3 {
                    let reader = join(&*backend, "k", Ttl::DEFAULT).await;
                    holds(&*backend, &reader).await;
                    assert_eq!(leave(&*backend, &reader).await, ReleaseOutcome::Released);
                }
            });
        }
    }
    reading.join_all().await;
    let client = server().client().await;
    assert!(rows(&client, &tables, "k").await.is_empty());
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

async fn heartbeats_of_many_readers_run_in_groups() {
    let (_, tables) = backend(server().unix()).await;
    let config = syncguard::postgres::PostgresConfig {
        pool_size: 2,
        ..server().unix()
    };
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    let readers = join_all((0..60).map(|_| join(&backend, "k", ttl(10_000)))).await;
    let alone =
        join_all((0..20).map(|number| take(&backend, [plain(&format!("w{number}"))]))).await;
    let beats = readers.iter().chain(alone.iter().flatten()).map(|grant| {
        let extension = Extension {
            is_heartbeat: true,
            ..Extension::new([grant.lock_id.clone()].into(), ttl(60_000))
        };
        backend.ask(Operation::Extend(extension))
    });
    let mut last = 0;
    for answer in join_all(beats).await {
        let ExtendOutcome::Extended { expires_at_ms } = answer.unwrap() else {
            panic!("absent");
        };
        last = last.max(expires_at_ms);
    }
    let client = server().client().await;
    let end = end_of(&client, &tables, "k").await.unwrap();
    assert!(readers.iter().all(|reader| end > reader.expires_at_ms) && end <= last);
    let left = join_all(readers.iter().map(|reader| leave(&backend, reader))).await;
    assert!(left.iter().all(|it| *it == ReleaseOutcome::Released));
    assert!(rows(&client, &tables, "k").await.is_empty());
}

/// The answers to so many joins at once, each with its owner.
async fn join_at_once(backend: &Arc<PostgresBackend>, name: &str) -> Vec<AcquireOutcome> {
    let answers = at_once((0..COUNT).map(|number| {
        let mut request = AcquireRequest::of([shared(name)], ttl(60_000)).unwrap();
        // As many processes have few owners, and one process has one.
        request.labels.owner = (number > 0).then(|| Owner::new("a,b c").unwrap());
        backend.prepare(&mut request);
        let backend = Arc::clone(backend);
        async move { backend.acquire(&request).await.unwrap() }
    }));
    answers.await
}

async fn many_join_in_a_round_trip() {
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = proxy.config(server().tcp());
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let client = server().client().await;
    for _ in 0..2 {
        proxy.take();
        let answers = join_at_once(&ours, "k").await;
        let flights = proxy.take();
        assert!(flights.requests <= COUNT / 2, "{flights:?}");
        let mut readers = Vec::new();
        for answer in answers {
            let AcquireOutcome::Acquired(grants) = answer else {
                panic!("{answer:?}");
            };
            readers.extend(grants);
        }
        let end = end_of(&client, &tables, "k").await.unwrap();
        let mut owners = 0;
        for reader in &readers {
            assert_eq!(reader.fence, readers[0].fence);
            assert!(reader.expires_at_ms <= end);
            let lookup = Lookup::LockId(reader.lock_id.clone());
            let record = ours.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.expires_at_ms, reader.expires_at_ms);
            owners += usize::from(record.labels.owner == Some(Owner::new("a,b c").unwrap()));
        }
        assert_eq!(owners, COUNT - 1);
        let left = join_all(readers.iter().map(|reader| leave(&*ours, reader))).await;
        assert!(left.iter().all(|it| *it == ReleaseOutcome::Released));
        assert!(rows(&client, &tables, "k").await.is_empty());
    }
}

async fn many_who_ask_at_once_are_refused_by_one_writer() {
    let (ours, tables) = scarce("refused readers", 2).await;
    let writer = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    let held = acquire(&writer, "k").await;
    for answer in join_at_once(&ours, "k").await {
        assert!(matches!(
            answer,
            AcquireOutcome::Locked {
                claim: 0,
                free_in: Some(_),
                is_shared: false,
                ..
            }
        ));
    }
    writer.release(&held.lock_id).await.unwrap();
    assert!(
        join_at_once(&ours, "k")
            .await
            .iter()
            .all(|it| !it.is_locked())
    );
}

async fn a_join_that_nobody_waits_for_leaves_no_group() {
    let (ours, tables) = scarce("left readers", 1).await;
    count(&tables, "k").await;
    let (first, last) = (server().client().await, server().client().await);
    let advisory = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('left readers'))";
    first.batch_execute(advisory).await.unwrap();
    let counter = format!(
        "BEGIN; SELECT FROM {} WHERE fence_key = 'fence:k' FOR UPDATE",
        tables.fences()
    );
    last.batch_execute(&counter).await.unwrap();
    let watcher = server().client().await;
    let join = |name: &'static str| {
        let ours = Arc::clone(&ours);
        async move { join(&*ours, name, Ttl::DEFAULT).await }
    };
    // The only connection is busy with one that must wait. The others are a group, which begins when that is done.
    let alone = tokio::spawn(join("left readers"));
    until_waiting(&watcher, "left readers", 1).await;
    let mut group: Vec<_> = (0..COUNT).map(|_| Box::pin(join("k"))).collect();
    for member in &mut group {
        let joined = poll_fn(|context| Poll::Ready(member.as_mut().poll(context).is_pending()));
        assert!(joined.await);
    }
    first.batch_execute("COMMIT").await.unwrap();
    alone.await.unwrap();
    until_waiting(&watcher, "left readers", 1).await;
    drop(group);
    last.batch_execute("COMMIT").await.unwrap();
    let counted = format!(
        "SELECT fence > {AHEAD} FROM {} WHERE fence_key = 'fence:k'",
        tables.fences()
    );
    eventually("all have joined, and left again", async || {
        let (_, busy) = sessions(&watcher, "left readers").await;
        let row = watcher.query_one(&counted, &[]).await.unwrap();
        row.get::<_, bool>(0) && rows(&watcher, &tables, "k").await.is_empty() && busy == 0
    })
    .await;
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
