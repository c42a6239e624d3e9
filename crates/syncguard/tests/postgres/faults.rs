//! What goes wrong: it is said in the right words, in time, and leaves nothing behind.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions, Tables};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, Grant, ReleaseOutcome, Ttl,
};
use tokio::task::JoinSet;

use crate::postgres_server::PostgresServer;
use crate::support::{
    QUIET, acquire, eventually, is_behind, key, options, own_tables, server, sessions, signal,
    tests, ttl, until_waiting,
};

tests![
    sessions_that_are_terminated_under_load,
    a_server_that_crashes_and_comes_back,
    a_full_pool,
    a_statement_timeout,
    a_lock_timeout,
    a_row_that_somebody_else_has_locked,
    an_advisory_lock_that_somebody_else_has,
    a_server_that_does_not_answer,
    a_dropped_operation_does_not_keep_its_session,
    a_primary_that_becomes_read_only,
    a_session_that_does_not_wait_for_the_disk,
    a_backend_that_is_closed_while_it_is_busy,
    a_backend_that_is_closed_while_it_is_stuck,
];

const CALL: CallOptions = CallOptions { timeout: None };
const TIMEOUT: Duration = Duration::from_millis(2000);
/// For work that must outlast connecting again on a busy machine.
const LONG: Duration = Duration::from_secs(10);
/// How much later than its time limit an operation may end.
const GRACE: Duration = Duration::from_millis(250);

/// The answer of `operation`, which must come before `limit` and a grace have passed. A machine that is
/// too busy delays both clocks.
async fn in_time<T>(limit: Duration, operation: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit + GRACE, operation).await;
    answer.expect("it hangs")
}

struct Scene {
    backend: Arc<dyn Backend>,
    /// On the same tables, with all the time that a busy machine takes.
    patient: PostgresBackend,
    tables: Tables,
    client: tokio_postgres::Client,
}

/// A backend with sessions called `name`, a pool of four and a time limit of `TIMEOUT`.
async fn scene(server: &PostgresServer, name: &str, config: PostgresConfig) -> Scene {
    scene_with(server, name, config, TIMEOUT).await
}

async fn scene_with(
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
    async fn until_idle(&self, name: &str) {
        eventually(
            "all sessions are idle, and no more than the pool's",
            async || {
                let (all, busy) = sessions(&self.client, name).await;
                busy == 0 && all <= 4
            },
        )
        .await;
    }

    async fn try_acquire(&self, name: &str) -> Result<AcquireOutcome, Error> {
        // Short: a crash may bring all locks back whose release it has forgotten.
        let request = AcquireRequest::new(key(name), ttl(5_000)).unwrap();
        operation::acquire(&self.backend, request, CALL, pending()).await
    }

    async fn release(&self, grant: &Grant) -> Result<ReleaseOutcome, Error> {
        operation::release(&self.backend, &grant.lock_id, CALL, pending()).await
    }

    /// What a test needs before the limit that it is about.
    async fn hold(&self, name: &str) -> Grant {
        acquire(&self.patient, name).await
    }

    async fn lock_rows(&self) -> tokio_postgres::Client {
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
fn load(scene: &Arc<Scene>, stop: &Arc<AtomicBool>, pairs: &Arc<AtomicU64>) -> JoinSet<()> {
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
                    Ok(AcquireOutcome::Locked) => continue,
                    Err(error) => {
                        assert!(is_transient(&error), "{error:?}");
                        tokio::task::yield_now().await;
                        continue;
                    }
                };
                assert!(grant.fence.get() > last_fence, "a fence came twice");
                last_fence = grant.fence.get();
                // A lock whose release failed is released again, or its key would stay locked.
                while let Err(error) = scene.release(&grant).await {
                    assert!(is_transient(&error), "{error:?}");
                    tokio::task::yield_now().await;
                }
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks
}

async fn no_lock_is_left(scene: &Scene) {
    let sql = format!("SELECT count(*) FROM {}", scene.tables.locks());
    eventually("no lock is left", async || {
        let count: i64 = scene.client.query_one(&sql, &[]).await.unwrap().get(0);
        count == 0
    })
    .await;
}

async fn sessions_that_are_terminated_under_load() {
    let scene = Arc::new(scene_with(server(), "terminated", server().tcp(), LONG).await);
    let (stop, pairs) = (Arc::default(), Arc::default());
    let tasks = load(&scene, &stop, &pairs);
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'terminated'";
    let mut ended = 0;
    for round in 1..=10 {
        eventually("work goes on", async || {
            pairs.load(Ordering::Relaxed) >= round * 10
        })
        .await;
        ended += scene
            .client
            .query_one(sql, &[])
            .await
            .unwrap()
            .get::<_, i64>(0);
    }
    assert!(ended >= 10);
    let before = pairs.load(Ordering::Relaxed);
    eventually("it recovers", async || {
        pairs.load(Ordering::Relaxed) > before + 20
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    no_lock_is_left(&scene).await;
    scene.until_idle("terminated").await;
}

async fn a_server_that_crashes_and_comes_back() {
    let own = PostgresServer::start_with(&["fsync=on"]);
    let mut scene = Arc::new(scene_with(&own, "crashed", own.tcp(), LONG).await);
    let (stop, pairs) = (Arc::default(), Arc::default());
    let mut tasks = load(&scene, &stop, &pairs);
    for round in 1..=2 {
        eventually("work goes on", async || {
            pairs.load(Ordering::Relaxed) >= round * 30
        })
        .await;
        tokio::task::block_in_place(|| {
            own.stop();
            own.run();
        });
    }
    let before = pairs.load(Ordering::Relaxed);
    // A key whose release the crash has forgotten comes free with its TTL.
    eventually("it recovers", async || {
        pairs.load(Ordering::Relaxed) > before + 20
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    drop(tasks);
    let client = own.client().await;
    Arc::get_mut(&mut scene).unwrap().client = client;
    scene.until_idle("crashed").await;
}

async fn a_full_pool() {
    // The server must not make room before the wait for a session is over.
    let config = PostgresConfig {
        parameters: vec![("statement_timeout".to_owned(), "0".to_owned())],
        ..server().unix()
    };
    let scene = scene(server(), "full", config).await;
    let mut grants = Vec::new();
    // One lock alone does not get all connections.
    for name in ["k", "l", "m", "n"] {
        grants.push(scene.hold(name).await);
    }
    let blocker = scene.lock_rows().await;
    let mut waiting = JoinSet::new();
    for grant in grants {
        let (backend, id) = (Arc::clone(&scene.backend), grant.lock_id);
        waiting.spawn(async move { backend.release(&id).await });
    }
    until_waiting(&scene.client, "full", 4).await;
    let error = in_time(TIMEOUT, scene.backend.is_locked(&key("k")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
    assert!(!error.is_outcome_unknown());
    blocker.batch_execute("COMMIT").await.unwrap();
    waiting.join_all().await;
    scene.until_idle("full").await;
    assert_eq!(sessions(&scene.client, "full").await.0, 4);
}

async fn a_statement_timeout() {
    let config = PostgresConfig {
        parameters: vec![("statement_timeout".to_owned(), "200ms".to_owned())],
        ..server().tcp()
    };
    let scene = scene(server(), "hurried", config).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let error = scene.backend.release(&grant.lock_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("statement_timeout"), "{error}");
    assert!(!error.is_outcome_unknown());
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        scene.release(&grant).await.unwrap(),
        ReleaseOutcome::Released
    );
    // The session has survived.
    assert_eq!(sessions(&scene.client, "hurried").await.0, 1);
}

async fn a_lock_timeout() {
    let config = PostgresConfig {
        options: Some("-c lock_timeout=100ms".to_owned()),
        ..server().tcp()
    };
    let scene = scene(server(), "impatient", config).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let error = scene.backend.release(&grant.lock_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("lock_timeout"), "{error}");
    blocker.batch_execute("COMMIT").await.unwrap();
}

async fn a_row_that_somebody_else_has_locked() {
    let scene = scene(server(), "blocked", server().tcp()).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let error = in_time(TIMEOUT, scene.release(&grant)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    // The row is locked still, and nobody of ours waits for it.
    scene.until_idle("blocked").await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        scene.release(&grant).await.unwrap(),
        ReleaseOutcome::Released
    );
}

async fn an_advisory_lock_that_somebody_else_has() {
    let scene = scene(server(), "queued", server().tcp()).await;
    let blocker = server().client().await;
    let advisory = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('k'))";
    blocker.batch_execute(advisory).await.unwrap();
    let error = in_time(TIMEOUT, scene.try_acquire("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    scene.until_idle("queued").await;
    blocker.batch_execute("COMMIT").await.unwrap();
    no_lock_is_left(&scene).await;
    assert!(matches!(
        scene.try_acquire("k").await.unwrap(),
        AcquireOutcome::Acquired(_)
    ));
}

/// Sends `name` to the processes behind the sessions called `application`.
async fn signal_all(scene: &Scene, application: &str, name: &str) {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
    for row in scene.client.query(sql, &[&application]).await.unwrap() {
        signal(row.get(0), name);
    }
}

async fn a_server_that_does_not_answer() {
    let scene = scene(server(), "frozen", server().tcp()).await;
    let grant = scene.hold("k").await;
    assert!(scene.backend.is_locked(&key("k")).await.unwrap());
    signal_all(&scene, "frozen", "-STOP").await;
    let error = in_time(TIMEOUT, scene.release(&grant)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    // Another session takes over, though the frozen one is still there.
    let outcome = scene.try_acquire("l").await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
    signal_all(&scene, "frozen", "-CONT").await;
    eventually("the frozen session is gone", async || {
        sessions(&scene.client, "frozen").await == (1, 0)
    })
    .await;
}

async fn a_dropped_operation_does_not_keep_its_session() {
    for prepare in [true, false] {
        let config = PostgresConfig {
            prepare,
            ..server().tls()
        };
        let scene = scene(server(), "dropped", config).await;
        let grant = scene.hold("k").await;
        let blocker = scene.lock_rows().await;
        let (backend, id) = (Arc::clone(&scene.backend), grant.lock_id.clone());
        let waiting = tokio::spawn(async move { backend.release(&id).await });
        until_waiting(&scene.client, "dropped", 1).await;
        waiting.abort();
        if prepare {
            scene.until_idle("dropped").await;
            blocker.batch_execute("COMMIT").await.unwrap();
            assert!(scene.backend.is_locked(&key("k")).await.unwrap());
        } else {
            // There may be a pooler, which is not asked to cancel: the statement comes to its own end.
            blocker.batch_execute("COMMIT").await.unwrap();
            scene.until_idle("dropped").await;
            assert!(!scene.backend.is_locked(&key("k")).await.unwrap());
        }
        assert_eq!(sessions(&scene.client, "dropped").await.0, 1);
        scene.backend.close().await;
        eventually("sessions end with the backend", async || {
            sessions(&scene.client, "dropped").await.0 == 0
        })
        .await;
    }
}

async fn a_primary_that_becomes_read_only() {
    let (first, second) = (PostgresServer::start(), PostgresServer::start());
    let mut config = first.unix();
    config.hosts.extend(second.unix().hosts);
    let scene = scene(&first, "switched", config).await;
    let beside = PostgresBackend::new(second.unix(), options(&scene.tables)).unwrap();
    beside.setup_schema().await.unwrap();
    scene.hold("k").await;
    assert!(scene.backend.is_locked(&key("k")).await.unwrap());
    let demote = "ALTER SYSTEM SET default_transaction_read_only = on";
    scene.client.batch_execute(demote).await.unwrap();
    let reload = "SELECT pg_reload_conf()";
    scene.client.batch_execute(reload).await.unwrap();
    eventually("the server is read-only", async || {
        let show = "SHOW default_transaction_read_only";
        let row = scene.client.query_one(show, &[]).await.unwrap();
        row.get::<_, String>(0) == "on"
    })
    .await;
    let error = loop {
        match scene.try_acquire("fresh").await {
            Err(error) => break error,
            Ok(AcquireOutcome::Acquired(grant)) => drop(scene.release(&grant).await),
            Ok(AcquireOutcome::Locked) => panic!("locked"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("read-only"), "{error}");
    let outcome = scene.try_acquire("k").await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
    assert!(beside.is_locked(&key("k")).await.unwrap());
}

/// Acquisitions and extensions wait for the disk even where the role does not, and releases only
/// where they are told to. Seen by whether the log was flushed when the answer came.
async fn a_session_that_does_not_wait_for_the_disk() {
    let own = PostgresServer::start_with(&QUIET);
    let client = own.client().await;
    let lag = async || is_behind(&client).await;
    for (durable_releases, level) in [(false, "on"), (true, "on"), (false, "off"), (true, "off")] {
        let tables = own_tables();
        let config = PostgresConfig {
            parameters: vec![("synchronous_commit".to_owned(), level.to_owned())],
            ..own.unix()
        };
        let options = PostgresOptions {
            durable_releases,
            ..options(&tables)
        };
        let backend = PostgresBackend::new(config, options).unwrap();
        backend.setup_schema().await.unwrap();
        let grant = acquire(&backend, "k").await;
        assert!(!lag().await, "an acquisition did not wait");
        backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
        assert!(!lag().await, "an extension did not wait");
        backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(lag().await, !durable_releases, "release, {level}");
    }
}

/// Whoever asked before gets an answer, and whoever asks after it hears why there is none.
async fn a_backend_that_is_closed_while_it_is_busy() {
    let tables = own_tables();
    let config = PostgresConfig {
        pool_size: 2,
        ..server().unix()
    };
    let backend = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    backend.setup_schema().await.unwrap();
    let mut grants = Vec::new();
    for number in 0..100 {
        grants.push(acquire(&*backend, &format!("k{number}")).await);
    }
    let mut releases = Vec::new();
    for grant in &grants {
        let mut release = backend.release(&grant.lock_id);
        // Asked for: it has come as far as it gets at once.
        let begun = poll_fn(|context| Poll::Ready(release.as_mut().poll(context).is_pending()));
        assert!(begun.await);
        releases.push(release);
    }
    let closing = backend.close();
    let answers = async {
        let mut answers = Vec::new();
        for release in releases {
            answers.push(release.await.unwrap());
        }
        answers
    };
    let ((), answers) = tokio::join!(closing, answers);
    for answer in answers {
        assert_eq!(answer, ReleaseOutcome::Released);
    }
    let error = backend.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.message(), "the backend is closed");
    backend.close().await;
}

/// Closing takes no longer than one operation may, whatever is under way.
async fn a_backend_that_is_closed_while_it_is_stuck() {
    let config = PostgresConfig {
        parameters: vec![("statement_timeout".to_owned(), "0".to_owned())],
        ..server().unix()
    };
    let scene = scene(server(), "stuck", config).await;
    let grant = scene.hold("k").await;
    let blocker = scene.lock_rows().await;
    let (backend, id) = (Arc::clone(&scene.backend), grant.lock_id.clone());
    let stuck = tokio::spawn(async move { backend.release(&id).await });
    until_waiting(&scene.client, "stuck", 1).await;
    in_time(TIMEOUT, scene.backend.close()).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    let _ = stuck.await.unwrap();
}
