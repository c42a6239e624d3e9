//! Redis Cluster's fixtures: one of the installed version, and one of the oldest that is supported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::redis::{ClientPrefix, Names, RedisBackend, RedisConfig, acquire, key_slot};
use syncguard::{Absence, Backend, Key};

use crate::fixture::{Fixture, LONG, OPERATION_TIMEOUT, Setup, Store, prepared};
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::Version;
use crate::support::resp::{Answer, Resp};

/// A cluster, started once.
pub(crate) struct InCluster {
    name: &'static str,
    version: Version,
    cluster: Mutex<Option<RedisCluster>>,
}

impl InCluster {
    pub(crate) fn of(name: &'static str, version: Version) -> Self {
        Self {
            name,
            version,
            cluster: Mutex::default(),
        }
    }
}

#[async_trait]
impl Store for InCluster {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let mut cluster = self.cluster.lock().unwrap();
        let cluster =
            cluster.get_or_insert_with(|| RedisCluster::start_with(self.version, None, &[]));
        let mut config = RedisConfig::from_url(&cluster.url()).unwrap();
        config.locks.cleanup_in_is_locked = setup.cleanup_in_is_locked;
        config.locks.operation_timeout = OPERATION_TIMEOUT;
        let make = || Arc::new(RedisBackend::new(config.clone()).unwrap());
        Box::new(Redis {
            backend: make(),
            peer: make(),
            primaries: Mutex::new(
                cluster
                    .nodes
                    .iter()
                    .take(3)
                    .map(|node| node.connect())
                    .collect(),
            ),
        })
    }

    fn stop(&self) {
        self.cluster.lock().unwrap().take();
    }
}

struct Redis {
    backend: Arc<RedisBackend>,
    peer: Arc<RedisBackend>,
    primaries: Mutex<Vec<Resp>>,
}

impl Redis {
    /// The names of the lock, the index entry and the fence counter of `key`.
    fn names(&self, key: &Key) -> Vec<String> {
        let names = Names::in_cluster("syncguard", ClientPrefix::None).unwrap();
        let request = prepared(self.backend.as_ref(), key, LONG);
        let plan = acquire::plan(&names, &request).unwrap();
        plan.keys().map(str::to_owned).collect()
    }

    /// Sends a command about a key to the node that has it.
    fn call(&self, command: &str, key: &str, words: &[&str]) -> Answer {
        let owner = RedisCluster::first_owner(key_slot(key));
        let words: Vec<&str> = [command, key].iter().chain(words).copied().collect();
        self.primaries.lock().unwrap()[owner].call(&words)
    }
}

#[async_trait]
impl Fixture for Redis {
    fn is_spread(&self) -> bool {
        true
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as Arc<dyn Backend>
    }

    fn peer(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.peer) as Arc<dyn Backend>
    }

    async fn pass(&self, time: Duration) {
        // The server's clock cannot be set.
        tokio::time::sleep(time).await;
    }

    async fn set_fence_counter(&self, key: &Key, counter: i64) {
        let reply = self.call("SET", &self.names(key)[2], &[&counter.to_string()]);
        assert_eq!(reply.text(), "OK");
    }

    async fn has_record(&self, key: &Key) -> bool {
        self.call("EXISTS", &self.names(key)[0], &[]) == Answer::Int(1)
    }

    fn absence_of_expired(&self) -> Absence {
        // The server removes the lock as soon as it no longer counts as held.
        Absence::NotFound
    }
}
