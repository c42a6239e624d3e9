//! One who holds locks and one who waits for them.

use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{Backend, Grant, Key, LockGuard, Watch};
use tokio::task::JoinHandle;

use crate::stage::{backend, options, server};
use crate::support::locks::{acquire, eventually, key};
use crate::support::waiters;

/// Two backends on the same tables, which share nothing on this side. The sessions of the one that waits are
/// called as the test.
pub(crate) struct Scene {
    pub(crate) holder: Arc<dyn Backend>,
    pub(crate) waiter: Arc<dyn Backend>,
    pub(crate) tables: Tables,
    pub(crate) name: &'static str,
    pub(crate) client: tokio_postgres::Client,
}

impl Scene {
    pub(crate) async fn new(name: &'static str) -> Self {
        Self::with(name, named(name, server().unix())).await
    }

    /// In the database `name`, which no other test uses. Two locks of one database may share a mark: then a
    /// release tells also if nobody waits for its lock.
    pub(crate) async fn alone(name: &'static str) -> Self {
        let create = format!("CREATE DATABASE \"{name}\"");
        server()
            .client()
            .await
            .batch_execute(&create)
            .await
            .unwrap();
        let there = PostgresConfig {
            database: Some(name.to_owned()),
            ..server().unix()
        };
        Self::between(name, there.clone(), named(name, there)).await
    }

    pub(crate) async fn with(name: &'static str, config: PostgresConfig) -> Self {
        Self::between(name, server().unix(), config).await
    }

    async fn between(name: &'static str, holder: PostgresConfig, waiter: PostgresConfig) -> Self {
        let client = server()
            .client_of(holder.database.as_deref().unwrap())
            .await;
        let (holder, tables) = backend(holder).await;
        let waiter = PostgresBackend::new(waiter, options(&tables)).unwrap();
        Self {
            holder: Arc::new(holder),
            waiter: Arc::new(waiter),
            tables,
            name,
            client,
        }
    }

    /// A key that no other test uses: acquisitions of the same key in other tables wait for each other.
    pub(crate) fn key(&self, name: &str) -> Key {
        key(&format!("{} {name}", self.name))
    }

    pub(crate) async fn acquire(&self, name: &str) -> Grant {
        acquire(self.holder.as_ref(), self.key(name).as_str()).await
    }

    /// One who hears of the lock from now on.
    pub(crate) async fn watch(&self, name: &str) -> Watch {
        waiters::watch(&self.waiter, self.key(name).as_str()).await
    }

    /// One who waits for the lock.
    pub(crate) fn wait(&self, name: &str) -> JoinHandle<LockGuard> {
        waiters::wait_for(&self.waiter, self.key(name).as_str())
    }

    /// How many marks the sessions of the waiter have at the server.
    pub(crate) async fn marks(&self) -> i64 {
        let sql = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                   WHERE locktype = 'advisory' AND classid = 1937337955 AND granted \
                   AND mode = 'ShareLock' AND application_name = $1";
        let row = self.client.query_one(sql, &[&self.name]).await.unwrap();
        row.get(0)
    }

    pub(crate) async fn until_marked(&self) {
        eventually("somebody listens", async || self.marks().await > 0).await;
    }

    /// The server processes of the sessions that listen.
    pub(crate) async fn listeners(&self) -> Vec<i32> {
        let sql = "SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid) \
                   WHERE classid = 1937337955 AND mode = 'ShareLock' AND application_name = $1";
        let rows = self.client.query(sql, &[&self.name]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

pub(crate) fn named(name: &str, config: PostgresConfig) -> PostgresConfig {
    PostgresConfig {
        application_name: Some(name.to_owned()),
        ..config
    }
}
