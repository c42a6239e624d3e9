//! Readers of one key who come, go on and leave at the same time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::join_all;
use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ExtendOutcome, Extension, Grant, Lookup, Operation,
    Owner, ReleaseOutcome, Ttl,
};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::flights::Proxy;
use crate::groups::{at_once, scarce};
use crate::scene::named;
use crate::shared::{end_of, rows};
use crate::stage::{backend, count, options, server, sessions, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{plain, shared, take};
use crate::support::locks::{AHEAD, acquire, eventually, ttl};
use crate::support::readers::{holds, join, leave, refused};
use crate::support::suite::tests;

tests![
    of_two_last_leavers_one_frees_the_key,
    who_joins_while_the_last_one_leaves_is_protected,
    who_extends_while_another_leaves_is_protected,
    many_readers_come_and_go_at_once,
    heartbeats_of_many_readers_run_in_groups,
    heartbeats_for_which_their_key_has_no_connection_run_in_groups,
    many_join_in_a_round_trip,
    those_for_whom_their_key_has_no_connection_join_together,
    what_many_leave_at_once_is_tidied_once,
    many_who_ask_at_once_are_refused_by_one_writer,
    a_join_that_nobody_waits_for_leaves_no_group,
];

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

/// What a heartbeat sends for one lock.
fn heartbeat(lock: &Grant) -> Extension {
    Extension {
        is_heartbeat: true,
        ..Extension::new([lock.lock_id.clone()].into(), ttl(60_000))
    }
}

async fn heartbeats_of_many_readers_run_in_groups() {
    let (_, tables) = backend(server().unix()).await;
    let config = PostgresConfig {
        pool_size: 2,
        ..server().unix()
    };
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    let readers = join_all((0..60).map(|_| join(&backend, "k", ttl(10_000)))).await;
    let alone =
        join_all((0..20).map(|number| take(&backend, [plain(&format!("w{number}"))]))).await;
    let beats = readers
        .iter()
        .chain(alone.iter().flatten())
        .map(|grant| backend.ask(Operation::Extend(heartbeat(grant))));
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

/// They wait for what they share, as many as may, and the others wait with them and not for a connection.
async fn heartbeats_for_which_their_key_has_no_connection_run_in_groups() {
    let name = "a crowd of heartbeats";
    let (ours, tables) = scarce(name, 10).await;
    let readers = join_all((0..COUNT).map(|_| join(&*ours, "k", ttl(20_000)))).await;
    let (client, watcher) = (server().client().await, server().client().await);
    stopped(&client, &tables, "k").await;
    let beat = |reader: &Grant| {
        let (ours, extension) = (Arc::clone(&ours), heartbeat(reader));
        async move { ours.ask(Operation::Extend(extension)).await.unwrap() }
    };
    let (first, others) = readers.split_at(2);
    let alone: Vec<_> = first.iter().map(|one| tokio::spawn(beat(one))).collect();
    until_waiting(&watcher, name, 2).await;
    let others = waiting(others.iter().map(beat)).await;
    // Whoever else extends a lock has a connection.
    let other = acquire(&*ours, "another").await;
    let own = Extension::new([other.lock_id].into(), ttl(60_000));
    ours.ask::<ExtendOutcome>(Operation::Extend(own))
        .await
        .unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let mut outcomes = join_all(others).await;
    for outcome in join_all(alone).await {
        outcomes.push(outcome.unwrap());
    }
    let is_extended = |it: &ExtendOutcome| matches!(it, ExtendOutcome::Extended { .. });
    assert!(outcomes.iter().all(is_extended));
    // Two alone, then a full group and the rest.
    assert_eq!(written(&client, &tables).await, (COUNT as i64, 4));
}

/// How many readers of the key there are, and how many transactions have written what is stored of them.
async fn written(client: &Client, tables: &Tables) -> (i64, i64) {
    let sql = format!(
        "SELECT count(*), count(DISTINCT xmin::text) FROM {} WHERE key LIKE 'k\u{37e}%'",
        tables.locks()
    );
    let row = client.query_one(&sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

const OWNER: &str = "a,b c";

/// More than there are in a group.
const COUNT: usize = 140;

/// One who asks to join, with an owner.
async fn ask(backend: Arc<PostgresBackend>) -> AcquireOutcome {
    let mut request = AcquireRequest::of([shared("k")], ttl(60_000)).unwrap();
    request.labels.owner = Some(Owner::new(OWNER).unwrap());
    backend.prepare(&mut request);
    backend.acquire(&request).await.unwrap()
}

/// The answers to so many who ask at once.
async fn ask_at_once(backend: &Arc<PostgresBackend>) -> Vec<AcquireOutcome> {
    at_once((0..COUNT).map(|_| ask(Arc::clone(backend)))).await
}

/// Those who ask while the only connection is busy.
async fn waiting<F: Future>(all: impl Iterator<Item = F>) -> Vec<Pin<Box<F>>> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    for one in &mut all {
        let waits = poll_fn(|context| Poll::Ready(one.as_mut().poll(context).is_pending()));
        assert!(waits.await);
    }
    all
}

async fn many_join_in_a_round_trip() {
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = PostgresConfig {
        pool_size: 1,
        ..named("joining readers", proxy.config(server().tcp()))
    };
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let (client, watcher) = (server().client().await, server().client().await);
    // The first one prepares.
    let mut answers = vec![ask(Arc::clone(&ours)).await];
    stopped(&client, &tables, "k").await;
    proxy.take();
    let alone = tokio::spawn(ask(Arc::clone(&ours)));
    until_waiting(&watcher, "joining readers", 1).await;
    let others = waiting((0..COUNT).map(|_| ask(Arc::clone(&ours)))).await;
    client.batch_execute("COMMIT").await.unwrap();
    answers.push(alone.await.unwrap());
    answers.extend(join_all(others).await);
    // One alone, then a full group and the rest.
    let flights = proxy.take();
    assert_eq!(flights.requests, 3, "{flights:?}");
    let mut readers = Vec::new();
    for answer in answers {
        let AcquireOutcome::Acquired(grants) = answer else {
            panic!("{answer:?}");
        };
        readers.extend(grants);
    }
    assert_eq!(readers.len(), COUNT + 2);
    let end = end_of(&client, &tables, "k").await.unwrap();
    for reader in &readers {
        assert_eq!(reader.fence, readers[0].fence);
        assert!(reader.expires_at_ms <= end);
        let lookup = Lookup::LockId(reader.lock_id.clone());
        let record = ours.lookup(&lookup).await.unwrap().unwrap();
        assert_eq!(record.expires_at_ms, reader.expires_at_ms);
        assert_eq!(record.labels.owner, Some(Owner::new(OWNER).unwrap()));
    }
    let left = join_all(readers.iter().map(|reader| leave(&*ours, reader))).await;
    assert!(left.iter().all(|it| *it == ReleaseOutcome::Released));
    assert!(rows(&client, &tables, "k").await.is_empty());
}

/// The pool is larger here: the key may not use all of it, and the rest is free.
async fn those_for_whom_their_key_has_no_connection_join_together() {
    let (ours, tables) = scarce("a crowd of readers", 10).await;
    let (client, watcher) = (server().client().await, server().client().await);
    let first = ask(Arc::clone(&ours)).await;
    stopped(&client, &tables, "k").await;
    let alone: Vec<_> = (0..5)
        .map(|_| tokio::spawn(ask(Arc::clone(&ours))))
        .collect();
    until_waiting(&watcher, "a crowd of readers", 5).await;
    let others = waiting((0..COUNT).map(|_| ask(Arc::clone(&ours)))).await;
    // They leave the rest of the pool to other keys.
    acquire(&*ours, "another").await;
    client.batch_execute("COMMIT").await.unwrap();
    let mut answers = vec![first];
    for answer in join_all(alone).await {
        answers.push(answer.unwrap());
    }
    answers.extend(join_all(others).await);
    assert!(answers.iter().all(|it| !it.is_locked()));
    // Six alone, then a full group and the rest.
    assert_eq!(written(&client, &tables).await, (6 + COUNT as i64, 8));
}

async fn what_many_leave_at_once_is_tidied_once() {
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = PostgresConfig {
        pool_size: 1,
        ..proxy.config(server().tcp())
    };
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let readers = join_all((0..COUNT).map(|_| join(&*ours, "k", ttl(60_000)))).await;
    proxy.take();
    let left = join_all(readers.iter().map(|reader| leave(&*ours, reader))).await;
    assert!(left.iter().all(|it| *it == ReleaseOutcome::Released));
    let flights = proxy.take();
    // Each leaves alone.
    assert!(flights.requests < COUNT + 10, "{flights:?}");
    let client = server().client().await;
    assert!(rows(&client, &tables, "k").await.is_empty());
}

async fn many_who_ask_at_once_are_refused_by_one_writer() {
    let (ours, tables) = scarce("refused readers", 2).await;
    let writer = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    let held = acquire(&writer, "k").await;
    for answer in ask_at_once(&ours).await {
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
    assert!(ask_at_once(&ours).await.iter().all(|it| !it.is_locked()));
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
    let group = waiting((0..COUNT).map(|_| join("k"))).await;
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
