//! Redis' fixtures: a plain server, one of the oldest version that is supported, one with TLS and users,
//! and one that a Sentinel knows; a plain one over connections on an event loop, and one through clients of an
//! application.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::redis::{RedisBackend, RedisConfig, RedisConnection, RedisTls};
use syncguard::{Absence, Backend, Key, KeySpace};

use crate::fixture::{Fixture, OPERATION_TIMEOUT, Setup, Store};
use crate::support::certificates::Certificates;
use crate::support::clients;
#[cfg(unix)]
use crate::support::event_loop::OwnLoop;
use crate::support::redis_server::{LOCKS_ONLY, RedisServer, Version};
use crate::support::resp::{Answer, Resp};

#[derive(Default)]
pub(crate) struct Plain(Shared);
#[derive(Default)]
pub(crate) struct Oldest(Shared);
#[derive(Default)]
pub(crate) struct TlsWithAcl(Shared);
#[derive(Default)]
pub(crate) struct BySentinel(Shared);

/// The servers of a store, started once; the first keeps the locks.
type Shared = Mutex<Option<(Vec<RedisServer>, RedisConfig)>>;

#[async_trait]
impl Store for Plain {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        open(&self.0, setup, plain)
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

#[async_trait]
impl Store for Oldest {
    fn name(&self) -> &'static str {
        "redis_6_2"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        open(&self.0, setup, || {
            let server = RedisServer::start_version(Version::Oldest, &[]);
            let config = RedisConfig::from_url(&server.url()).unwrap();
            (vec![server], config)
        })
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

#[async_trait]
impl Store for TlsWithAcl {
    fn name(&self) -> &'static str {
        "redis_tls_acl"
    }

    fn can_list(&self) -> bool {
        false
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        open(&self.0, setup, || {
            let certificates = Certificates::for_server(&["127.0.0.1"]);
            let server = RedisServer::start_with_tls(&certificates, LOCKS_ONLY);
            let url = format!("rediss://locks:secret@127.0.0.1:{}", server.port());
            let mut config = RedisConfig::from_url(&url).unwrap();
            config.tls = Some(RedisTls {
                ca: Some(certificates.ca.into_bytes()),
                cert: Some(certificates.client_cert.into_bytes()),
                key: Some(certificates.client_key.into_bytes()),
                ..RedisTls::default()
            });
            (vec![server], config)
        })
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

#[async_trait]
impl Store for BySentinel {
    fn name(&self) -> &'static str {
        "redis_sentinel"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        open(&self.0, setup, || {
            let server = RedisServer::start();
            let sentinel = RedisServer::start_sentinel(&server, &[]);
            let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
            (vec![server, sentinel], RedisConfig::from_url(&url).unwrap())
        })
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

/// A plain server: what the thread of the test calls goes over a connection on an event loop, and all else over one on
/// tokio.
#[cfg(unix)]
#[derive(Default)]
pub(crate) struct OnEventLoop(Shared);

#[cfg(unix)]
#[async_trait]
impl Store for OnEventLoop {
    fn name(&self) -> &'static str {
        "redis_on_event_loop"
    }

    async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
        let (_, config, raw) = started(&self.0, setup, plain);
        let event_loop = OwnLoop::of_this_thread();
        let make = || {
            let connection = RedisConnection::new(config.clone()).unwrap();
            let connection = connection.on_event_loop(event_loop.clone());
            Arc::new(RedisBackend::on(&connection, &config.locks).unwrap())
        };
        Box::new(Redis {
            backend: make(),
            peer: make(),
            raw,
        })
    }

    fn stop(&self) {
        self.0.lock().unwrap().take();
    }
}

/// A plain server through clients of fred.
#[derive(Default)]
pub(crate) struct ByFred(Shared);
/// The same through pools.
#[derive(Default)]
pub(crate) struct ByFredPool(Shared);
/// A plain server through connections of redis-rs: the peer's is of the other kind.
#[derive(Default)]
pub(crate) struct ByRedisRs(Shared);

/// A store that is reached through clients, which the two expressions make for a port.
macro_rules! by_client {
    ($store:ident, $name:literal, $over:path, $client:path, $peers:path) => {
        #[async_trait]
        impl Store for $store {
            fn name(&self) -> &'static str {
                $name
            }

            async fn open(&self, setup: Setup) -> Box<dyn Fixture> {
                let (port, RedisConfig { locks, .. }, raw) = started(&self.0, setup, plain);
                let (client, peers) = ($client(port).await, $peers(port).await);
                Box::new(Redis {
                    backend: Arc::new($over(&client, &locks).unwrap()),
                    peer: Arc::new($over(&peers, &locks).unwrap()),
                    raw,
                })
            }

            fn stop(&self) {
                self.0.lock().unwrap().take();
            }
        }
    };
}

by_client!(
    ByFred,
    "redis_fred",
    syncguard_clients::fred::backend,
    clients::fred,
    clients::fred
);
by_client!(
    ByFredPool,
    "redis_fred_pool",
    syncguard_clients::fred::backend,
    clients::fred_pool,
    clients::fred_pool
);
by_client!(
    ByRedisRs,
    "redis_rs",
    syncguard_clients::redis_rs::backend,
    clients::manager,
    clients::multiplexed
);

fn plain() -> (Vec<RedisServer>, RedisConfig) {
    let server = RedisServer::start();
    let config = RedisConfig::from_url(&server.url()).unwrap();
    (vec![server], config)
}

fn open(
    shared: &Shared,
    setup: Setup,
    start: impl FnOnce() -> (Vec<RedisServer>, RedisConfig),
) -> Box<dyn Fixture> {
    let (_, config, raw) = started(shared, setup, start);
    let make = || Arc::new(RedisBackend::new(config.clone()).unwrap());
    Box::new(Redis {
        backend: make(),
        peer: make(),
        raw,
    })
}

/// The port of the server that keeps the locks, how to make a backend, and a connection beside it.
fn started(
    shared: &Shared,
    setup: Setup,
    start: impl FnOnce() -> (Vec<RedisServer>, RedisConfig),
) -> (u16, RedisConfig, Mutex<Resp>) {
    let mut shared = shared.lock().unwrap();
    let (servers, config) = shared.get_or_insert_with(start);
    let mut config = config.clone();
    config.locks.cleanup_in_is_locked = setup.cleanup_in_is_locked;
    config.locks.operation_timeout = OPERATION_TIMEOUT;
    let server = servers.first().unwrap();
    (server.port(), config, Mutex::new(server.connect()))
}

struct Redis {
    backend: Arc<RedisBackend>,
    peer: Arc<RedisBackend>,
    raw: Mutex<Resp>,
}

/// The names under which `key` is stored.
fn names(key: &Key) -> (String, String) {
    let space = KeySpace {
        prefix: "syncguard",
        limit_bytes: 1000,
        reserve_bytes: 26,
    };
    let lock_key = space.lock_key(key).unwrap();
    let fence_key = space.fence_key(&lock_key).unwrap();
    (lock_key, fence_key)
}

#[async_trait]
impl Fixture for Redis {
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
        let counter = counter.to_string();
        let reply = self
            .raw
            .lock()
            .unwrap()
            .call(&["SET", &names(key).1, &counter]);
        assert_eq!(reply.text(), "OK");
    }

    async fn has_record(&self, key: &Key) -> bool {
        self.raw.lock().unwrap().call(&["EXISTS", &names(key).0]) == Answer::Int(1)
    }

    fn absence_of_expired(&self) -> Absence {
        // The server removes the lock as soon as it no longer counts as held.
        Absence::NotFound
    }
}
