//! Extensions by heartbeats that share a statement while connections are in short supply: each hears its own.

use std::collections::HashMap;
use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, PostgresConfig};
use syncguard::{Absence, Backend, Error, ExtendOutcome, LockId, Lookup, Ttl};

use crate::flights::Proxy;
use crate::groups::{COUNT, acquire_all, all_but_one, at_once, granted, ids, names, scarce};
use crate::stage::{QUIET, backend, is_behind, options, own_tables, server};
use crate::support::attempts::Attempts as _;
use crate::support::locks::ttl;
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    many_share_a_round_trip,
    each_hears_its_own,
    one_that_must_wait_delays_nobody,
    a_group_waits_for_the_disk,
];

async fn extend_all(
    backend: &Arc<PostgresBackend>,
    asked: &[(LockId, Ttl)],
) -> Vec<Result<ExtendOutcome, Error>> {
    at_once(asked.iter().cloned().map(|(lock_id, ttl)| {
        let backend = Arc::clone(backend);
        async move { backend.extend_with_others(&lock_id, ttl).await }
    }))
    .await
}

/// By a TTL of its own each: 100 s and some more.
fn asked(lock_ids: &[LockId]) -> Vec<(LockId, Ttl)> {
    let numbered = (100_000..).zip(lock_ids.iter().cloned());
    numbered.map(|(ms, lock_id)| (lock_id, ttl(ms))).collect()
}

async fn many_share_a_round_trip() {
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = proxy.config(server().tcp());
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let grants = granted(acquire_all(&ours, &names("prolonged")).await);
    let asked = asked(&ids(&grants));
    // The first prepares.
    extend_all(&ours, &asked).await;
    proxy.take();
    let answers = extend_all(&ours, &asked).await;
    let flights = proxy.take();
    assert!(flights.requests <= COUNT / 4, "{flights:?}");
    for (answer, (lock_id, ttl)) in answers.into_iter().zip(&asked) {
        let Ok(ExtendOutcome::Extended { expires_at_ms }) = answer else {
            panic!("{answer:?}");
        };
        let lookup = Lookup::LockId(lock_id.clone());
        let record = ours.lookup(&lookup).await.unwrap().unwrap();
        assert_eq!(record.expires_at_ms, expires_at_ms);
        let left = expires_at_ms - record.read_at_ms;
        assert!((ttl.as_millis() - 20_000..=ttl.as_millis()).contains(&left));
    }
    ours.close().await;
}

async fn each_hears_its_own() {
    let (ours, tables) = scarce("extended", 2).await;
    let grants = granted(acquire_all(&ours, &names("extended")).await);
    let (expired, live) = grants.split_at(10);
    let client = server().client().await;
    let sql = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
        tables.locks()
    );
    for grant in expired {
        let lock_id = grant.lock_id.as_str();
        client.execute(&sql, &[&lock_id]).await.unwrap();
    }
    // Each live lock is extended twice, and one that nobody has, too.
    let mut lock_ids = ids(&grants);
    lock_ids.extend(ids(live));
    lock_ids.push(LockId::generate().unwrap());
    let mut heard: HashMap<_, Vec<_>> = HashMap::new();
    let answers = extend_all(&ours, &asked(&lock_ids)).await;
    for (lock_id, outcome) in lock_ids.iter().zip(answers) {
        let outcomes = heard.entry(lock_id.as_str()).or_default();
        outcomes.push(outcome.unwrap());
    }
    for grant in expired {
        let expiry = ExtendOutcome::absent(Absence::Expired);
        assert_eq!(heard[grant.lock_id.as_str()], [expiry]);
    }
    for grant in live {
        let twice = &heard[grant.lock_id.as_str()];
        let is_extended = |outcome: &_| matches!(outcome, ExtendOutcome::Extended { .. });
        assert!(twice.len() == 2 && twice.iter().all(is_extended));
    }
    let nothing = ExtendOutcome::absent(Absence::NotFound);
    assert_eq!(heard[lock_ids[lock_ids.len() - 1].as_str()], [nothing]);
}

async fn one_that_must_wait_delays_nobody() {
    let (ours, tables) = scarce("held up", 2).await;
    let grants = granted(acquire_all(&ours, &names("held up")).await);
    let open = format!(
        "BEGIN; SELECT FROM {} WHERE key = 'held up20' FOR UPDATE",
        tables.locks()
    );
    let all = grants.into_iter().map(|grant| {
        let ours = Arc::clone(&ours);
        async move {
            let extended = ours.extend_with_others(&grant.lock_id, ttl(60_000)).await;
            extended.unwrap()
        }
    });
    for outcome in all_but_one("held up", &open, all.collect()).await {
        assert!(matches!(outcome, ExtendOutcome::Extended { .. }));
    }
}

/// With one connection, what commits last is a group.
async fn a_group_waits_for_the_disk() {
    let own = PostgresServer::start_with(&QUIET);
    let client = own.client().await;
    let config = PostgresConfig {
        parameters: vec![("synchronous_commit".to_owned(), "off".to_owned())],
        pool_size: 1,
        ..own.unix()
    };
    let ours = Arc::new(PostgresBackend::new(config, options(&own_tables())).unwrap());
    ours.setup_schema().await.unwrap();
    let grants = granted(acquire_all(&ours, &names("durable")).await);
    extend_all(&ours, &asked(&ids(&grants))).await;
    assert!(!is_behind(&client).await);
}
