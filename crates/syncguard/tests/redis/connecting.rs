//! What is said when a connection is made, and to whom it is made.

use std::time::{Duration, Instant};

use syncguard::redis::{RedisBackend, RedisConfig, RedisTls};
use syncguard::{Error, ErrorKind};

use crate::fake::{sentinel, silent};
use crate::support::attempts::Attempts as _;
use crate::support::certificates::Certificates;
use crate::support::locks::{eventually, key};
use crate::support::process::free_port;
use crate::support::redis_server::{LOCKS_ONLY, RedisServer};
use crate::support::suite::tests;

tests![
    the_name_is_told_and_a_refusal_of_it_does_not_matter,
    a_server_with_too_many_clients_says_so,
    what_is_no_redis_is_told_apart,
    one_sentinel_that_knows_is_enough,
    silent_sentinels_and_former_primaries_cost_no_time,
    credentials_go_where_they_belong,
    a_replica_that_a_sentinel_takes_for_the_primary_is_not_used,
    sentinels_and_primaries_are_reached_by_tls,
    sentinels_are_followed_as_long_as_there_is_a_backend,
];

async fn try_at(url: &str) -> Result<bool, Error> {
    try_with(RedisConfig::from_url(url).unwrap()).await
}

async fn try_with(config: RedisConfig) -> Result<bool, Error> {
    let backend = RedisBackend::new(config).unwrap();
    backend.is_locked(&key("k")).await
}

async fn the_name_is_told_and_a_refusal_of_it_does_not_matter() {
    let server = RedisServer::start();
    let backend = RedisBackend::new(
        RedisConfig::from_url(&format!("{}?connectionName=mine", server.url())).unwrap(),
    )
    .unwrap();
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    let clients = server.connect().call(&["CLIENT", "LIST"]);
    assert!(clients.text().contains(" name=mine "), "{clients:?}");

    let server = RedisServer::start_with(LOCKS_ONLY);
    let url = format!(
        "redis://locks:secret@127.0.0.1:{}?connectionName=mine",
        server.port()
    );
    assert!(!try_at(&url).await.unwrap());
}

async fn a_server_with_too_many_clients_says_so() {
    let server = RedisServer::start();
    let mut raw = server.connect();
    raw.call(&["CONFIG", "SET", "maxclients", "1"]);
    for _ in 0..3 {
        let error = try_at(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
        assert!(!error.is_outcome_unknown(), "nothing was sent");
    }
}

async fn what_is_no_redis_is_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let page = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, page)
                .await
                .unwrap();
        }
    });
    let error = try_at(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("HTTP"), "{error}");
}

async fn one_sentinel_that_knows_is_enough() {
    let primary = RedisServer::start();
    let sentinel = RedisServer::start_sentinel(&primary, &[]);
    // One that is not there, one that is no Sentinel, and one that knows.
    let nodes = format!(
        "127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}",
        free_port(),
        primary.port(),
        sentinel.port()
    );
    assert!(
        !try_at(&format!("redis+sentinel://{nodes}/main"))
            .await
            .unwrap()
    );
    let url = format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port());
    let error = try_at(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("sentinel"), "{error}");
}

async fn silent_sentinels_and_former_primaries_cost_no_time() {
    let primary = RedisServer::start();
    let knows = sentinel((primary.port(), None), false).await.port;
    let silent = silent().await;
    let cut_off = sentinel((silent, None), false).await.port;
    let start = Instant::now();
    for nodes in [[silent, knows], [cut_off, knows]] {
        let nodes = nodes.map(|port| format!("127.0.0.1:{port}")).join(",");
        let url = format!("redis+sentinel://{nodes}/main");
        assert!(!try_at(&url).await.unwrap());
    }
    // Less than the default limit for one connection.
    assert!(start.elapsed() < Duration::from_millis(4500));
}

async fn credentials_go_where_they_belong() {
    let primary = RedisServer::start_with(&["requirepass inner"]);
    let sentinel = RedisServer::start_sentinel(
        &primary,
        &["requirepass outer", "sentinel auth-pass main inner"],
    );
    let nodes = format!("127.0.0.1:{}/main", sentinel.port());
    let url = format!("redis+sentinel://:inner@{nodes}?sentinelPassword=outer");
    assert!(!try_at(&url).await.unwrap());
    for (url, message) in [
        (
            format!("redis+sentinel://:wrong@{nodes}?sentinelPassword=outer"),
            "WRONGPASS",
        ),
        (
            format!("redis+sentinel://:inner@{nodes}?sentinelPassword=wrong"),
            "WRONGPASS",
        ),
        (format!("redis+sentinel://:inner@{nodes}"), "NOAUTH"),
        (
            format!("redis+sentinel://{nodes}?sentinelPassword=outer"),
            "NOAUTH",
        ),
    ] {
        let error = try_at(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        assert!(error.message().contains(message), "{error}");
    }
}

async fn a_replica_that_a_sentinel_takes_for_the_primary_is_not_used() {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    let sentinel = sentinel((replica.port(), None), false).await;
    let url = sentinel.url();
    // To read, a replica would do.
    let error = try_at(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("sentinel"), "{error}");
    replica.connect().call(&["REPLICAOF", "NO", "ONE"]);
    assert!(!try_at(&url).await.unwrap());
}

async fn sentinels_and_primaries_are_reached_by_tls() {
    let certificates = Certificates::for_server(&["locks.example"]);
    let server = RedisServer::start_with_tls(&certificates, &["requirepass secret"]);
    let sentinel = RedisServer::start_sentinel_with_tls(
        &certificates,
        &server,
        &["sentinel auth-pass main secret"],
    );
    let url = format!(
        "rediss+sentinel://:secret@127.0.0.1:{}/main",
        sentinel.port()
    );
    let mut config = RedisConfig::from_url(&url).unwrap();
    config.tls = Some(RedisTls {
        ca: Some(certificates.ca.clone().into_bytes()),
        cert: Some(certificates.client_cert.clone().into_bytes()),
        key: Some(certificates.client_key.clone().into_bytes()),
        servername: Some("locks.example".into()),
        ..RedisTls::default()
    });
    assert!(!try_with(config.clone()).await.unwrap());
    config.tls = Some(RedisTls {
        servername: None,
        ..config.tls.unwrap()
    });
    let error = try_with(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
}

async fn sentinels_are_followed_as_long_as_there_is_a_backend() {
    let primary = RedisServer::start();
    let user = "user locks on >secret &+switch-master &+promoted-slave -@all +sentinel|get-master-addr-by-name \
                +sentinel|master +subscribe";
    let sentinel = RedisServer::start_sentinel(&primary, &[user]);
    let url = format!(
        "redis+sentinel://127.0.0.1:{}/main?sentinelUsername=locks&sentinelPassword=secret",
        sentinel.port()
    );
    let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    let mut raw = sentinel.connect();
    let mut followers = || {
        let clients = raw.call(&["CLIENT", "LIST"]).text().to_owned();
        let lines = clients.lines().filter(|line| line.contains(" sub=2 "));
        let ids = lines.map(|line| line.split(' ').next().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    eventually("it is followed", async || followers().len() == 1).await;
    let before = followers();
    let killed = sentinel
        .connect()
        .call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed.int(), 1);
    eventually("it is followed again", async || {
        let now = followers();
        now.len() == 1 && now != before
    })
    .await;
    drop(backend);
    eventually("nobody follows it", async || followers().is_empty()).await;
}
