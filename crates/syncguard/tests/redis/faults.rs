//! What happens when the server fails: each failure under load, with its documented kind, in time, and
//! with no lock left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AcquireOutcome, Backend, Error, ErrorKind, LockOptions, Operation, lock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

use crate::load::{
    LATEST, Load, TIMEOUT, acquire, assert_kinds, backend, backend_at, pair, until_it_works,
};
use crate::support::attempts::Attempts as _;
use crate::support::locks::key;
use crate::support::process::free_port;
use crate::support::redis_server::RedisServer;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    a_server_that_is_not_there_is_unavailable_and_used_when_it_comes,
    a_call_that_has_less_time_than_the_link_has_patience_tells_why_it_failed,
    a_host_without_a_name_is_unavailable,
    a_server_that_never_answers_times_out,
    a_server_that_is_killed_and_started_again_serves_again,
    scripts_that_are_flushed_are_not_noticed,
    connections_that_are_killed_are_made_again,
    a_server_that_pauses_past_the_timeout_serves_again,
    a_late_answer_that_scripts_are_lost_leaves_the_rest_of_the_time,
    a_late_grant_is_given_back,
    an_idle_connection_that_falls_silent_costs_less_than_a_connect_timeout,
    a_stopped_server_keeps_its_connection,
    a_connection_that_ends_at_its_start_costs_less_than_a_connect_timeout,
    a_full_memory_refuses_locks_and_frees_them,
    a_replica_is_unavailable_until_it_is_promoted,
    whoever_gives_up_on_a_replica_is_told_that_it_is_one,
    a_failover_by_sentinel_is_followed,
];

async fn a_server_that_is_not_there_is_unavailable_and_used_when_it_comes() {
    let mut server = RedisServer::start();
    server.kill();
    let backend = backend_at(&server);
    for _ in 0..3 {
        let error = acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(!error.is_outcome_unknown(), "nothing was sent");
    }
    server.restart();
    until_it_works(&backend).await;
    pair(&backend, "k").await.unwrap();
}

async fn a_call_that_has_less_time_than_the_link_has_patience_tells_why_it_failed() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for ms in [100.0, 1000.0, 2000.0] {
        let config = RedisConfig::from_url(&url).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
        let mut options = LockOptions::default();
        options.retry.timeout_ms = ms;
        let error = lock(&backend, &key("k"), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        let words = format!("127.0.0.1:{port}: Connection refused (os error 111)");
        assert!(error.message().ends_with(&words), "{error}");
    }
}

async fn a_host_without_a_name_is_unavailable() {
    let backend = backend(RedisConfig::from_url("redis://nowhere.invalid").unwrap());
    let error = acquire(&backend, "k").await.unwrap_err();
    let kinds = [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

async fn a_server_that_never_answers_times_out() {
    // Takes connections and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let mut config = RedisConfig::from_url(&url).unwrap();
    let backend_with = |config: &RedisConfig| backend(config.clone());
    let error = acquire(&backend_with(&config), "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    config.connect_timeout = Duration::from_millis(100);
    let error = acquire(&backend_with(&config), "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    assert!(error.message().contains("connectTimeoutMs"), "{error}");
}

async fn a_server_that_is_killed_and_started_again_serves_again() {
    let mut server = RedisServer::start();
    let backend = backend_at(&server);
    until_it_works(&backend).await;
    let load = Load::start(&backend);
    load.goes_on().await;
    server.kill();
    load.fails().await;
    // Past the timeout of what was in flight.
    tokio::time::sleep(TIMEOUT * 2).await;
    server.restart();
    until_it_works(&backend).await;
    load.goes_on().await;
    // Scripts were lost with the server, and came back unasked.
    let kinds = [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];
    assert_kinds(&load.end().await, &kinds);
}

async fn scripts_that_are_flushed_are_not_noticed() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    let load = Load::start(&backend);
    let mut raw = server.connect();
    for _ in 0..20 {
        load.goes_on().await;
        raw.call(&["SCRIPT", "FLUSH"]);
    }
    assert!(load.end().await.is_empty());
}

async fn connections_that_are_killed_are_made_again() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    let load = Load::start(&backend);
    let mut raw = server.connect();
    for _ in 0..5 {
        load.goes_on().await;
        let killed = raw.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_eq!(killed.int(), 1);
    }
    load.goes_on().await;
    let errors = load.end().await;
    assert_kinds(&errors, &[ErrorKind::ServiceUnavailable]);
    assert!(errors.iter().any(Error::is_outcome_unknown));
}

async fn a_server_that_pauses_past_the_timeout_serves_again() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    let load = Load::start(&backend);
    let mut raw = server.connect();
    load.goes_on().await;
    // Past the moment at which the connection is given up, too.
    for pause in [TIMEOUT * 4 / 3, TIMEOUT * 3] {
        let ms = pause.as_millis().to_string();
        raw.call(&["CLIENT", "PAUSE", &ms]);
        tokio::time::sleep(pause).await;
        until_it_works(&backend).await;
        load.goes_on().await;
    }
    let kinds = [ErrorKind::NetworkTimeout, ErrorKind::ServiceUnavailable];
    let errors = load.end().await;
    assert_kinds(&errors, &kinds);
    assert!(
        errors
            .iter()
            .any(|error| error.kind() == ErrorKind::NetworkTimeout)
    );
}

async fn a_late_answer_that_scripts_are_lost_leaves_the_rest_of_the_time() {
    let is_first = Arc::new(AtomicBool::new(true));
    let port = crate::fake::listen(move |stream| {
        let is_first = is_first.swap(false, Relaxed);
        async move {
            if !is_first {
                // It is busy, so that other connections show nothing.
                let _open = stream;
                return std::future::pending().await;
            }
            let mut stream = crate::fake::until_script(stream).await.unwrap();
            stream.write_all(b":0\r\n").await.unwrap();
            crate::fake::read_request(&mut stream).await.unwrap();
            tokio::time::sleep(TIMEOUT * 9 / 10).await;
            let reply = b"-NOSCRIPT No matching script.\r\n";
            stream.write_all(reply).await.unwrap();
            while crate::fake::read_request(&mut stream).await.is_some() {}
        }
    })
    .await;
    let backend = backend(RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap());
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    let start = Instant::now();
    let operation = Operation::IsLocked(key("k"));
    let call = CallOptions::default();
    let answer = operation::run::<bool>(&backend, operation, call, std::future::pending()).await;
    let error = answer.unwrap_err();
    assert!(error.kind().is_transient(), "{error:?}");
    assert!(start.elapsed() < LATEST, "{:?}", start.elapsed());
}

async fn a_late_grant_is_given_back() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    until_it_works(&backend).await;
    let mut raw = server.connect();
    raw.call(&["CLIENT", "PAUSE", "700"]);
    let error = acquire(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    // The server gets to it when the pause is over; then it is given back.
    let start = Instant::now();
    while !matches!(
        acquire(&backend, "k").await,
        Ok(AcquireOutcome::Acquired(_))
    ) {
        assert!(start.elapsed() < Duration::from_secs(10), "left behind");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn an_idle_connection_that_falls_silent_costs_less_than_a_connect_timeout() {
    let server = RedisServer::start();
    let (port, silence) = crate::fake::proxy(server.port()).await;
    let mut config = RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap();
    // As users have it: a call may take as long as lock() waits in all, so that lock() must not spend
    // all its time on the first.
    let limit = Duration::from_secs(2);
    config.connect_timeout = limit;
    config.locks.operation_timeout = limit;
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    backend.is_locked(&key("k")).await.unwrap();
    silence.send_replace(true);
    let mut options = LockOptions::default();
    options.retry.timeout_ms = limit.as_millis() as f64;
    let start = Instant::now();
    let lock = lock(&backend, &key("k"), &options).await.unwrap();
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    assert!(lock.release().await.unwrap());
}

async fn a_stopped_server_keeps_its_connection() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    pair(&backend, "k").await.unwrap();
    let connections = || {
        let mut raw = server.connect();
        // The server may be about to close the connection of whoever has asked before.
        let is_two = |raw: &mut Resp| {
            let text = raw.call(&["INFO", "clients"]);
            text.text().contains("connected_clients:2")
        };
        let mut looks = 0;
        while !is_two(&mut raw) {
            assert!(looks < 500, "it is not the only connection");
            looks += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        let text = raw.call(&["CLIENT", "LIST"]);
        let lines = text.text().lines().map(str::to_owned);
        let line = lines.into_iter().find(|line| line.contains("127.0.0.1"));
        line.unwrap().split(' ').next().unwrap().to_owned()
    };
    let before = connections();
    server.signal("STOP");
    let call = tokio::spawn(async move { (pair(&backend, "k").await, backend) });
    // Long enough for the silence to be noticed, and less than the call may take.
    tokio::time::sleep(TIMEOUT * 2 / 3).await;
    server.signal("CONT");
    let (answer, _backend) = call.await.unwrap();
    answer.unwrap();
    assert_eq!(connections(), before);
}

/// Whether the server expects TLS is found out by asking it, and Redis without TLS never answers that question.
async fn a_connection_that_ends_at_its_start_costs_less_than_a_connect_timeout() {
    let server = RedisServer::start();
    let is_first = Arc::new(AtomicBool::new(true));
    let real = server.port();
    let port = crate::fake::listen(move |mut stream| {
        let ends = is_first.swap(false, Relaxed);
        async move {
            if ends {
                stream.read_u8().await.unwrap();
                return;
            }
            let mut server = TcpStream::connect(("127.0.0.1", real)).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        }
    })
    .await;
    let config = RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap();
    let limit = config.connect_timeout;
    let backend = backend(config);
    let start = Instant::now();
    until_it_works(&backend).await;
    assert!(start.elapsed() < limit / 2, "{:?}", start.elapsed());
}

async fn a_full_memory_refuses_locks_and_frees_them() {
    let server = RedisServer::start();
    let backend = backend_at(&server);
    let AcquireOutcome::Acquired(mut helds) = acquire(&backend, "held").await.unwrap() else {
        panic!("locked");
    };
    let held = helds.remove(0);
    let load = Load::start(&backend);
    load.goes_on().await;
    let mut raw = server.connect();
    assert_eq!(
        raw.call(&["CONFIG", "SET", "maxmemory", "1"]),
        Answer::Text("OK".into())
    );
    load.fails().await;
    let error = acquire(&backend, "full").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("OOM"), "{error}");
    for name in ["full", "fence:syncguard:full"] {
        let name = format!("syncguard:{name}");
        assert_eq!(raw.call(&["EXISTS", &name]), Answer::Int(0));
    }
    let released = backend.release(&held.lock_id).await.unwrap();
    assert_eq!(released, syncguard::ReleaseOutcome::Released);
    raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_kinds(&load.end().await, &[ErrorKind::ServiceUnavailable]);
}

async fn a_replica_is_unavailable_until_it_is_promoted() {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    let backend = backend_at(&replica);
    let mut raw = replica.connect();
    let start = Instant::now();
    while !raw
        .call(&["INFO", "replication"])
        .text()
        .contains("master_link_status:up")
    {
        assert!(start.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = acquire(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("READONLY"), "{error}");
    raw.call(&["REPLICAOF", "NO", "ONE"]);
    pair(&backend, "k").await.unwrap();
}

async fn whoever_gives_up_on_a_replica_is_told_that_it_is_one() {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    for ms in [500.0, 1000.0, 2000.0] {
        let config = RedisConfig::from_url(&replica.url()).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
        let mut options = LockOptions::default();
        options.retry.timeout_ms = ms;
        // A key whose name is a word of that text.
        let error = lock(&backend, &key("a"), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        let words = "redis answered READONLY: the server is a replica and takes no locks";
        assert!(error.message().contains(words), "{ms}: {error}");
        assert!(!error.message().contains("[hidden]"), "{error}");
    }
}

async fn a_failover_by_sentinel_is_followed() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    let sentinel = RedisServer::start_sentinel(&primary, &[]);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let backend = backend(RedisConfig::from_url(&url).unwrap());
    until_it_works(&backend).await;
    let mut raw = sentinel.connect();
    let start = Instant::now();
    loop {
        let replicas = raw.call(&["SENTINEL", "REPLICAS", "main"]);
        if format!("{replicas:?}").contains("\"master-link-status\"), Text(\"ok\")") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{replicas:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let load = Load::start(&backend);
    load.goes_on().await;
    primary.kill();
    load.fails().await;
    until_it_works(&backend).await;
    load.goes_on().await;
    let kinds = [ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];
    assert_kinds(&load.end().await, &kinds);
    let mut raw = replica.connect();
    assert_eq!(
        raw.call(&["EXISTS", "syncguard:fence:syncguard:after"]),
        Answer::Int(1)
    );
}
