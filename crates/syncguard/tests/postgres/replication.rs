//! Synchronous replication.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresOptions};
use syncguard::{AcquireOutcome, Backend, ErrorKind, Fact, Operation};

use crate::stage::own_tables;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{eventually, request};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    who_waits_for_a_standby_that_is_not_there_is_told_so,
    it_is_known_how_many_standbys_confirm,
];

/// A server whose commits are to be confirmed by a standby, of which there is none.
async fn lonely() -> (PostgresServer, PostgresOptions) {
    let server = PostgresServer::start();
    let tables = own_tables();
    let options = PostgresOptions {
        tables,
        operation_timeout: Duration::from_secs(4),
        ..PostgresOptions::default()
    };
    let backend = PostgresBackend::new(server.unix(), options.clone()).unwrap();
    backend.setup_schema().await.unwrap();
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
    (server, options)
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
