//! Networks that forget connections without a word, and servers that never come to an end.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresConfig, TcpSettings};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, ErrorKind, LockOptions, Operation, ReleaseOutcome,
    Ttl, lock,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::mediator::{Forwarding, Mediator};
use crate::stage::{backend, options, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key};
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    idle_sessions_that_are_lost_cost_one_operation,
    idle_sessions_that_are_lost_behind_a_pooler_cost_one_operation,
    a_lock_is_taken_though_all_sessions_are_lost,
    sessions_that_were_idle_for_long_answer_before_they_are_used,
    many_operations_on_sessions_that_are_lost_end_early,
    a_statement_that_waits_is_not_taken_for_lost,
    a_statement_that_ends_while_the_server_is_asked_is_not_lost,
    a_reply_without_an_end_is_cut_off,
];

const SESSIONS: usize = 10;
const CALL: CallOptions = CallOptions::DEFAULT;

/// As many sessions as the pool takes, all opened and at rest.
async fn warm(mediator: &Mediator, config: PostgresConfig) -> Arc<dyn Backend> {
    let config = PostgresConfig {
        pool_size: SESSIONS,
        ..mediator.config(config)
    };
    let (beside, tables) = backend(server().unix()).await;
    let ours = PostgresBackend::new(config, options(&tables)).unwrap();
    let ours: Arc<dyn Backend> = Arc::new(ours);
    // A session is in use when the next is asked for.
    let blocker = server().client().await;
    let begin = format!(
        "BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
        tables.locks()
    );
    blocker.batch_execute(&begin).await.unwrap();
    let (mut tasks, all_asked) = (JoinSet::new(), Arc::new(Barrier::new(SESSIONS + 1)));
    for _ in 0..SESSIONS {
        let (ours, all_asked) = (Arc::clone(&ours), Arc::clone(&all_asked));
        tasks.spawn(async move {
            all_asked.wait().await;
            ours.is_locked(&key("warm")).await.unwrap()
        });
    }
    all_asked.wait().await;
    crate::support::locks::eventually("all sessions are open", async || {
        mediator.accepted() >= SESSIONS
    })
    .await;
    blocker.batch_execute("COMMIT").await.unwrap();
    tasks.join_all().await;
    drop(beside);
    ours
}

/// Asks for locks one after the other until one is granted.
async fn until_granted(backend: &Arc<dyn Backend>) -> Duration {
    let start = Instant::now();
    for number in 0.. {
        let name = key(&format!("silence {number}"));
        let request = AcquireRequest::new(name, Ttl::DEFAULT).unwrap();
        match operation::run::<AcquireOutcome>(
            backend,
            Operation::Acquire(request),
            CALL,
            pending(),
        )
        .await
        {
            Ok(AcquireOutcome::Acquired(_)) => break,
            Ok(_) => panic!("locked"),
            Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
        }
    }
    start.elapsed()
}

fn connect_timeout() -> Duration {
    PostgresConfig::default().connect_timeout
}

async fn idle_sessions_that_are_lost_cost_one_operation() {
    let mediator = Mediator::start(server().port()).await;
    let ours = warm(&mediator, server().tcp()).await;
    mediator.meet(Forwarding::Silence);
    let time = until_granted(&ours).await;
    assert!(time < connect_timeout(), "{time:?}");
}

async fn idle_sessions_that_are_lost_behind_a_pooler_cost_one_operation() {
    let bouncer = PgBouncer::start(server(), true);
    let mediator = Mediator::start(bouncer.config().hosts[0].port).await;
    let ours = warm(&mediator, bouncer.config()).await;
    mediator.meet(Forwarding::Silence);
    let time = until_granted(&ours).await;
    assert!(time < connect_timeout(), "{time:?}");
}

async fn a_lock_is_taken_though_all_sessions_are_lost() {
    let mediator = Mediator::start(server().port()).await;
    let ours = warm(&mediator, server().tcp()).await;
    mediator.meet(Forwarding::Silence);
    let guard = lock(&ours, &key("lost"), &LockOptions::default()).await;
    assert!(guard.unwrap().release().await.unwrap());
}

async fn sessions_that_were_idle_for_long_answer_before_they_are_used() {
    let mediator = Mediator::start(server().port()).await;
    let idle = Duration::from_secs(1);
    let config = PostgresConfig {
        tcp: TcpSettings {
            keepalive_idle: idle,
            ..TcpSettings::default()
        },
        ..server().tcp()
    };
    let ours = warm(&mediator, config).await;
    mediator.meet(Forwarding::Silence);
    // Nothing happens on them meanwhile, which is the point.
    tokio::time::sleep(idle * 3 / 2).await;
    acquire(ours.as_ref(), "k").await;
}

async fn many_operations_on_sessions_that_are_lost_end_early() {
    let mediator = Mediator::start(server().port()).await;
    let ours = warm(&mediator, server().tcp()).await;
    mediator.meet(Forwarding::Silence);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..SESSIONS {
        let ours = Arc::clone(&ours);
        tasks.spawn(async move { ours.is_locked(&key("k")).await });
    }
    for answer in tasks.join_all().await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
        assert!(error.message().contains("silent"), "{error}");
    }
    assert!(start.elapsed() < connect_timeout());
    acquire(ours.as_ref(), "k").await;
}

async fn a_statement_that_waits_is_not_taken_for_lost() {
    let name = "patient";
    let (ours, tables) = backend(PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().tcp()
    })
    .await;
    let ours = Arc::new(ours);
    let grant = acquire(&*ours, "k").await;
    let blocker = server().client().await;
    let begin = format!("BEGIN; SELECT FROM {} FOR UPDATE", tables.locks());
    blocker.batch_execute(&begin).await.unwrap();
    let (busy, id) = (Arc::clone(&ours), grant.lock_id.clone());
    let waiting = tokio::spawn(async move { busy.release(&id).await });
    let client = server().client().await;
    until_waiting(&client, name, 1).await;
    // The server is asked about it more than once: by the session that is there for that.
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE application_name = $1 AND query LIKE '%pg_stat_activity%' \
               AND query_start - backend_start > interval '500 milliseconds'";
    crate::support::locks::eventually("the server was asked twice", async || {
        client
            .query_one(sql, &[&name])
            .await
            .unwrap()
            .get::<_, i64>(0)
            == 1
    })
    .await;
    blocker.batch_execute("COMMIT").await.unwrap();
    let outcome = waiting.await.unwrap().unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released);
}

/// The server says that it works on nothing any more, and the answer is on its way.
async fn a_statement_that_ends_while_the_server_is_asked_is_not_lost() {
    let mediator = Mediator::start(server().port()).await;
    let ours = warm(&mediator, server().tcp()).await;
    mediator.meet(Forwarding::Late);
    acquire(ours.as_ref(), "late").await;
}

async fn a_reply_without_an_end_is_cut_off() {
    let mediator = Mediator::start(server().port()).await;
    let ours = warm(&mediator, server().tcp()).await;
    mediator.meet(Forwarding::Flood);
    let error = ours.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error:?}");
    assert!(error.message().contains("does not end"), "{error}");
    // What the buffers of both sockets hold is on the way already.
    assert!(mediator.flooded() < 32 * 1024 * 1024);
}
