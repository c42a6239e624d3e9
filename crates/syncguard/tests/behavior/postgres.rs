//! PostgreSQL's fixtures: one server, reached in four ways, and in two of them also through an application's pool.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::postgres::operations::PrimaryKeys;
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{Backend, Key};
use tokio::sync::OnceCell;

use crate::fixture::{Fixture, OPERATION_TIMEOUT, Setup, Store};
use crate::support::attempts::Attempts as _;
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres_server::PostgresServer;

/// How the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Postgres {
    /// Over TCP, with SCRAM.
    Tcp,
    /// Over TLS, with SCRAM.
    Tls,
    /// Over its unix socket.
    Unix,
    /// Through PgBouncer, which shares sessions between transactions.
    PgBouncer,
    /// Over TCP, through a pool of deadpool-postgres.
    Deadpool,
    /// Through PgBouncer, through a pool of deadpool-postgres.
    DeadpoolAndPgBouncer,
}

static SERVER: OnceLock<PostgresServer> = OnceLock::new();
static BOUNCER: OnceLock<PgBouncer> = OnceLock::new();
static SCHEMA: OnceCell<()> = OnceCell::const_new();

fn server() -> &'static PostgresServer {
    SERVER.get_or_init(PostgresServer::start)
}

impl Postgres {
    fn config(self) -> PostgresConfig {
        match self {
            Self::Tcp => server().tcp(),
            Self::Tls => server().tls(),
            Self::Unix => server().unix(),
            Self::PgBouncer => BOUNCER
                .get_or_init(|| PgBouncer::start(server(), false))
                .config(),
            Self::Deadpool => Self::Tcp.config(),
            Self::DeadpoolAndPgBouncer => Self::PgBouncer.config(),
        }
    }

    fn backend(self, options: PostgresOptions) -> PostgresBackend {
        let config = self.config();
        match self {
            Self::Deadpool | Self::DeadpoolAndPgBouncer => {
                let pool = crate::support::clients::deadpool(&config, 10, "");
                syncguard_clients::deadpool_postgres::backend(&pool, options)
            }
            _ => PostgresBackend::new(config, options).unwrap(),
        }
    }
}

#[async_trait]
impl Store for Postgres {
    fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "postgres_tcp",
            Self::Tls => "postgres_tls_scram",
            Self::Unix => "postgres_unix_socket",
            Self::PgBouncer => "postgres_pgbouncer",
            Self::Deadpool => "postgres_deadpool",
            Self::DeadpoolAndPgBouncer => "postgres_deadpool_pgbouncer",
        }
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let options = PostgresOptions {
            cleanup_in_is_locked: setup.cleanup_in_is_locked,
            operation_timeout: OPERATION_TIMEOUT,
            ..PostgresOptions::default()
        };
        let make = || Arc::new(self.backend(options.clone()));
        let backend = make();
        let set_up = || async { backend.setup_schema().await.unwrap() };
        SCHEMA.get_or_init(set_up).await;
        // Opens the first connection: tests whose time is short do not pay for it.
        backend.is_locked(&Key::new("none").unwrap()).await.unwrap();
        Box::new(Reached {
            backend,
            peer: make(),
        })
    }

    fn stop(&self) {
        // Each way stops all of it: the tests are over.
        if let Some(bouncer) = BOUNCER.get() {
            bouncer.end();
        }
        if let Some(server) = SERVER.get() {
            server.end();
        }
    }
}

struct Reached {
    backend: Arc<PostgresBackend>,
    peer: Arc<PostgresBackend>,
}

#[async_trait]
impl Fixture for Reached {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as _
    }

    fn peer(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.peer) as _
    }

    async fn pass(&self, time: Duration) {
        // The clock is the server's.
        tokio::time::sleep(time).await;
    }

    async fn set_fence_counter(&self, key: &Key, counter: i64) {
        let sql = "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES ($1, $2) \
                   ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence";
        let fence = PrimaryKeys::new(key).unwrap().fence;
        let client = server().client().await;
        client.execute(sql, &[&fence, &counter]).await.unwrap();
    }

    async fn has_record(&self, key: &Key) -> bool {
        let sql = "SELECT FROM syncguard_locks WHERE key = $1";
        let lock = PrimaryKeys::new(key).unwrap().lock;
        let client = server().client().await;
        !client.query(sql, &[&lock]).await.unwrap().is_empty()
    }
}
