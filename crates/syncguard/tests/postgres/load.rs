//! Backends whose time is short, and load on them, for tests of what happens when a server fails.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions, Tables};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, ExtendOutcome, Extension, Grant,
    Operation, ReleaseOutcome, Ttl,
};
use tokio::task::JoinSet;

use crate::stage::{options, own_tables, server, sessions};
use crate::support::locks::{acquire, eventually, key, ttl};
use crate::support::postgres_server::PostgresServer;

const CALL: CallOptions = CallOptions::DEFAULT;
pub(crate) const TIMEOUT: Duration = Duration::from_millis(2000);
/// For work that must outlast connecting again on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// How much later than its time limit an operation may end.
const GRACE: Duration = Duration::from_millis(250);

/// The answer of `operation`, which must come before `limit` and a grace have passed. A machine that is
/// too busy delays both clocks.
pub(crate) async fn in_time<T>(limit: Duration, operation: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit + GRACE, operation).await;
    answer.expect("it hangs")
}

pub(crate) struct Scene {
    pub(crate) backend: Arc<dyn Backend>,
    /// On the same tables, with all the time that a busy machine takes.
    pub(crate) patient: PostgresBackend,
    pub(crate) tables: Tables,
    pub(crate) client: tokio_postgres::Client,
}

/// A backend with sessions called `name`, a pool of four and a time limit of `TIMEOUT`.
pub(crate) async fn scene(server: &PostgresServer, name: &str, config: PostgresConfig) -> Scene {
    scene_with(server, name, config, TIMEOUT).await
}

pub(crate) async fn scene_with(
    server: &PostgresServer,
    name: &str,
    config: PostgresConfig,
    operation_timeout: Duration,
) -> Scene {
    let tables = own_tables();
    let config = PostgresConfig {
        application_name: Some(name.to_owned()),
        pool_size: config.pool_size.min(4),
        ..config
    };
    let options = PostgresOptions {
        operation_timeout,
        ..options(&tables)
    };
    let backend = PostgresBackend::new(config, options.clone()).unwrap();
    let options = PostgresOptions {
        operation_timeout: LONG,
        ..options
    };
    let patient = PostgresBackend::new(server.tcp(), options).unwrap();
    patient.setup_schema().await.unwrap();
    Scene {
        backend: Arc::new(backend),
        patient,
        tables,
        client: server.client().await,
    }
}

impl Scene {
    pub(crate) async fn until_idle(&self, name: &str) {
        eventually(
            "all sessions are idle, and no more than the pool's",
            async || {
                let (all, busy) = sessions(&self.client, name).await;
                busy == 0 && all <= 4
            },
        )
        .await;
    }

    pub(crate) async fn try_acquire(&self, name: &str) -> Result<AcquireOutcome, Error> {
        // Short: a crash may bring all locks back whose release it has forgotten.
        let request = AcquireRequest::new(key(name), ttl(5_000)).unwrap();
        operation::run::<AcquireOutcome>(
            &self.backend,
            Operation::Acquire(request),
            CALL,
            pending(),
        )
        .await
    }

    pub(crate) async fn release(&self, grant: &Grant) -> Result<ReleaseOutcome, Error> {
        operation::run::<ReleaseOutcome>(
            &self.backend,
            Operation::Release([grant.lock_id.clone()].into()),
            CALL,
            pending(),
        )
        .await
    }

    pub(crate) async fn extend(&self, grant: &Grant) -> Result<ExtendOutcome, Error> {
        operation::run::<ExtendOutcome>(
            &self.backend,
            Operation::Extend(Extension::new([grant.lock_id.clone()].into(), Ttl::DEFAULT)),
            CALL,
            pending(),
        )
        .await
    }

    /// What a test needs before the limit that it is about.
    pub(crate) async fn hold(&self, name: &str) -> Grant {
        acquire(&self.patient, name).await
    }

    pub(crate) async fn lock_rows(&self) -> tokio_postgres::Client {
        let client = server().client().await;
        let sql = format!("BEGIN; SELECT FROM {} FOR UPDATE", self.tables.locks());
        client.batch_execute(&sql).await.unwrap();
        client
    }
}

fn is_transient(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ServiceUnavailable | ErrorKind::NetworkTimeout
    )
}

/// Acquires and releases in 8 tasks on 4 keys until told to stop; checks that errors are passing ones,
/// that fences grow, and that operations end in time. Counts pairs.
pub(crate) fn load(
    scene: &Arc<Scene>,
    stop: &Arc<AtomicBool>,
    pairs: &Arc<AtomicU64>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (scene, stop, pairs) = (Arc::clone(scene), Arc::clone(stop), Arc::clone(pairs));
        tasks.spawn(async move {
            let name = format!("k{}", number % 4);
            let mut last_fence = 0;
            while !stop.load(Ordering::Relaxed) {
                let attempt = scene.try_acquire(&name);
                let grant = match in_time(scene.backend.operation_timeout(), attempt).await {
                    Ok(AcquireOutcome::Acquired(grant)) => grant,
                    Ok(_) => continue,
                    Err(error) => {
                        assert!(is_transient(&error), "{error:?}");
                        tokio::task::yield_now().await;
                        continue;
                    }
                };
                assert!(grant[0].fence.get() > last_fence, "a fence came twice");
                last_fence = grant[0].fence.get();
                // A lock whose release failed is released again, or its key would stay locked.
                while let Err(error) = scene.release(&grant[0]).await {
                    assert!(is_transient(&error), "{error:?}");
                    tokio::task::yield_now().await;
                }
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks
}

pub(crate) async fn no_lock_is_left(scene: &Scene) {
    let sql = format!("SELECT count(*) FROM {}", scene.tables.locks());
    eventually("no lock is left", async || {
        let count: i64 = scene.client.query_one(&sql, &[]).await.unwrap().get(0);
        count == 0
    })
    .await;
}
