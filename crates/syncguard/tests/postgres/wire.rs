//! One request and one reply for each operation.

use crate::support::attempts::Attempts as _;
use syncguard::postgres::{PostgresBackend, PostgresConfig};
use syncguard::{AcquireRequest, LockId, Lookup, Owner, Ttl};

use crate::flights::{Flights, Proxy};
use crate::stage::{options, own_tables, server};
use crate::support::locks::{acquire, key};
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    each_operation_is_one_round_trip,
    each_operation_is_one_round_trip_without_preparing,
    each_operation_is_one_round_trip_through_a_pooler,
];

const ONE: Flights = Flights {
    requests: 1,
    replies: 1,
};

/// Runs each operation and checks the flights of each; with `warm_up`, after a round that prepares
/// them, in which the preparation goes along with the first use and may be a flight of its own.
async fn check(proxy: &Proxy, config: PostgresConfig, warm_up: bool) {
    // A key of its own: whoever acquires one waits for others that do, also where their tables are others.
    let own = LockId::generate().unwrap();
    let name = own.as_str();
    let tables = own_tables();
    let beside = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    beside.setup_schema().await.unwrap();
    let options = syncguard::postgres::PostgresOptions {
        cleanup_in_is_locked: true,
        ..options(&tables)
    };
    let plain = PostgresBackend::new(
        proxy.config(config.clone()),
        syncguard::postgres::PostgresOptions {
            cleanup_in_is_locked: false,
            ..options.clone()
        },
    )
    .unwrap();
    let cleaning = PostgresBackend::new(proxy.config(config), options).unwrap();
    for backend in [plain, cleaning] {
        // Opens the connection with what the rounds do not count.
        backend.setup_schema().await.unwrap();
        // Setting up may wait for the setup of another test, and then has the server asked about it.
        let connections = proxy.connections();
        for counts in [!warm_up, true, true] {
            let check = |operation: &str| {
                let flights = proxy.take();
                assert!(!counts || flights == ONE, "{operation}: {flights:?}");
            };
            proxy.take();
            let grant = acquire(&backend, name).await;
            check("acquire");
            let request = AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap();
            backend.acquire(&request).await.unwrap();
            check("acquire what is held");
            backend.is_locked(&key(name)).await.unwrap();
            check("is_locked");
            backend
                .lookup(&Lookup::Key(key(name)))
                .await
                .unwrap()
                .unwrap();
            check("lookup by key");
            let lookup = Lookup::LockId(grant.lock_id.clone());
            backend.lookup(&lookup).await.unwrap().unwrap();
            check("lookup by lock id");
            backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
            check("extend");
            backend.release(&grant.lock_id).await.unwrap();
            check("release");
            backend.release(&LockId::generate().unwrap()).await.unwrap();
            check("release of nothing");
            let mut request = AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap();
            request.labels.owner = Some(Owner::new("me").unwrap());
            backend.acquire(&request).await.unwrap();
            check("acquire with a label");
            assert!(backend.force_release(&key(name)).await.unwrap());
            check("force_release");
        }
        assert_eq!(proxy.connections(), connections);
    }
}

async fn each_operation_is_one_round_trip() {
    let proxy = Proxy::start(server().port()).await;
    check(&proxy, server().tcp(), true).await;
}

async fn each_operation_is_one_round_trip_without_preparing() {
    let proxy = Proxy::start(server().port()).await;
    let config = PostgresConfig {
        prepare: false,
        ..server().tcp()
    };
    check(&proxy, config, false).await;
}

async fn each_operation_is_one_round_trip_through_a_pooler() {
    let bouncer = PgBouncer::start(server(), true);
    let config = bouncer.config();
    let proxy = Proxy::start(config.hosts[0].port).await;
    check(&proxy, config, false).await;
}
