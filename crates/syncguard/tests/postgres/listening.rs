//! The session that listens: one for all who wait, for as long as somebody does.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use syncguard::postgres::{
    Host, PostgresBackend, PostgresConfig, PostgresConnection, PostgresOptions,
};
use syncguard::{ReleaseOutcome, lock};
use tokio::time::timeout;

use crate::mediator::{Forwarding, Mediator};
use crate::scene::{Scene, named};
use crate::stage::{backend, options, server, sessions};
use crate::support::attempts::Attempts as _;
use crate::support::link::Link;
use crate::support::locks::{acquire, eventually};
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres_server::USER;
use crate::support::suite::tests;
use crate::support::waiters::{deaf_for, patient, soon};

tests![
    one_session_listens_for_many_and_is_none_of_the_pool,
    backends_that_share_connections_share_what_they_hear,
    who_no_longer_waits_leaves_no_mark,
    a_listener_that_is_killed_comes_back,
    a_listener_in_silence_is_tested,
    a_listener_in_silence_is_replaced_within_seconds,
    a_listener_ends_with_the_backend,
    who_hears_much_is_not_cut_off,
    behind_a_pooler_there_is_no_listener_and_waiters_poll,
    a_pooler_that_hides_itself_is_noticed,
    without_prepared_statements_waiters_poll,
    a_role_without_the_right_to_tell_frees_locks,
];

async fn one_session_listens_for_many_and_is_none_of_the_pool() {
    const COUNT: usize = 200;
    let config = PostgresConfig {
        pool_size: 2,
        ..named("many", server().unix())
    };
    let t = Scene::with("many", config).await;
    let names: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    let mut grants = Vec::new();
    for name in &names {
        grants.push(t.acquire(name).await);
    }
    let waiters: Vec<_> = names.iter().map(|name| t.wait(name)).collect();
    let watches = join_all(names.iter().map(|name| t.watch(name))).await;
    assert!((2..=3).contains(&sessions(&t.client, t.name).await.0));
    assert!(t.marks().await <= 64);
    for grant in &grants {
        t.holder.release(&grant.lock_id).await.unwrap();
    }
    drop(watches);
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
    assert!((2..=3).contains(&sessions(&t.client, t.name).await.0));
}

async fn backends_that_share_connections_share_what_they_hear() {
    let t = Scene::new("shared").await;
    let (_, others) = backend(server().unix()).await;
    let connection = PostgresConnection::new(
        named("both", server().unix()),
        PostgresOptions::default().operation_timeout,
    );
    let connection = connection.unwrap();
    let on = |tables| PostgresBackend::on(&connection, options(tables)).unwrap();
    let (one, other) = (on(&t.tables), on(&others));
    let grant = t.acquire("k").await;
    let watches = [&one, &other].map(|backend| backend.watch_key(&t.key("k")).unwrap());
    for watch in &watches {
        soon(watch.freed()).await;
    }
    t.holder.release(&grant.lock_id).await.unwrap();
    let [of_one, of_other] = watches;
    soon(of_one.freed()).await;
    assert_eq!(sessions(&t.client, "both").await.0, 1);
    // The same key in another table is another lock.
    let grant = acquire(&other, t.key("k").as_str()).await;
    other.release(&grant.lock_id).await.unwrap();
    soon(of_other.freed()).await;
    assert!(timeout(Duration::ZERO, of_one.freed()).await.is_err());
}

async fn who_no_longer_waits_leaves_no_mark() {
    let t = Scene::new("leaves").await;
    let (first, second) = (t.watch("a").await, t.watch("a").await);
    let other = t.watch("b").await;
    let both = t.marks().await;
    drop(first);
    drop(other);
    eventually("b is left", async || t.marks().await < 2).await;
    assert!(both <= 2 && t.marks().await == 1);
    // Who comes back in the moment of the leaving hears nevertheless.
    for _ in 0..20 {
        drop(t.watch("c").await);
    }
    drop(second);
    eventually("all is left", async || t.marks().await == 0).await;
}

async fn a_listener_that_is_killed_comes_back() {
    let t = Scene::new("killed").await;
    let grant = t.acquire("k").await;
    let waiter = t.wait("k");
    t.until_marked().await;
    let killed = t.listeners().await;
    let sql = "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid";
    t.client.query_one(sql, &[&killed]).await.unwrap();
    eventually("another session listens", async || {
        let found = t.listeners().await;
        !found.is_empty() && found != killed
    })
    .await;
    t.holder.release(&grant.lock_id).await.unwrap();
    soon(waiter).await.unwrap();
}

async fn a_listener_in_silence_is_tested() {
    let idle = Scene::new("idle").await;
    drop(idle.watch("k").await);
    let quiet = Scene::new("quiet").await;
    let quiet_watch = quiet.watch("k").await;
    let listeners = quiet.listeners().await;

    let mediator = Mediator::start(server().port()).await;
    let config = mediator.config(named("cut off", server().tcp()));
    let t = Scene::with("cut off", config).await;
    let grant = t.acquire("k").await;
    let watch = t.watch("k").await;
    mediator.meet(Forwarding::Silence);
    t.holder.release(&grant.lock_id).await.unwrap();
    // It did not hear that. It hears that it listens again, on another connection.
    let heard = timeout(Duration::from_secs(25), watch.freed()).await;
    assert!(heard.is_ok() && mediator.accepted() > 1);

    // One where nothing happened was tested as well, and has answered.
    assert_eq!(quiet.listeners().await, listeners);
    assert!(quiet_watch.is_listening());
    // One that nobody needs has ended.
    eventually("the session has ended", async || {
        sessions(&idle.client, idle.name).await.0 == 0
    })
    .await;
}

async fn a_listener_ends_with_the_backend() {
    let t = Scene::new("ends").await;
    let watch = t.watch("k").await;
    t.waiter.close().await;
    eventually("the session has ended", async || {
        sessions(&t.client, t.name).await.0 == 0
    })
    .await;
    // Whoever waits is woken for the last time.
    soon(watch.freed()).await;
    let heard = timeout(Duration::from_millis(10), watch.freed()).await;
    assert!(heard.is_err() && t.waiter.watch_key(&t.key("k")).is_none());
}

async fn who_hears_much_is_not_cut_off() {
    let t = Scene::new("much").await;
    let watch = t.watch("k").await;
    let listeners = t.listeners().await;
    // More than a reply may have, and nothing is sent meanwhile.
    let sql = format!(
        "SELECT pg_notify('syncguard_' || to_hex(hashtextextended(key, '{}'::regclass::oid::bigint)), \
         number || repeat('x', 1000)) FROM generate_series(1, 3000) AS number, \
         (SELECT '{}' AS key) AS lock",
        t.tables.locks(),
        t.key("k").as_str(),
    );
    t.client.batch_execute(&sql).await.unwrap();
    soon(watch.freed()).await;
    let grant = t.acquire("k").await;
    t.holder.release(&grant.lock_id).await.unwrap();
    soon(watch.freed()).await;
    assert_eq!(t.listeners().await, listeners);
}

/// Whether waiters get a lock by polling, and nobody listens.
async fn polls(t: &Scene) {
    let grant = t.acquire("k").await;
    let (backend, key) = (Arc::clone(&t.waiter), t.key("k"));
    let mut impatient = patient();
    impatient.retry.retry_delay_ms = 50.0;
    let waiter = tokio::spawn(async move { lock(&backend, &key, &impatient).await });
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE application_name = $1 AND state = 'idle' AND query LIKE '%$2 fence key%'";
    eventually("somebody has asked", async || {
        let row = t.client.query_one(sql, &[&t.name]).await.unwrap();
        row.get::<_, i64>(0) > 0
    })
    .await;
    t.holder.release(&grant.lock_id).await.unwrap();
    let guard = soon(waiter).await.unwrap().unwrap();
    // Not in the background: the key is asked for again.
    assert!(guard.release().await.unwrap());
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = $1";
    let row = t.client.query_one(sql, &[&t.name]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), t.marks().await), (0, 0));
}

async fn behind_a_pooler_there_is_no_listener_and_waiters_poll() {
    for ignores in [true, false] {
        let bouncer = PgBouncer::start(server(), ignores);
        let t = Scene::with("pooled", named("pooled", bouncer.config())).await;
        polls(&t).await;
        let watch = t.waiter.watch_key(&t.key("k")).unwrap();
        assert!(
            timeout(Duration::from_millis(300), watch.freed())
                .await
                .is_err()
        );
        assert!(!watch.is_listening());
    }
}

async fn a_pooler_that_hides_itself_is_noticed() {
    let t = Scene::new("hidden").await;
    // The settings of our sessions are in force there, although the pooler drops them.
    let sql = "CREATE DATABASE hidden";
    t.client.batch_execute(sql).await.unwrap();
    let sql = "ALTER DATABASE hidden SET enable_seqscan = off";
    t.client.batch_execute(sql).await.unwrap();
    let bouncer = PgBouncer::start(server(), true);
    let config = PostgresConfig {
        database: Some("hidden".to_owned()),
        ..bouncer.config()
    };
    let waiter = PostgresBackend::new(config, options(&t.tables)).unwrap();
    waiter.setup_schema().await.unwrap();
    let t = Scene {
        waiter: Arc::new(waiter),
        ..t
    };
    let watch = t.watch("k").await;
    eventually("sessions are mixed up, and the listener ends", async || {
        let keys: Vec<_> = (0..10).map(|number| t.key(&number.to_string())).collect();
        let locked = join_all(keys.iter().map(|key| t.waiter.is_locked(key))).await;
        assert!(locked.into_iter().all(|locked| !locked.unwrap()));
        // Gives the listener something to do.
        let other = t.waiter.watch_key(&t.key("other")).unwrap();
        let _ = timeout(Duration::from_millis(50), other.freed()).await;
        !watch.is_listening()
    })
    .await;
}

async fn without_prepared_statements_waiters_poll() {
    let config = PostgresConfig {
        prepare: false,
        ..named("unprepared", server().unix())
    };
    let t = Scene::with("unprepared", config).await;
    assert!(t.waiter.watch_key(&t.key("k")).is_none());
    polls(&t).await;
}

async fn a_role_without_the_right_to_tell_frees_locks() {
    let t = Scene::new("mute").await;
    // Rights to functions are those of a database.
    t.client
        .batch_execute("CREATE DATABASE mute")
        .await
        .unwrap();
    let there = |user: &str| PostgresConfig {
        user: Some(user.to_owned()),
        database: Some("mute".to_owned()),
        ..named("mute", server().unix())
    };
    let owner = PostgresBackend::new(there(USER), options(&t.tables)).unwrap();
    owner.setup_schema().await.unwrap();
    let client = server().client_of("mute").await;
    let rights = format!(
        "CREATE ROLE mute LOGIN; GRANT ALL ON {}, {} TO mute; \
         REVOKE EXECUTE ON FUNCTION pg_notify, pg_advisory_lock_shared(int, int) FROM PUBLIC",
        t.tables.locks(),
        t.tables.fences(),
    );
    client.batch_execute(&rights).await.unwrap();
    let ours = PostgresOptions {
        cleanup_in_is_locked: true,
        ..options(&t.tables)
    };
    let t = Scene {
        waiter: Arc::new(PostgresBackend::new(there("mute"), ours.clone()).unwrap()),
        holder: Arc::new(PostgresBackend::new(there("mute"), ours).unwrap()),
        ..t
    };
    polls(&t).await;
    t.acquire("forced").await;
    assert!(t.holder.force_release(&t.key("forced")).await.unwrap());
    assert!(!t.holder.is_locked(&t.key("forced")).await.unwrap());
    let names = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
    ];
    let grants = join_all(names.iter().map(|name| t.acquire(name))).await;
    let released = join_all(grants.iter().map(|grant| t.holder.release(&grant.lock_id))).await;
    for outcome in released {
        assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    }
}

async fn a_listener_in_silence_is_replaced_within_seconds() {
    let link = Link::start(([127, 0, 0, 1], server().port()).into()).await;
    let config = PostgresConfig {
        hosts: vec![Host {
            name: "127.0.0.1".to_owned(),
            port: link.address.port(),
        }],
        ..named("deaf", server().tcp())
    };
    let t = Scene::with("deaf", config).await;
    let swallow = || link.swallow_newest();
    deaf_for(&t.waiter, &t.holder, "k", swallow, Duration::from_secs(6)).await;
}
