//! Synchronous replication.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{
    AcquireOutcome, AutoExtend, Backend, ErrorKind, ExtendOutcome, Extension, Fact, LockOptions,
    Operation, Ttl, lock,
};
use tokio::task::JoinSet;

use crate::stage::own_tables;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, request, ttl};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    who_waits_for_a_standby_that_is_not_there_is_told_so,
    each_of_those_that_wait_for_it_at_once_is_told_so,
    a_holder_that_loses_its_lock_by_it_is_told_so,
    it_is_known_how_many_standbys_confirm,
];

/// A server whose commits are to be confirmed by a standby, of which there is none.
async fn lonely() -> (PostgresServer, PostgresOptions) {
    let (server, options) = followed().await;
    leave_alone(&server).await;
    (server, options)
}

/// The same before its standby has gone.
async fn followed() -> (PostgresServer, PostgresOptions) {
    let server = PostgresServer::start();
    let tables = own_tables();
    let options = PostgresOptions {
        tables,
        operation_timeout: Duration::from_secs(4),
        ..PostgresOptions::default()
    };
    let backend = PostgresBackend::new(server.unix(), options.clone()).unwrap();
    backend.setup_schema().await.unwrap();
    (server, options)
}

async fn leave_alone(server: &PostgresServer) {
    let client = server.client().await;
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    eventually("the setting is in force", async || {
        let sql = "SELECT current_setting('synchronous_standby_names') = 'nobody'";
        client.query_one(sql, &[]).await.unwrap().get(0)
    })
    .await;
}

/// A process with so many sessions, which the server leaves waiting.
fn process(
    server: &PostgresServer,
    options: &PostgresOptions,
    sessions: usize,
) -> Arc<dyn Backend> {
    let patient = ("statement_timeout".to_owned(), "60000".to_owned());
    let config = PostgresConfig {
        pool_size: sessions,
        parameters: vec![patient],
        ..server.unix()
    };
    Arc::new(PostgresBackend::new(config, options.clone()).unwrap())
}

async fn who_waits_for_a_standby_that_is_not_there_is_told_so() {
    let (server, options) = lonely().await;
    let ask = async || {
        let backend = PostgresBackend::new(server.unix(), options.clone()).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(backend);
        let acquire = Operation::Acquire(request("k"));
        let call = CallOptions::default();
        operation::run::<AcquireOutcome>(&backend, acquire, call, pending()).await
    };
    let (mine, theirs) = tokio::join!(ask(), ask());
    let mut named = 0;
    for error in [mine, theirs].into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error}");
        assert!(!error.message().contains("another application"), "{error}");
        named += usize::from(error.message().contains("SyncRep"));
    }
    assert!(named > 0);
}

async fn each_of_those_that_wait_for_it_at_once_is_told_so() {
    let (server, options) = followed().await;
    let (names, new) = (["a", "b", "c"], ["d", "e", "f"]);
    // None of them is free any more.
    let ours = process(&server, &options, names.len() + new.len());
    let mut held = Vec::new();
    for name in names {
        held.push(acquire(&*ours, name).await.lock_id);
    }
    leave_alone(&server).await;
    let mut asked = JoinSet::new();
    let extensions = held.into_iter().map(|lock_id| {
        let lock_ids = [lock_id].into_iter().collect();
        Operation::Extend(Extension::new(lock_ids, Ttl::DEFAULT))
    });
    let acquisitions = new.map(|name| Operation::Acquire(request(name)));
    for operation in extensions.chain(acquisitions) {
        let ours = Arc::clone(&ours);
        asked.spawn(async move {
            let call = CallOptions::default();
            match operation {
                Operation::Extend(_) => {
                    operation::run::<ExtendOutcome>(&ours, operation, call, pending())
                        .await
                        .err()
                }
                _ => operation::run::<AcquireOutcome>(&ours, operation, call, pending())
                    .await
                    .err(),
            }
        });
    }
    for error in asked.join_all().await {
        let error = error.expect("nobody confirms it");
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error}");
        assert!(error.message().contains("SyncRep"), "{error}");
    }
}

async fn a_holder_that_loses_its_lock_by_it_is_told_so() {
    let (server, options) = followed().await;
    let ours = process(&server, &options, 2);
    let held = LockOptions {
        ttl: ttl(3000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&ours, &key("k"), &held).await.unwrap();
    leave_alone(&server).await;
    let lost = guard.lost().await;
    let message = lost.message();
    assert!(message.contains("could not be extended"), "{message}");
    assert!(message.contains("SyncRep"), "{message}");
}

async fn it_is_known_how_many_standbys_confirm() {
    let (server, options) = lonely().await;
    let ours = PostgresBackend::new(server.unix(), options).unwrap();
    let of = async |name: &str| {
        let facts = ours.facts().await.unwrap().remove(0);
        let found = facts.facts.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, fact)| fact)
    };
    assert_eq!(of("standbys").await, Some(Fact::Number(0)));
    assert_eq!(of("confirmingStandbys").await, Some(Fact::Number(0)));
    // A standby that nobody waits for.
    let standby = server.start_standby();
    eventually("it follows", async || {
        of("standbys").await == Some(Fact::Number(1))
    })
    .await;
    assert_eq!(of("confirmingStandbys").await, Some(Fact::Number(0)));
    let client = server.client().await;
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    eventually("it confirms", async || {
        of("confirmingStandbys").await == Some(Fact::Number(1))
    })
    .await;
    standby.end();
}
