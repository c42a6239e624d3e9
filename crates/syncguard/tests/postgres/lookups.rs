//! Lookups that share a statement while connections are in short supply.

use std::sync::Arc;

use syncguard::postgres::PostgresBackend;
use syncguard::{Backend, Lookup};

use crate::flights::Proxy;
use crate::groups::{COUNT, acquire_all, at_once, granted, ids, names};
use crate::stage::{backend, options, server};
use crate::support::attempts::Attempts as _;
use crate::support::suite::tests;

tests![many_share_a_round_trip_and_each_hears_its_own];

/// As many locks are asked after when another server may have taken over.
async fn many_share_a_round_trip_and_each_hears_its_own() {
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = proxy.config(server().tcp());
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let keys = names("looked up");
    let lock_ids = ids(&granted(acquire_all(&ours, &keys).await));
    let client = server().client().await;
    let (gone, expired) = (lock_ids[3].as_str(), lock_ids[4].as_str());
    let delete = format!("DELETE FROM {} WHERE lock_id = $1", tables.locks());
    client.execute(&delete, &[&gone]).await.unwrap();
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
        tables.locks()
    );
    client.execute(&expire, &[&expired]).await.unwrap();
    let lookups = || {
        at_once(lock_ids.iter().map(|lock_id| {
            let (ours, lookup) = (Arc::clone(&ours), Lookup::LockId(lock_id.clone()));
            async move { ours.lookup(&lookup).await.unwrap() }
        }))
    };
    // The first prepares.
    lookups().await;
    proxy.take();
    let found = lookups().await;
    let flights = proxy.take();
    assert!(flights.requests <= COUNT / 4, "{flights:?}");
    for ((found, lock_id), key) in found.into_iter().zip(&lock_ids).zip(&keys) {
        let is_held = ![gone, expired].contains(&lock_id.as_str());
        let expected = is_held.then(|| (lock_id.clone(), key.clone()));
        assert_eq!(found.map(|lock| (lock.lock_id, lock.key)), expected);
    }
    ours.close().await;
}
