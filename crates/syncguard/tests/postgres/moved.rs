//! Connections that are lost and made again: another server may be there, or the same one without what it had.

use std::sync::Arc;
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{AutoExtend, Backend, LockGuard, LockOptions, lock};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::mediator::{Forwarding, Mediator};
use crate::scene::named;
use crate::stage::{options, own_tables, sessions, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::clients::deadpool;
use crate::support::locks::{acquire, eventually, key, ttl};
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;

tests![
    an_empty_server_behind_the_address_is_asked_after_all_that_is_held,
    an_empty_server_that_takes_over_without_a_word_is_asked_after_all_that_is_held,
    an_empty_server_is_asked_after_what_is_held_over_a_pool_that_has_lost_a_session,
    sessions_that_are_lost_together_lead_to_one_question,
    sessions_that_were_idle_lead_to_none,
    sessions_that_were_idle_at_a_pooler_lead_to_none,
    statements_that_a_session_does_not_take_any_more_run_on_another,
];

/// Heartbeats after a hundred seconds, and a second later.
const NEAR: i64 = 300_000;
const FAR: i64 = 303_000;

/// A server that writes down each statement with its parameters, and the tables there.
async fn server_with(tables: &Tables) -> PostgresServer {
    let server = PostgresServer::start_with(&["fsync=off", "log_statement=all"]);
    let beside = PostgresBackend::new(server.unix(), options(tables)).unwrap();
    beside.setup_schema().await.unwrap();
    server
}

/// Somebody who holds locks.
struct Holder {
    backend: Arc<dyn Backend>,
    guards: Vec<LockGuard>,
}

impl Holder {
    fn new(config: PostgresConfig, tables: &Tables) -> Self {
        Self {
            backend: Arc::new(PostgresBackend::new(config, options(tables)).unwrap()),
            guards: Vec::new(),
        }
    }

    async fn hold(&mut self, count: usize, ttl_ms: i64, auto_extend: Option<AutoExtend>) {
        let options = LockOptions {
            ttl: ttl(ttl_ms),
            auto_extend,
            ..LockOptions::default()
        };
        for _ in 0..count {
            let name = key(&format!("held {}", self.guards.len()));
            let guard = lock(&self.backend, &name, &options).await.unwrap();
            self.guards.push(guard);
        }
    }

    /// Calls for another reason, until the server answers.
    async fn until_it_works(&self) {
        eventually("the server answers", async || {
            self.backend.is_locked(&key("other")).await.is_ok()
        })
        .await;
    }

    /// Which of the locks the server has been asked after by extensions and looks, and how often, in the order of the first times.
    fn asked(&self, log: &str) -> Vec<(usize, usize)> {
        let mut asked: Vec<(usize, usize)> = Vec::new();
        let extends_or_looks = |text: &&str| {
            text.contains("bool_and(is_live") || text.contains("lock.key IS NOT NULL OR")
        };
        for statement in log.split("LOG:  execute ").filter(extends_or_looks) {
            for (index, guard) in self.guards.iter().enumerate() {
                if statement.contains(guard.lock_id().as_str()) {
                    match asked.iter_mut().find(|(known, _)| *known == index) {
                        Some((_, times)) => *times += 1,
                        None => asked.push((index, 1)),
                    }
                }
            }
        }
        asked
    }

    async fn until_all_are_told(&self) {
        for guard in &self.guards {
            let lost = timeout(Duration::from_secs(60), guard.lost()).await;
            let lost = lost.expect("long before the next heartbeat");
            let words = "the store no longer has it";
            assert!(lost.message().contains(words), "{lost}");
        }
    }

    async fn until_all_are_asked_after(&self, server: &PostgresServer) {
        eventually("all are asked after", async || {
            self.asked(&server.log()).len() == self.guards.len()
        })
        .await;
    }

    /// Each of the locks was asked after once, and all are held.
    async fn was_asked_once(&self, server: &PostgresServer) {
        self.until_all_are_asked_after(server).await;
        let asked = self.asked(&server.log());
        assert!(asked.iter().all(|(_, times)| *times == 1), "{asked:?}");
        for guard in &self.guards {
            guard.assert_held().unwrap();
        }
    }
}

/// Locks that end soon and later, and some that do not extend themselves, on the first server; then `replaced` puts the second one
/// in its place. All holders are told by its answers, and those that end first were asked after first.
async fn all_are_told(replaced: impl FnOnce(&PostgresServer, &Mediator, u16)) {
    let tables = own_tables();
    let (first, second) = (server_with(&tables).await, server_with(&tables).await);
    let mediator = Mediator::start(first.port()).await;
    let mut holder = Holder::new(mediator.config(first.tcp()), &tables);
    let (far, near) = (40, 80);
    holder.hold(far, FAR, Some(AutoExtend::default())).await;
    holder.hold(near, NEAR, Some(AutoExtend::default())).await;
    holder.hold(10, FAR, None).await;
    replaced(&first, &mediator, second.port());
    holder.until_it_works().await;
    holder.until_all_are_told().await;
    let asked = holder.asked(&second.log());
    // Those that are gone are not asked after one by one, once more.
    assert!(asked.iter().all(|(_, times)| *times == 1), "{asked:?}");
    let extended = asked.iter().map(|(lock, _)| *lock);
    let mut extended = extended.filter(|lock| *lock < far + near);
    // 64 are under way at a time.
    assert!(extended.by_ref().take(16).all(|lock| lock >= far));
    assert_eq!(extended.count(), far + near - 16);
}

async fn an_empty_server_behind_the_address_is_asked_after_all_that_is_held() {
    all_are_told(|first, mediator, second| {
        mediator.lead_to(second);
        first.stop();
    })
    .await;
}

async fn an_empty_server_that_takes_over_without_a_word_is_asked_after_all_that_is_held() {
    all_are_told(|_, mediator, second| {
        mediator.lead_to(second);
        mediator.meet(Forwarding::Silence);
    })
    .await;
}

async fn an_empty_server_is_asked_after_what_is_held_over_a_pool_that_has_lost_a_session() {
    let tables = own_tables();
    let (first, second) = (server_with(&tables).await, server_with(&tables).await);
    let mediator = Mediator::start(first.port()).await;
    let pool = deadpool(&mediator.config(first.tcp()), 1, "");
    let backend = syncguard_clients::deadpool_postgres::backend(&pool, options(&tables));
    let mut holder = Holder {
        backend: Arc::new(backend),
        guards: Vec::new(),
    };
    holder.hold(1, NEAR, Some(AutoExtend::default())).await;
    holder.hold(1, NEAR, None).await;
    mediator.lead_to(second.port());
    mediator.meet(Forwarding::Deny);
    // The pool itself shows nothing: a call of ours has to lose its session.
    let lost = holder.backend.is_locked(&key("other")).await.unwrap_err();
    assert!(lost.is_outcome_unknown(), "{lost:?}");
    holder.until_it_works().await;
    holder.until_all_are_told().await;
}

async fn sessions_that_are_lost_together_lead_to_one_question() {
    let (name, tables) = ("together", own_tables());
    let server = server_with(&tables).await;
    let config = named(name, server.tcp());
    let count = config.pool_size;
    let mut holder = Holder::new(config, &tables);
    holder.hold(100, NEAR, Some(AutoExtend::default())).await;
    holder.hold(10, NEAR, None).await;
    let call_all = || {
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let backend = Arc::clone(&holder.backend);
            calls.spawn(async move { backend.is_locked(&key("other")).await });
        }
        calls
    };
    let blocker = server.client().await;
    let begin = format!("BEGIN; LOCK TABLE {}", tables.locks());
    blocker.batch_execute(&begin).await.unwrap();
    let calls = call_all();
    let sessions = i64::try_from(count).unwrap();
    until_waiting(&server.client().await, name, sessions).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    calls.join_all().await;
    server.stop();
    server.run();
    eventually("all calls are answered", async || {
        call_all().join_all().await.iter().all(Result::is_ok)
    })
    .await;
    holder.was_asked_once(&server).await;
}

async fn sessions_that_were_idle_lead_to_none() {
    let (name, tables) = ("idle at the server", own_tables());
    let server = server_with(&tables).await;
    let mut config = named(name, server.tcp());
    let limit = ("idle_session_timeout".to_owned(), "100".to_owned());
    config.parameters.push(limit);
    let mut holder = Holder::new(config, &tables);
    holder.hold(10, NEAR, Some(AutoExtend::default())).await;
    holder.hold(10, NEAR, None).await;
    let client = server.client().await;
    for _ in 0..3 {
        eventually("the session is ended", async || {
            sessions(&client, name).await.0 == 0
        })
        .await;
        assert!(!holder.backend.is_locked(&key("other")).await.unwrap());
    }
    assert_eq!(holder.asked(&server.log()), []);
    eventually("a session is lost", async || {
        holder.until_it_works().await;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE application_name = $1";
        let ended = client.query_one(sql, &[&name]).await.unwrap();
        ended.get::<_, i64>(0) > 0
    })
    .await;
    holder.until_it_works().await;
    holder.was_asked_once(&server).await;
}

async fn sessions_that_were_idle_at_a_pooler_lead_to_none() {
    let tables = own_tables();
    let server = server_with(&tables).await;
    let bouncer = PgBouncer::start_with(&server, true, "client_idle_timeout = 1");
    let mut holder = Holder::new(bouncer.config(), &tables);
    holder.hold(10, NEAR, Some(AutoExtend::default())).await;
    eventually("the session is ended", async || {
        bouncer.log().contains("client_idle_timeout")
    })
    .await;
    holder.until_it_works().await;
    assert_eq!(holder.asked(&server.log()), []);
    bouncer.stop();
    bouncer.run();
    holder.until_it_works().await;
    holder.was_asked_once(&server).await;
}

/// The server or the pooler has ended an idle session, and hears of a statement only then.
async fn statements_that_a_session_does_not_take_any_more_run_on_another() {
    let tables = own_tables();
    let server = server_with(&tables).await;
    let mediator = Mediator::start(server.port()).await;
    let mut holder = Holder::new(mediator.config(server.tcp()), &tables);
    holder.hold(10, NEAR, Some(AutoExtend::default())).await;
    holder.hold(10, NEAR, None).await;
    for (number, fields) in [
        "SFATAL\0VFATAL\0C57P05\0Mterminating connection due to idle-session timeout\0\0",
        "SFATAL\0C08P01\0Mclient_idle_timeout\0\0",
    ]
    .iter()
    .enumerate()
    {
        let before = mediator.accepted();
        mediator.meet(Forwarding::End(fields));
        let grant = acquire(holder.backend.as_ref(), &format!("after {number}")).await;
        assert_eq!(mediator.accepted(), before + 1);
        holder.backend.release(&grant.lock_id).await.unwrap();
    }
    assert_eq!(holder.asked(&server.log()), []);
}
