//! Acquisitions that are given up while the server stands still, and that it grants when it goes on.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::locks::AHEAD;
use support::postgres_server::PostgresServer;
use support::redis_server::RedisServer;
use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AcquireOutcome, AcquireRequest, Backend, ErrorKind, Key, Operation, Ttl};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::support::attempts::Attempts as _;

/// How long an operation may take: short, so that connections are lost and made anew meanwhile.
const LIMIT: Duration = Duration::from_secs(1);

/// How long a lock may stay that the server grants when it goes on. The tries are a second apart; the
/// rest is for connections that have to be made anew, and for machines with other things to do.
const STAYS: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_for_four_seconds() {
    redis(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_for_twelve_seconds() {
    redis(12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_for_four_seconds() {
    postgres(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_for_twelve_seconds() {
    postgres(12).await;
}

async fn redis(seconds: u64) {
    let server = RedisServer::start();
    let connect = || -> Arc<dyn Backend> {
        let mut config = RedisConfig::from_url(&server.url()).unwrap();
        config.locks.operation_timeout = LIMIT;
        Arc::new(RedisBackend::new(config).unwrap())
    };
    let own = || vec![server.pid()];
    // Ahead of the clock, so that fences tell how many locks were granted.
    let counter = "syncguard:fence:syncguard:key:0";
    server.connect().call(&["SET", counter, &AHEAD.to_string()]);
    let peer = connect();
    stop_and_go(
        connect(),
        Arc::clone(&peer),
        own,
        Duration::from_secs(seconds),
    )
    .await;
    // It did grant the locks that were asked for: after two before and that one, this is the fourth.
    let request = AcquireRequest::new(Key::new("key:0").unwrap(), Ttl::DEFAULT).unwrap();
    let AcquireOutcome::Acquired(mut grants) = peer.acquire(&request).await.unwrap() else {
        panic!("locked");
    };
    let grant = grants.remove(0);
    assert_eq!(grant.fence.get(), AHEAD + 4);
}

async fn postgres(seconds: u64) {
    let server = PostgresServer::start();
    let connect = || {
        let options = PostgresOptions {
            operation_timeout: LIMIT,
            ..PostgresOptions::default()
        };
        Arc::new(PostgresBackend::new(server.tcp(), options).unwrap())
    };
    let backend = connect();
    backend.setup_schema().await.unwrap();
    let file = format!("{}/data/postmaster.pid", server.socket_folder());
    let main: u32 = fs::read_to_string(file)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let own = || std::iter::once(main).chain(children_of(main)).collect();
    stop_and_go(backend, connect(), own, Duration::from_secs(seconds)).await;
}

/// Lets attempts run out of time while the processes stand still, and looks for their locks afterwards.
async fn stop_and_go(
    backend: Arc<dyn Backend>,
    peer: Arc<dyn Backend>,
    processes: impl Fn() -> Vec<u32>,
    stand_still: Duration,
) {
    let keys: Vec<_> = (0..5)
        .map(|number| Key::new(&format!("key:{number}")).unwrap())
        .collect();
    // So that there are connections, and the server knows the scripts.
    for backend in [&backend, &peer] {
        let request = AcquireRequest::new(keys[0].clone(), Ttl::DEFAULT).unwrap();
        backend.acquire(&request).await.unwrap();
        backend.release(&request.claims[0].lock_id).await.unwrap();
    }
    signal(&processes(), Signal::STOP);
    let goes_on = tokio::time::Instant::now() + stand_still;
    let mut attempts = JoinSet::new();
    for key in &keys {
        let backend = Arc::clone(&backend);
        let request = AcquireRequest::new(key.clone(), Ttl::from_millis(120_000).unwrap()).unwrap();
        attempts.spawn(async move {
            operation::run::<AcquireOutcome>(
                &backend,
                Operation::Acquire(request),
                CallOptions::default(),
                pending(),
            )
            .await
        });
    }
    for answer in attempts.join_all().await {
        let kind = answer.unwrap_err().kind();
        let expected = [ErrorKind::NetworkTimeout, ErrorKind::ServiceUnavailable];
        assert!(expected.contains(&kind), "{kind:?}");
    }
    sleep_until(goes_on).await;
    signal(&processes(), Signal::CONT);
    // Nobody knows when the server has granted the last of them: only that by then it has.
    sleep(STAYS).await;
    let start = Instant::now();
    for key in &keys {
        let held = loop {
            match peer.is_locked(key).await {
                Ok(held) => break held,
                Err(error) => assert!(
                    error.kind().is_transient() && start.elapsed() < STAYS * 3,
                    "{error:?}"
                ),
            }
        };
        assert!(!held, "a lock of nobody's stays");
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let own = format!("{parent}");
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            // pid (name) state parent …
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            after_name.split(' ').nth(1) == Some(own.as_str())
        })
        .collect()
}

fn signal(processes: &[u32], signal: Signal) {
    for process in processes {
        let pid = Pid::from_raw(i32::try_from(*process).unwrap()).unwrap();
        // Workers of PostgreSQL come and go.
        let _ = kill_process(pid, signal);
    }
}
