//! Connections on which nothing happens.

use std::fs;
use std::sync::Arc;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, LockOptions, lock};

use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, eventually, key};
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![connections_for_calls_and_for_waiters_have_keepalive];

/// The kernel's timers of our connections to that port. 2: keepalive.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<u8> {
    let remote = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut timers = Vec::new();
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if columns[2].ends_with(&remote) && columns[3] == "01" {
            timers.push(columns[5][..2].parse().unwrap());
        }
    }
    timers
}

async fn connections_for_calls_and_for_waiters_have_keepalive() {
    let server = RedisServer::start();
    let config = RedisConfig::from_url(&format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { lock(&backend, &key("k"), &LockOptions::default()).await })
    };
    let mut raw = server.connect();
    eventually("somebody listens", async || {
        let told = raw.call(&["PUBSUB", "NUMSUB", "syncguard:k"]);
        told.list()[1].int() > 0
    })
    .await;
    drop(raw);
    eventually("each has a timer", async || timers(server.port()) == [2, 2]).await;
    backend.release(&held.lock_id).await.unwrap();
    waiter.await.unwrap().unwrap();
}
