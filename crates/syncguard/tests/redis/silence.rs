//! Connections that fall silent, while the server answers on others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AutoExtend, Backend, ErrorKind, LockOptions, Ttl, lock};
use tokio::time::{sleep, timeout};

use crate::fake;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, try_acquire, ttl};
use crate::support::redis_server::{RedisServer, Version};
use crate::support::suite::tests;

tests![
    locks_that_extend_themselves_outlive_a_silent_connection,
    a_call_on_a_silent_connection_says_so_and_the_next_has_another,
    a_pause_of_writes_ends_no_connection,
    a_pause_of_writes_ends_no_connection_of_6_2,
];

fn backend_on(port: u16, operation_timeout: Duration) -> Arc<dyn Backend> {
    let mut config = RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap();
    config.locks.operation_timeout = operation_timeout;
    Arc::new(RedisBackend::new(config).unwrap())
}

/// Nothing else than heartbeats goes over the connection, which falls silent at any moment between two of them.
async fn locks_that_extend_themselves_outlive_a_silent_connection() {
    let server = RedisServer::start();
    let mut cases = Vec::new();
    for ttl_ms in [2000, 3000] {
        for part in [0.05, 0.3, 0.6, 0.9] {
            cases.push(outlives(&server, ttl(ttl_ms), part));
        }
    }
    join_all(cases).await;
}

async fn outlives(server: &RedisServer, ttl: Ttl, part: f64) {
    let (port, silence) = fake::proxy(server.port()).await;
    let backend = backend_on(port, Duration::from_secs(5));
    let options = LockOptions {
        ttl,
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let name = format!("{} {part}", ttl.as_millis());
    let held = lock(&backend, &key(&name), &options).await.unwrap();
    let first_end = held.expires_at_ms();
    let lasts = Duration::from_millis(ttl.as_millis().unsigned_abs());
    // A part of the time between two heartbeats.
    sleep((lasts / 3).mul_f64(1.0 + part)).await;
    silence.send_replace(true);
    if let Ok(error) = timeout(lasts * 2, held.lost()).await {
        panic!("{name}: {error}");
    }
    assert!(held.expires_at_ms() > first_end + ttl.as_millis());
    assert!(held.release().await.unwrap());
}

async fn a_call_on_a_silent_connection_says_so_and_the_next_has_another() {
    let server = RedisServer::start();
    let (port, silence) = fake::proxy(server.port()).await;
    // So long that the silence counts, and not this.
    let limit = Duration::from_secs(20);
    let backend = backend_on(port, limit);
    backend.is_locked(&key("k")).await.unwrap();
    silence.send_replace(true);
    let start = Instant::now();
    let error = try_acquire(backend.as_ref(), "k").await.unwrap_err();
    assert!(start.elapsed() < limit / 4, "{:?}", start.elapsed());
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.is_outcome_unknown());
    let words = "has gone silent, while the server answers on another one";
    assert!(error.message().contains(words), "{error}");
    let made = || {
        let stats = server.connect().call(&["INFO", "stats"]);
        let text = stats.text().to_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse::<u32>().unwrap()
    };
    let before = made();
    backend.is_locked(&key("k")).await.unwrap();
    // Only that of who asks: the connection of the test goes on.
    assert_eq!(made(), before + 1);
}

async fn a_pause_of_writes_ends_no_connection() {
    outlasts_a_pause(&RedisServer::start()).await;
}

async fn a_pause_of_writes_ends_no_connection_of_6_2() {
    outlasts_a_pause(&RedisServer::start_version(Version::Oldest, &[])).await;
}

/// Scripts wait while writes are paused, and what stands behind them; a `PING` does not.
async fn outlasts_a_pause(server: &RedisServer) {
    let limit = Duration::from_secs(8);
    let backend = backend_on(server.port(), limit);
    let options = LockOptions {
        ttl: ttl(60_000),
        ..LockOptions::default()
    };
    let held = lock(&backend, &key("k"), &options).await.unwrap();
    let lock_id = held.lock_id().clone();
    let mut raw = server.connect();
    let connections = |raw: &mut crate::support::resp::Resp| {
        let list = raw.call(&["CLIENT", "LIST"]);
        let ids = list.text().lines().filter(|line| line.contains("cmd=eval"));
        let ids = ids.map(|line| line.split(' ').next().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let before = connections(&mut raw);
    assert_eq!(before.len(), 1);
    // For longer than a silence may last, and less long than a call may take.
    raw.call(&["CLIENT", "PAUSE", "4000", "WRITE"]);
    let extensions = (0..20).map(|_| backend.extend(&lock_id, ttl(60_000)));
    for answer in join_all(extensions).await {
        answer.unwrap();
    }
    backend.is_locked(&key("k")).await.unwrap();
    assert!(connections(&mut raw).contains(&before[0]));
    assert!(held.release().await.unwrap());
}
