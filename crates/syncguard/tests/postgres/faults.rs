//! What goes wrong: it is said in the right words, in time, and leaves nothing behind.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures::future::maybe_done;
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{AcquireOutcome, Backend, ErrorKind, LockOptions, ReleaseOutcome, Ttl, lock};

use crate::load::{LONG, Scene, TIMEOUT, in_time, load, no_lock_is_left, scene, scene_with};
use crate::mediator::{Forwarding, Mediator};
use crate::stage::{
    QUIET, backend, is_behind, options, own_tables, server, sessions, signal, until_waiting,
};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, request};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    sessions_that_are_terminated_under_load,
    a_session_that_is_ended_in_words_of_its_own_is_no_defect,
    a_server_that_crashes_and_comes_back,
    a_server_that_does_not_answer,
    a_dropped_operation_does_not_keep_its_session,
    a_primary_that_becomes_read_only,
    a_session_that_does_not_wait_for_the_disk,
    a_backend_that_is_closed_while_it_is_busy,
    a_backend_that_is_closed_while_it_is_stuck,
    a_session_that_ends_while_the_runtime_is_busy_is_not_used,
];

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

/// As Supabase's pooler ends sessions of statements.
async fn a_session_that_is_ended_in_words_of_its_own_is_no_defect() {
    const ENDED: &str = "SFATAL\0VFATAL\0CXX000\0Mthe database has moved\0\0";
    const UNCLEAR: &str = "SFATAL\0CXX000\0Mthe database has moved\0\0";
    let (_beside, tables) = backend(server().unix()).await;
    let mediator = Mediator::start(server().port()).await;
    let ours = PostgresBackend::new(mediator.config(server().tcp()), options(&tables)).unwrap();
    let ours: Arc<dyn Backend> = Arc::new(ours);
    for (fields, kind) in [
        (ENDED, ErrorKind::ServiceUnavailable),
        (UNCLEAR, ErrorKind::Internal),
    ] {
        assert!(!ours.is_locked(&key("k")).await.unwrap());
        mediator.meet(Forwarding::End(fields));
        let error = ours.acquire(&request("k")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.is_outcome_unknown());
        let said = "(SQLSTATE XX000: the database has moved)";
        assert!(error.message().ends_with(said), "{error}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("the database has moved"));
    }
    // Whoever waits for a lock goes on.
    assert!(!ours.is_locked(&key("k")).await.unwrap());
    mediator.meet(Forwarding::End(ENDED));
    let guard = lock(&ours, &key("k"), &LockOptions::default()).await;
    assert!(guard.unwrap().release().await.unwrap());
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
    let error = in_time(TIMEOUT, scene.extend(&grant)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    // Another session takes over, though the frozen one is still there.
    let outcome = scene.try_acquire("l").await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
    let released = scene.release(&grant).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
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
            Ok(AcquireOutcome::Acquired(grant)) => drop(scene.release(&grant[0]).await),
            Ok(_) => panic!("locked"),
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
        let mut release = Box::pin(maybe_done(backend.release(&grant.lock_id)));
        // Asked for: it comes as far as it gets at once, which may be to its end.
        poll_fn(|context| Poll::Ready(release.as_mut().poll(context).is_ready())).await;
        releases.push(release);
    }
    let closing = backend.close();
    let answers = async {
        let mut answers = Vec::new();
        for mut release in releases {
            release.as_mut().await;
            answers.push(release.as_mut().take_output().unwrap().unwrap());
        }
        answers
    };
    let ((), answers) = tokio::join!(closing, answers);
    for answer in answers {
        assert_eq!(answer, ReleaseOutcome::Released);
    }
    let error = backend.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
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

/// Whatever reads the session has had no turn when the next operation begins.
async fn a_session_that_ends_while_the_runtime_is_busy_is_not_used() {
    let (_ours, tables) = crate::stage::backend(server().tcp()).await;
    let client = server().client().await;
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'ended'";
    // Ends the session, and waits until it is gone.
    let end = async move || {
        let ended = client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
        eventually("it is gone", async || {
            client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        ended
    };
    let around = tokio::runtime::Handle::current();
    let busy = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let config = PostgresConfig {
                application_name: Some("ended".to_owned()),
                ..server().tcp()
            };
            let backend = PostgresBackend::new(config, options(&tables)).unwrap();
            for _ in 0..3 {
                backend.is_locked(&key("k")).await.unwrap();
                let ended = std::thread::scope(|scope| {
                    let ends = scope.spawn(|| around.block_on(end()));
                    ends.join().unwrap()
                });
                assert_eq!(ended, 1);
                backend.is_locked(&key("k")).await.unwrap();
            }
        });
    });
    busy.await.unwrap();
}
