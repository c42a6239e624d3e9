//! Operations that share a statement while connections are in short supply: each hears its own.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions, Tables};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, Grant, Key, LockId, Lookup,
    Owner, ReleaseOutcome,
};
use tokio::task::JoinSet;

use crate::claims::rows;
use crate::flights::Proxy;
use crate::stage::{
    QUIET, backend, count, is_behind, options, own_tables, server, sessions, signal, until_waiting,
};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, acquire, eventually, key, ttl};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    many_share_a_round_trip,
    a_key_that_many_want_has_one_holder,
    each_release_hears_its_own,
    who_must_wait_for_another_writer_delays_nobody,
    a_release_that_must_wait_delays_nobody,
    an_expired_lock_is_taken_over,
    what_is_wrong_with_one_is_no_matter_of_the_others,
    acquisitions_that_nobody_waits_for_leave_no_lock,
    a_connection_that_ends_is_heard_by_all,
    a_group_that_hangs_does_not_hold_up_the_next,
    a_group_waits_for_the_disk_as_one_does_alone,
];

pub(crate) const COUNT: usize = 40;

/// A backend with few connections, whose sessions are called `name`.
pub(crate) async fn scarce(name: &str, pool_size: usize) -> (Arc<PostgresBackend>, Tables) {
    let (backend, tables) = backend(PostgresConfig {
        application_name: Some(name.to_owned()),
        pool_size,
        // Nobody is to be helped out of a wait.
        parameters: vec![("statement_timeout".to_owned(), "0".to_owned())],
        ..server().unix()
    })
    .await;
    (Arc::new(backend), tables)
}

/// Keys of one test alone: advisory locks are the whole database's.
pub(crate) fn names(test: &str) -> Vec<Key> {
    // What must arrive as it was sent, among them.
    let odd = [
        "a,b",
        "a b",
        "\"]},{",
        "\\",
        "$1",
        "'; --",
        "\u{1}\n",
        "é\u{1F512}",
    ];
    let plain = (odd.len()..COUNT).map(|number| format!("{test}{number}"));
    let all = odd
        .into_iter()
        .map(|odd| format!("{test}{odd}"))
        .chain(plain);
    all.map(|name| key(&name)).collect()
}

/// The answers to all, asked for at once, in their order.
pub(crate) async fn at_once<T: Send + 'static>(
    all: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let all: Vec<_> = all.map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for answer in all {
        answers.push(answer.await.unwrap());
    }
    answers
}

async fn ask(backend: Arc<PostgresBackend>, key: Key) -> Result<AcquireOutcome, Error> {
    let mut request = AcquireRequest::new(key.clone(), ttl(60_000)).unwrap();
    request.labels.owner = label_of(&key);
    backend.acquire(&request).await
}

/// Some have none. Those of others must arrive as they were sent.
fn label_of(key: &Key) -> Option<Owner> {
    let label = key.as_str();
    (!label.len().is_multiple_of(4)).then(|| Owner::new(label).unwrap())
}

/// The answers to one acquisition of each key.
pub(crate) async fn acquire_all(
    backend: &Arc<PostgresBackend>,
    keys: &[Key],
) -> Vec<Result<AcquireOutcome, Error>> {
    at_once(keys.iter().map(|key| ask(Arc::clone(backend), key.clone()))).await
}

/// The answers to one release of each lock.
async fn release_all(
    backend: &Arc<PostgresBackend>,
    lock_ids: &[LockId],
) -> Vec<Result<ReleaseOutcome, Error>> {
    at_once(lock_ids.iter().map(|lock_id| {
        let (backend, lock_id) = (Arc::clone(backend), lock_id.clone());
        async move { backend.release(&lock_id).await }
    }))
    .await
}

pub(crate) fn granted(answers: Vec<Result<AcquireOutcome, Error>>) -> Vec<Grant> {
    let grants = answers.into_iter().map(|answer| match answer.unwrap() {
        AcquireOutcome::Acquired(mut grants) => grants.remove(0),
        _ => panic!("locked"),
    });
    grants.collect()
}

pub(crate) fn ids(grants: &[Grant]) -> Vec<LockId> {
    grants.iter().map(|grant| grant.lock_id.clone()).collect()
}

async fn many_share_a_round_trip() {
    let (beside, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    for prepare in [true, false] {
        let config = PostgresConfig {
            prepare,
            ..proxy.config(server().tcp())
        };
        let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
        let keys = names("shared");
        if prepare {
            for key in &keys {
                count(&tables, key.as_str()).await;
            }
        }
        // The first prepares.
        for fence in 1..=3 {
            proxy.take();
            let fence = AHEAD + if prepare { fence } else { fence + 3 };
            let grants = granted(acquire_all(&ours, &keys).await);
            let flights = proxy.take();
            assert!(flights.requests <= COUNT / 4, "{flights:?}");
            for (key, grant) in keys.iter().zip(&grants) {
                assert_eq!(grant.fence.get(), fence);
                let lookup = Lookup::Key(key.clone());
                let record = beside.lookup(&lookup).await.unwrap().unwrap();
                assert_eq!(record.lock_id, grant.lock_id);
                assert_eq!(record.fence, grant.fence);
                assert_eq!(record.expires_at_ms, grant.expires_at_ms);
                assert_eq!(record.labels.owner, label_of(key));
                assert_eq!(record.expires_at_ms - record.acquired_at_ms, 60_000);
            }
            proxy.take();
            for outcome in release_all(&ours, &ids(&grants)).await {
                assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
            }
            let flights = proxy.take();
            assert!(flights.requests <= COUNT / 4, "{flights:?}");
            assert_eq!(rows(&tables, Tables::locks).await, 0);
        }
        ours.close().await;
    }
}

async fn a_key_that_many_want_has_one_holder() {
    let (ours, tables) = scarce("wanted", 2).await;
    for name in ["a", "b", "c"] {
        count(&tables, name).await;
    }
    let keys: Vec<_> = (0..60)
        .map(|number| key(["a", "b", "c"][number % 3]))
        .collect();
    for fence in 1..=5 {
        let answers = acquire_all(&ours, &keys).await;
        let mut grants = Vec::new();
        for answer in answers {
            if let AcquireOutcome::Acquired(mut granted) = answer.unwrap() {
                grants.push(granted.remove(0));
            }
        }
        assert_eq!(grants.len(), 3);
        for grant in &grants {
            assert_eq!(grant.fence.get(), AHEAD + fence);
        }
        for answer in acquire_all(&ours, &keys).await {
            assert!(answer.unwrap().is_locked());
        }
        release_all(&ours, &ids(&grants)).await;
    }
}

async fn each_release_hears_its_own() {
    let (ours, tables) = scarce("released", 2).await;
    let mut grants = granted(acquire_all(&ours, &names("released")).await);
    let (expired, live) = grants.split_at_mut(10);
    let client = server().client().await;
    for grant in &*expired {
        let sql = format!(
            "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
            tables.locks()
        );
        client
            .execute(&sql, &[&grant.lock_id.as_str()])
            .await
            .unwrap();
    }
    let nobodys = LockId::generate().unwrap();
    // Each live lock is released twice, and one that nobody has, too.
    let mut lock_ids = ids(expired);
    lock_ids.extend(ids(live));
    lock_ids.extend(ids(live));
    lock_ids.push(nobodys);
    let mut heard: HashMap<_, Vec<_>> = HashMap::new();
    for (lock_id, outcome) in lock_ids.iter().zip(release_all(&ours, &lock_ids).await) {
        heard
            .entry(lock_id.as_str())
            .or_default()
            .push(outcome.unwrap());
    }
    let (expiry, nothing) = (
        ReleaseOutcome::Absent(Absence::Expired),
        ReleaseOutcome::Absent(Absence::NotFound),
    );
    for grant in &*expired {
        assert_eq!(heard[grant.lock_id.as_str()], [expiry]);
    }
    for grant in &*live {
        let twice = &heard[grant.lock_id.as_str()];
        assert!(twice.contains(&ReleaseOutcome::Released) && twice.contains(&nothing));
    }
    assert_eq!(heard[lock_ids[lock_ids.len() - 1].as_str()], [nothing]);
    assert_eq!(rows(&tables, Tables::locks).await, 0);
}

/// Runs `all` while a transaction of another session is open; all but one must come to their end.
pub(crate) async fn all_but_one<T: Send + 'static>(
    name: &str,
    transaction: &str,
    all: Vec<impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let other = server().client().await;
    other.batch_execute(transaction).await.unwrap();
    let mut tasks: JoinSet<T> = all.into_iter().collect();
    let mut ended = Vec::new();
    while tasks.len() > 1 {
        let next = tokio::time::timeout(Duration::from_secs(20), tasks.join_next()).await;
        ended.push(next.expect("somebody is delayed").unwrap().unwrap());
    }
    until_waiting(&server().client().await, name, 1).await;
    other.batch_execute("COMMIT").await.unwrap();
    ended.push(tasks.join_next().await.unwrap().unwrap());
    ended
}

async fn who_must_wait_for_another_writer_delays_nobody() {
    let (ours, tables) = scarce("delayed", 2).await;
    let all = names("delayed")
        .into_iter()
        .map(|key| ask(Arc::clone(&ours), key));
    let open = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('delayed20'))";
    let outcomes = all_but_one("delayed", open, all.collect()).await;
    for outcome in outcomes {
        assert!(matches!(outcome.unwrap(), AcquireOutcome::Acquired(_)));
    }
    assert_eq!(
        rows(&tables, Tables::locks).await,
        i64::try_from(COUNT).unwrap()
    );
}

async fn a_release_that_must_wait_delays_nobody() {
    let (ours, tables) = scarce("stalled", 2).await;
    let grants = granted(acquire_all(&ours, &names("stalled")).await);
    let open = format!(
        "BEGIN; SELECT FROM {} WHERE key = 'stalled20' FOR UPDATE",
        tables.locks()
    );
    let all = grants.into_iter().map(|grant| {
        let ours = Arc::clone(&ours);
        async move { ours.release(&grant.lock_id).await.unwrap() }
    });
    for outcome in all_but_one("stalled", &open, all.collect()).await {
        assert_eq!(outcome, ReleaseOutcome::Released);
    }
    assert_eq!(rows(&tables, Tables::locks).await, 0);
}

async fn an_expired_lock_is_taken_over() {
    let (ours, tables) = scarce("expired", 2).await;
    let before = granted(acquire_all(&ours, &names("expired")).await);
    let client = server().client().await;
    let sql = format!("UPDATE {} SET expires_at_ms = 1", tables.locks());
    client.batch_execute(&sql).await.unwrap();
    let after = granted(acquire_all(&ours, &names("expired")).await);
    for (earlier, later) in before.iter().zip(&after) {
        assert!(later.fence > earlier.fence);
    }
    assert_eq!(
        rows(&tables, Tables::locks).await,
        i64::try_from(COUNT).unwrap()
    );
}

async fn what_is_wrong_with_one_is_no_matter_of_the_others() {
    let (ours, tables) = scarce("wrong", 2).await;
    let client = server().client().await;
    let sql = format!(
        "INSERT INTO {0} VALUES ('fence:wrong10', 900000000000000, 'wrong10'); \
         ALTER TABLE {1} ADD CHECK (key <> 'wrong11')",
        tables.fences(),
        tables.locks(),
    );
    client.batch_execute(&sql).await.unwrap();
    let keys = names("wrong");
    for (key, answer) in keys.iter().zip(acquire_all(&ours, &keys).await) {
        match (key.as_str(), answer) {
            ("wrong10", Err(error)) => assert_eq!(error.kind(), ErrorKind::Internal),
            ("wrong11", Err(error)) => assert_eq!(error.kind(), ErrorKind::InvalidArgument),
            ("wrong10" | "wrong11", answer) => panic!("{answer:?}"),
            (_, answer) => assert!(matches!(answer.unwrap(), AcquireOutcome::Acquired(_))),
        }
    }
}

type Acquiring = Pin<Box<dyn Future<Output = Result<AcquireOutcome, Error>> + Send>>;

/// A group whose statement is under way and cannot go on until the session that comes with it commits.
async fn begun(
    name: &str,
) -> (
    Arc<PostgresBackend>,
    Tables,
    tokio_postgres::Client,
    Vec<Acquiring>,
) {
    let (ours, tables) = scarce(name, 1).await;
    let mut keys = names(name);
    for key in &keys {
        count(&tables, key.as_str()).await;
    }
    let before = granted(acquire_all(&ours, &keys).await);
    for outcome in release_all(&ours, &ids(&before)).await {
        assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    }
    let (first, last) = (server().client().await, server().client().await);
    let advisory = format!("BEGIN; SELECT pg_advisory_xact_lock(hashtext('{name}39'))");
    first.batch_execute(&advisory).await.unwrap();
    let counter = format!(
        "BEGIN; SELECT FROM {} WHERE fence_key = 'fence:{name}38' FOR UPDATE",
        tables.fences()
    );
    last.batch_execute(&counter).await.unwrap();
    // The only connection is busy with one that must wait.
    let waiting = {
        let (ours, key) = (Arc::clone(&ours), keys.pop().unwrap());
        tokio::spawn(async move { acquire(&*ours, key.as_str()).await })
    };
    let watcher = server().client().await;
    until_waiting(&watcher, name, 1).await;
    keys.drain(..keys.len() - MEMBERS);
    let mut members: Vec<Acquiring> = Vec::new();
    for key in keys {
        let mut member: Acquiring = Box::pin(ask(Arc::clone(&ours), key));
        let joined = poll_fn(|context| Poll::Ready(member.as_mut().poll(context).is_pending()));
        assert!(joined.await);
        members.push(member);
    }
    first.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap();
    until_waiting(&watcher, name, 1).await;
    (ours, tables, last, members)
}

const MEMBERS: usize = 30;

async fn acquisitions_that_nobody_waits_for_leave_no_lock() {
    let (_ours, tables, last, members) = begun("left").await;
    drop(members);
    last.batch_execute("COMMIT").await.unwrap();
    let client = server().client().await;
    let counted = format!(
        "SELECT count(*) FROM {} WHERE fence = {}",
        tables.fences(),
        AHEAD + 2
    );
    eventually("all were granted, and are free again", async || {
        let count: i64 = client.query_one(&counted, &[]).await.unwrap().get(0);
        let (_, busy) = sessions(&client, "left").await;
        usize::try_from(count) == Ok(MEMBERS + 1)
            && rows(&tables, Tables::locks).await == 1
            && busy == 0
    })
    .await;
}

async fn a_connection_that_ends_is_heard_by_all() {
    let (_ours, tables, last, members) = begun("ended").await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    let client = server().client().await;
    client.execute(end, &[&"ended"]).await.unwrap();
    for member in members {
        let error = member.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        assert!(error.is_outcome_unknown());
    }
    last.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&tables, Tables::locks).await, 1);
}

/// A server process that stands still keeps its own group, until their time is up.
async fn a_group_that_hangs_does_not_hold_up_the_next() {
    let (ours, _) = scarce("still", 3).await;
    let client = server().client().await;
    granted(acquire_all(&ours, &names("still")).await);
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'still' LIMIT 1";
    let pid: i32 = client.query_one(sql, &[]).await.unwrap().get(0);
    signal(pid, "-STOP");
    let mut tasks: JoinSet<()> = JoinSet::new();
    for number in 0..200 {
        let ours = Arc::clone(&ours);
        tasks.spawn(async move {
            acquire(&*ours, &format!("more {number}")).await;
        });
    }
    while tasks.len() > 100 {
        let next = tokio::time::timeout(Duration::from_secs(20), tasks.join_next()).await;
        next.expect("all wait for one").unwrap().unwrap();
    }
    signal(pid, "-CONT");
    tasks.join_all().await;
}

/// With one connection, what commits last is a group.
async fn a_group_waits_for_the_disk_as_one_does_alone() {
    let own = PostgresServer::start_with(&QUIET);
    let client = own.client().await;
    for durable_releases in [false, true] {
        let tables = own_tables();
        let config = PostgresConfig {
            parameters: vec![("synchronous_commit".to_owned(), "off".to_owned())],
            pool_size: 1,
            ..own.unix()
        };
        let options = PostgresOptions {
            durable_releases,
            ..options(&tables)
        };
        let ours = Arc::new(PostgresBackend::new(config, options).unwrap());
        ours.setup_schema().await.unwrap();
        let grants = granted(acquire_all(&ours, &names("disk")).await);
        assert!(!is_behind(&client).await, "acquisitions did not wait");
        release_all(&ours, &ids(&grants)).await;
        assert_eq!(is_behind(&client).await, !durable_releases);
    }
}
