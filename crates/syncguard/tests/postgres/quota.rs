//! Who gets the connections: a row that is stuck does not keep them from other keys, nor a crowd from locks that are held.

use std::sync::Arc;
use std::time::Duration;

use syncguard::postgres::{Host, PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{AcquireOutcome, Backend, ReleaseOutcome};
use tokio::task::JoinSet;

use crate::stage::{backend, options, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{shared, try_take};
use crate::support::link::Link;
use crate::support::locks::{acquire, key, try_acquire};
use crate::support::precedence::locks_are_kept_and_freed_before_a_crowd;
use crate::support::suite::tests;

tests![
    a_stuck_row_leaves_connections_to_other_keys,
    heartbeats_and_releases_go_before_a_crowd,
];

async fn heartbeats_and_releases_go_before_a_crowd() {
    let (_, tables) = backend(server().unix()).await;
    let port = server().port();
    let link = Link::slow(([127, 0, 0, 1], port).into(), Duration::from_millis(25)).await;
    let config = PostgresConfig {
        hosts: vec![Host {
            name: "127.0.0.1".to_owned(),
            port: link.address.port(),
        }],
        ..server().tcp()
    };
    let ours: Arc<dyn Backend> = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    locks_are_kept_and_freed_before_a_crowd(&ours).await;
}

async fn a_stuck_row_leaves_connections_to_other_keys() {
    let name = "stuck row";
    let (_, tables) = backend(server().unix()).await;
    let config = PostgresConfig {
        application_name: Some(name.to_owned()),
        // Nobody is to be helped out of a wait.
        parameters: vec![("statement_timeout".to_owned(), "0".to_owned())],
        ..server().unix()
    };
    let options = PostgresOptions {
        operation_timeout: Duration::from_secs(20),
        ..options(&tables)
    };
    let ours = Arc::new(PostgresBackend::new(config, options).unwrap());
    let grant = acquire(&*ours, "stuck").await;
    let blocker = server().client().await;
    let expire = format!("UPDATE {} SET expires_at_ms = 1", tables.locks());
    blocker.batch_execute(&expire).await.unwrap();
    let begin = format!("BEGIN; SELECT FROM {} FOR UPDATE", tables.locks());
    blocker.batch_execute(&begin).await.unwrap();
    let mut stuck = JoinSet::new();
    for number in 0..200 {
        let (ours, id) = (Arc::clone(&ours), grant.lock_id.clone());
        stuck.spawn(async move {
            match number % 4 {
                0 => drop(ours.release(&id).await),
                1 => drop(ours.force_release(&key("stuck")).await),
                2 => drop(try_acquire(&*ours, "stuck").await),
                _ => drop(try_take(&*ours, [shared("stuck")]).await),
            }
        });
    }
    let client = server().client().await;
    // Two releases, two by force, five acquisitions: the others wait without a connection.
    until_waiting(&client, name, 9).await;
    for number in 0..20 {
        let free = format!("free {number}");
        let AcquireOutcome::Acquired(mut grants) = try_acquire(&*ours, &free).await.unwrap() else {
            panic!("locked");
        };
        let grant = grants.remove(0);
        let released = ours.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
    assert!(!ours.is_locked(&key("stuck")).await.unwrap());
    blocker.batch_execute("COMMIT").await.unwrap();
    stuck.join_all().await;
}
