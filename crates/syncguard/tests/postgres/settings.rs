//! Settings of sessions, and who refuses them.

use syncguard::ErrorKind;
use syncguard::postgres::{PostgresBackend, PostgresConfig};

use crate::gate::{Gate, Rule};
use crate::stage::{enters, options, own_tables, schema_of, server, sessions};
use crate::support::attempts::Attempts as _;
use crate::support::locks::acquire;
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    settings_of_the_session_are_carried_over,
    a_pooler_is_noticed,
    a_proxy_that_refuses_settings_gets_none,
    the_users_settings_count_also_where_they_are_refused_at_the_start,
];

async fn settings_of_the_session_are_carried_over() {
    let client = server().client().await;
    client.batch_execute("CREATE SCHEMA \"a b\"").await.unwrap();
    let tables = own_tables();
    let config = PostgresConfig {
        application_name: Some("my app".to_owned()),
        parameters: vec![("search_path".to_owned(), "\"a b\"".to_owned())],
        ..server().unix()
    };
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    assert_eq!(schema_of(&client, &tables).await, "a b");
    assert_eq!(sessions(&client, "my app").await.0, 1);
}

/// Behind a pooler that refuses settings, and one that drops them, nothing is prepared.
async fn a_pooler_is_noticed() {
    for ignores in [false, true] {
        let bouncer = PgBouncer::start(server(), ignores);
        let tables = own_tables();
        let backend = PostgresBackend::new(bouncer.config(), options(&tables)).unwrap();
        backend.setup_schema().await.unwrap();
        for _ in 0..20 {
            let grant = crate::support::locks::acquire(&backend, "k").await;
            backend.release(&grant.lock_id).await.unwrap();
        }
    }
}

/// What poolers and old servers say of settings that they do not know: RDS Proxy, servers before version 12, PgBouncer,
/// and others.
const REFUSALS: [&str; 5] = ["0A000", "42704", "08P01", "22023", "XX000"];

async fn a_proxy_that_refuses_settings_gets_none() {
    for state in REFUSALS {
        let gate = Gate::start(server().port(), Rule::RefusesSettings(state)).await;
        let tables = own_tables();
        let backend = PostgresBackend::new(gate.config(server().tcp()), options(&tables)).unwrap();
        backend.setup_schema().await.unwrap();
        let mut last = 0;
        for _ in 0..5 {
            let grant = acquire(&backend, "k").await;
            assert!(grant.fence.get() > last, "{state}");
            last = grant.fence.get();
            backend.release(&grant.lock_id).await.unwrap();
        }
        // It is asked once, and not for each connection.
        assert_eq!(gate.refused(), 1, "{state}");
    }
}

async fn the_users_settings_count_also_where_they_are_refused_at_the_start() {
    let client = server().client().await;
    client
        .batch_execute("CREATE SCHEMA \"far away\"")
        .await
        .unwrap();
    let tables = own_tables();
    let config = PostgresConfig {
        options: Some("-c search_path=\"far\\ away\"".to_owned()),
        parameters: vec![("lock_timeout".to_owned(), "1s".to_owned())],
        ..server().tcp()
    };
    let gate = Gate::start(server().port(), Rule::RefusesSettings("0A000")).await;
    let backend = PostgresBackend::new(gate.config(config.clone()), options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    assert_eq!(schema_of(&client, &tables).await, "far away");
    assert_eq!(gate.refused(), 2);
    // A wrong one is an error there as well.
    let wrong = PostgresConfig {
        parameters: vec![("lock_timeout".to_owned(), "soon".to_owned())],
        ..config.clone()
    };
    let error = enters(gate.config(wrong)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    // What PgBouncer sets in one client's session, others get.
    let gate = Gate::start(server().port(), Rule::RefusesSettings("08P01")).await;
    let error = enters(gate.config(config)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    assert!(error.message().contains("leave out options"), "{error}");
}
