//! Whoever waits for a lock hears at once when it is freed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use syncguard::postgres::operations::Release;
use syncguard::postgres::{
    Failure, Param, Plan, PostgresBackend, PostgresConfig, PostgresOptions, Row, Transport,
};
use syncguard::{AcquireOutcome, lock};
use tokio_postgres::types::{ToSql, Type};

use crate::scene::Scene;
use crate::stage::{options, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, request, ttl};
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;
use crate::support::waiters::{patient, soon};

tests![
    every_way_of_freeing_a_lock_is_told,
    releases_in_a_group_are_told,
    a_release_through_a_client_is_told,
    a_release_through_a_pooler_is_told,
    a_waiter_has_the_lock_as_soon_as_it_is_free,
    a_release_that_is_about_to_commit_is_not_missed,
    no_release_of_many_is_missed,
    a_release_that_nobody_waits_for_sends_nothing,
    a_lock_that_nobody_releases_is_taken_when_it_ends,
    who_finds_a_lock_held_learns_when_it_ends,
];

async fn every_way_of_freeing_a_lock_is_told() {
    let t = Scene::new("every way").await;
    let watch = t.watch("k").await;

    let grant = t.acquire("k").await;
    t.holder.release(&grant.lock_id).await.unwrap();
    soon(watch.freed()).await;

    t.acquire("k").await;
    assert!(t.holder.force_release(&t.key("k")).await.unwrap());
    soon(watch.freed()).await;

    let guard = lock(&t.holder, &t.key("k"), &patient()).await.unwrap();
    drop(guard);
    soon(watch.freed()).await;

    t.acquire("k").await;
    let expire = format!("UPDATE {} SET expires_at_ms = 1", t.tables.locks());
    t.client.batch_execute(&expire).await.unwrap();
    let cleaning = PostgresOptions {
        cleanup_in_is_locked: true,
        ..options(&t.tables)
    };
    let cleaning = PostgresBackend::new(server().unix(), cleaning).unwrap();
    assert!(!cleaning.is_locked(&t.key("k")).await.unwrap());
    soon(watch.freed()).await;
}

async fn releases_in_a_group_are_told() {
    let t = Scene::new("group").await;
    let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let scarce = PostgresConfig {
        pool_size: 1,
        ..server().unix()
    };
    let scarce = PostgresBackend::new(scarce, options(&t.tables)).unwrap();
    let grants = join_all(names.iter().map(|name| t.acquire(name))).await;
    let watches = join_all(names.iter().map(|name| t.watch(name))).await;
    join_all(grants.iter().map(|grant| scarce.release(&grant.lock_id))).await;
    join_all(watches.iter().map(|watch| soon(watch.freed()))).await;
}

/// As a client that the caller brings.
#[derive(Debug)]
struct Client(tokio_postgres::Client);

#[async_trait]
impl Transport for Client {
    async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
        let params = plan.params.iter().map(|param| match param {
            Param::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
            Param::BigInt(number) => (number as _, Type::INT8),
        });
        let params: Vec<_> = params.collect();
        let rows = self.0.query_typed(plan.statement.sql(), &params).await;
        let rows = rows.unwrap();
        let row = rows.first();
        Ok(row.map(|row| (0..row.len()).map(|column| row.get(column)).collect()))
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.0.batch_execute(sql).await.unwrap();
        Ok(())
    }
}

async fn a_release_through_a_client_is_told() {
    let t = Scene::new("client").await;
    let client = Client(server().client().await);
    let ours = PostgresBackend::with_transport(Arc::new(client), options(&t.tables));
    assert!(ours.watch_key(&t.key("k")).is_none());
    let grant = acquire(&ours, t.key("k").as_str()).await;
    let watch = t.watch("k").await;
    ours.release(&grant.lock_id).await.unwrap();
    soon(watch.freed()).await;
}

async fn a_release_through_a_pooler_is_told() {
    let t = Scene::new("to pooler").await;
    let bouncer = PgBouncer::start(server(), true);
    let ours = PostgresBackend::new(bouncer.config(), options(&t.tables)).unwrap();
    let grant = acquire(&ours, t.key("k").as_str()).await;
    let watch = t.watch("k").await;
    ours.release(&grant.lock_id).await.unwrap();
    soon(watch.freed()).await;
}

async fn a_waiter_has_the_lock_as_soon_as_it_is_free() {
    let t = Scene::new("soon").await;
    let grant = t.acquire("k").await;
    let waiter = t.wait("k");
    t.until_marked().await;
    t.holder.release(&grant.lock_id).await.unwrap();
    soon(waiter).await.unwrap();
}

async fn a_release_that_is_about_to_commit_is_not_missed() {
    let t = Scene::alone("about to commit").await;
    let grant = t.acquire("k").await;
    // Releases as any backend does, and sees no mark.
    let release = Release::new(&t.tables);
    let sql = release
        .plan(&grant.lock_id, true)
        .statement
        .sql()
        .to_owned();
    t.client.batch_execute("BEGIN").await.unwrap();
    let params: [&(dyn ToSql + Sync); 2] = [&grant.lock_id.as_str(), &"on"];
    assert_eq!(t.client.query(&sql, &params).await.unwrap().len(), 1);
    let waiter = t.wait("k");
    until_waiting(&server().client().await, t.name, 1).await;
    t.client.batch_execute("COMMIT").await.unwrap();
    soon(waiter).await.unwrap();
}

async fn no_release_of_many_is_missed() {
    const ROUNDS: usize = 100;
    let t = Scene::new("many rounds").await;
    let durable = PostgresOptions {
        durable_releases: true,
        ..options(&t.tables)
    };
    let durable = PostgresBackend::new(server().unix(), durable).unwrap();
    let backends = [t.holder.clone(), t.waiter.clone(), Arc::new(durable)];
    let rounds = backends.iter().map(async |backend| {
        for _ in 0..ROUNDS {
            let guard = soon(lock(backend, &t.key("k"), &patient())).await.unwrap();
            assert!(guard.release().await.unwrap());
        }
    });
    join_all(rounds).await;
}

async fn a_release_that_nobody_waits_for_sends_nothing() {
    let t = Scene::alone("nobody").await;
    let sql = "SELECT 'syncguard_' || to_hex(hashtextextended($1, to_regclass($2)::oid::bigint))";
    let key = t.key("k");
    let params: [&(dyn ToSql + Sync); 2] = [&key.as_str(), &t.tables.locks()];
    let row = t.client.query_one(sql, &params).await.unwrap();
    let channel: String = row.get(0);
    // Listens as nobody does: without the mark.
    let (listener, mut channels) = server().listener_in(t.name).await;
    let listen = format!("LISTEN \"{channel}\"; LISTEN last");
    listener.batch_execute(&listen).await.unwrap();
    for is_waited_for in [false, true] {
        let watch = match is_waited_for {
            true => Some(t.watch("k").await),
            false => None,
        };
        let grant = t.acquire("k").await;
        t.holder.release(&grant.lock_id).await.unwrap();
        t.client.batch_execute("NOTIFY last").await.unwrap();
        if is_waited_for {
            assert_eq!(channels.recv().await.unwrap(), channel);
        }
        assert_eq!(channels.recv().await.unwrap(), "last");
        drop(watch);
    }
}

async fn a_lock_that_nobody_releases_is_taken_when_it_ends() {
    let t = Scene::new("abandoned").await;
    let mut brief = patient();
    brief.ttl = ttl(300);
    let longest = Duration::from_millis(300 + 1000);
    let start = Instant::now();
    let held = lock(&t.holder, &t.key("k"), &brief).await.unwrap().keep();
    let guard = soon(lock(&t.waiter, &t.key("k"), &patient())).await;
    assert!(start.elapsed() >= longest, "{:?}", start.elapsed());
    assert!(guard.unwrap().fence() > held[0].fence);
}

async fn who_finds_a_lock_held_learns_when_it_ends() {
    const LEFT: Duration = Duration::from_secs(30 + 1);
    let config = PostgresConfig {
        pool_size: 1,
        ..server().unix()
    };
    let t = Scene::with("until", config).await;
    let start = Instant::now();
    // Of several at once on one connection, most are a group.
    let names = ["a", "b", "c", "d", "e"];
    join_all(names.iter().map(|name| t.acquire(name))).await;
    let asked = names.map(|name| request(t.key(name).as_str()));
    let outcomes = join_all(asked.iter().map(|request| t.waiter.acquire(request))).await;
    for outcome in outcomes {
        let AcquireOutcome::Locked {
            claim: 0,
            free_in: Some(free_in),
            ..
        } = outcome.unwrap()
        else {
            panic!("not said");
        };
        assert!(
            free_in <= LEFT && free_in + start.elapsed() >= LEFT,
            "{free_in:?}"
        );
    }
}
