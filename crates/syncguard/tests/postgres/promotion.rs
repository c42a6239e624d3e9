//! A standby is promoted while its primary stays up, and goes on accepting writes.

use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, PostgresConfig, SessionAttrs, Tables};
use syncguard::{AutoExtend, Backend, ErrorKind, LockGuard, LockOptions, lock};

use crate::stage::{backend, options};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key, try_acquire, ttl};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;
use crate::support::waiters;

tests![
    a_lock_that_the_new_primary_has_stays_held_there,
    a_lock_that_the_new_primary_lacks_is_lost,
    who_knows_of_a_promotion_asks_after_all_that_is_held,
    everybody_goes_to_the_new_primary,
    a_former_primary_is_not_used_while_the_new_one_is_away,
    a_waiter_hears_of_releases_on_the_new_primary,
    servers_of_different_clusters_are_not_compared,
];

/// A primary and its standby.
struct Pair {
    old: PostgresServer,
    new: PostgresServer,
    tables: Tables,
}

impl Pair {
    async fn start() -> Self {
        let old = PostgresServer::start();
        let (_, tables) = backend(old.unix()).await;
        let new = old.start_standby();
        Self { old, new, tables }
    }

    /// A process that is told of both servers, the old one first.
    fn config(&self) -> PostgresConfig {
        let mut config = self.old.unix();
        config.hosts.extend(self.new.unix().hosts);
        PostgresConfig {
            session_attrs: SessionAttrs::ReadWrite,
            ..config
        }
    }

    fn process(&self) -> Arc<PostgresBackend> {
        let backend = PostgresBackend::new(self.config(), options(&self.tables));
        Arc::new(backend.unwrap())
    }

    /// Waits until the standby has all that was written so far.
    async fn replicate(&self) {
        let (old, new) = (self.old.client().await, self.new.client().await);
        let sql = "SELECT pg_current_wal_insert_lsn()::text";
        let lsn: String = old.query_one(sql, &[]).await.unwrap().get(0);
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn");
        eventually("the standby follows", async || {
            new.query_one(&sql, &[]).await.unwrap().get(0)
        })
        .await;
    }

    /// From now on, the standby hears of nothing.
    async fn cut_off(&self) {
        self.replicate().await;
        let new = self.new.client().await;
        for sql in [
            "ALTER SYSTEM SET primary_conninfo = ''",
            "SELECT pg_reload_conf()",
        ] {
            new.batch_execute(sql).await.unwrap();
        }
        eventually("the standby is cut off", async || {
            let sql = "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)";
            new.query_one(sql, &[]).await.unwrap().get(0)
        })
        .await;
    }

    async fn promote(&self) {
        let new = self.new.client().await;
        let promoted = new.query_one("SELECT pg_promote()", &[]).await.unwrap();
        assert!(promoted.get::<_, bool>(0));
    }

    /// Whether the server has a lock on the key that has not expired.
    async fn has(&self, server: &PostgresServer, name: &str) -> bool {
        let sql = format!(
            "SELECT EXISTS (SELECT FROM {} WHERE user_key = $1
               AND expires_at_ms > extract(epoch FROM clock_timestamp()) * 1000)",
            self.tables.locks()
        );
        let client = server.client().await;
        client.query_one(&sql, &[&name]).await.unwrap().get(0)
    }
}

async fn hold(backend: &Arc<PostgresBackend>, name: &str) -> LockGuard {
    hold_for(backend, name, 3000, Some(AutoExtend::default())).await
}

async fn hold_for(
    backend: &Arc<PostgresBackend>,
    name: &str,
    ttl_ms: i64,
    auto_extend: Option<AutoExtend>,
) -> LockGuard {
    let options = LockOptions {
        ttl: ttl(ttl_ms),
        auto_extend,
        ..LockOptions::default()
    };
    let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
    lock(&backend, &key(name), &options).await.unwrap()
}

async fn a_lock_that_the_new_primary_has_stays_held_there() {
    let pair = Pair::start().await;
    let (holder, other) = (pair.process(), pair.process());
    let guard = hold(&holder, "k").await;
    pair.replicate().await;
    pair.promote().await;
    // It moves while the new primary knows it. So nobody else ever gets it.
    eventually("the old one has it no more", async || {
        let answer = try_acquire(&*other, "k").await;
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.is_locked()));
        !pair.has(&pair.old, "k").await
    })
    .await;
    assert!(pair.has(&pair.new, "k").await);
    assert!(guard.release().await.unwrap());
    assert!(!pair.has(&pair.new, "k").await);
}

async fn a_lock_that_the_new_primary_lacks_is_lost() {
    let pair = Pair::start().await;
    pair.cut_off().await;
    let holder = pair.process();
    let guard = hold(&holder, "k").await;
    pair.promote().await;
    acquire(&*pair.process(), "k").await;
    let told = tokio::time::timeout(std::time::Duration::from_secs(30), guard.lost()).await;
    let error = told.expect("the holder is never told");
    assert_eq!(error.kind(), ErrorKind::LockLost);
}

async fn who_knows_of_a_promotion_asks_after_all_that_is_held() {
    let pair = Pair::start().await;
    let holder = pair.process();
    // A heartbeat in a hundred seconds.
    let replicated = hold_for(&holder, "kept", 300_000, Some(AutoExtend::default())).await;
    pair.cut_off().await;
    let mut guards = Vec::new();
    for (name, auto_extend) in [("a", Some(AutoExtend::default())), ("b", None)] {
        guards.push(hold_for(&holder, name, 300_000, auto_extend).await);
    }
    pair.promote().await;
    eventually("all are told", async || {
        // For another reason.
        let _ = holder.is_locked(&key("other")).await;
        guards.iter().all(|guard| guard.assert_held().is_err())
    })
    .await;
    for guard in guards {
        let lost = guard.lost().await;
        let words = "the store no longer has it";
        assert!(lost.message().contains(words), "{lost}");
    }
    assert!(replicated.release().await.unwrap());
}

/// A process that has begun before, one that begins afterwards, and one that reads.
async fn everybody_goes_to_the_new_primary() {
    let pair = Pair::start().await;
    let before = pair.process();
    acquire(&*before, "at the old one").await;
    pair.promote().await;
    acquire(&*pair.process(), "by a new process").await;
    assert!(pair.has(&pair.new, "by a new process").await);
    // What it takes in the first second may still be at the old one, and never after that.
    let mut number = 0;
    eventually("the other has noticed", async || {
        number += 1;
        let name = format!("later {number}");
        let taken = try_acquire(&*before, &name).await;
        taken.is_ok() && pair.has(&pair.new, &name).await
    })
    .await;
    acquire(&*before, "last").await;
    assert!(pair.has(&pair.new, "last").await && !pair.has(&pair.old, "last").await);
}

async fn a_former_primary_is_not_used_while_the_new_one_is_away() {
    let pair = Pair::start().await;
    let process = pair.process();
    pair.promote().await;
    acquire(&*process, "k").await;
    assert!(pair.has(&pair.new, "k").await);
    pair.new.stop();
    eventually("it is told why", async || {
        let error = try_acquire(&*process, "l").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error}");
        error.message().contains("former primary") && error.message().contains("another host")
    })
    .await;
    assert!(!pair.has(&pair.old, "l").await);
    pair.new.run();
    eventually("it is back", async || {
        try_acquire(&*process, "l").await.is_ok()
    })
    .await;
}

async fn a_waiter_hears_of_releases_on_the_new_primary() {
    let pair = Pair::start().await;
    let (holder, waiter) = (pair.process(), pair.process());
    let guard = hold(&holder, "k").await;
    let backend: Arc<dyn Backend> = Arc::clone(&waiter) as _;
    let watch = waiters::watch(&backend, "k").await;
    pair.replicate().await;
    pair.promote().await;
    eventually("all have moved", async || {
        let _ = waiter.is_locked(&key("k")).await;
        let sql = "SELECT count(*) FROM pg_locks WHERE classid = 1937337955 AND mode = 'ShareLock'";
        let new = pair.new.client().await;
        new.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    assert!(guard.release().await.unwrap());
    let freed = tokio::time::timeout(std::time::Duration::from_secs(20), watch.freed()).await;
    freed.expect("the waiter hears of nothing");
}

/// Two servers that have nothing to do with each other, of which one has been promoted before.
async fn servers_of_different_clusters_are_not_compared() {
    let pair = Pair::start().await;
    pair.promote().await;
    let alone = PostgresServer::start();
    let mut config = alone.unix();
    config.hosts.extend(pair.new.unix().hosts);
    let tables = Tables::default();
    let process = PostgresBackend::new(config, options(&tables)).unwrap();
    process.setup_schema().await.unwrap();
    acquire(&process, "k").await;
    let sql = "SELECT count(*) FROM syncguard_locks";
    let count = alone.client().await.query_one(sql, &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 1);
}
