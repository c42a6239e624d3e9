//! Five ways in which no connection comes about, and what is said of each.

use std::error::Error as _;
use std::time::{Duration, Instant};

use syncguard::redis::{RedisBackend, RedisConfig, RedisTls};
use syncguard::{Error, ErrorKind};

use crate::support::attempts::Attempts as _;
use crate::support::certificates::Certificates;
use crate::support::locks::{key, try_acquire};
use crate::support::process::free_port;
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![
    an_unknown_host,
    a_refused_port,
    a_server_of_another_protocol,
    a_web_server,
    tls_to_a_server_without_it,
    no_tls_to_a_server_with_it,
    a_certificate_that_is_not_trusted,
    a_reply_in_the_words_of_the_server,
];

async fn refused(config: RedisConfig) -> Error {
    let backend = RedisBackend::new(config).unwrap();
    let start = Instant::now();
    let error = try_acquire(&backend, "private").await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "{error:?}");
    assert!(!format!("{error:?}").contains("private"), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    error
}

async fn refused_at(url: &str) -> Error {
    refused(RedisConfig::from_url(url).unwrap()).await
}

#[track_caller]
fn assert_text(error: &Error, text: &str) {
    assert_error(error, ErrorKind::ServiceUnavailable, text);
}

#[track_caller]
fn assert_error(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert_eq!(error.message(), text);
    assert!(!error.is_outcome_unknown(), "{error:?}");
}

async fn an_unknown_host() {
    let error = refused_at("redis://user:s3cret@nowhere.invalid:7").await;
    let cause = error.source().unwrap().to_string();
    assert_text(
        &error,
        &format!(
            "cannot connect to redis at nowhere.invalid:7: the host name cannot be resolved: {cause}"
        ),
    );
}

async fn a_refused_port() {
    let port = free_port();
    let error = refused_at(&format!("redis://user:s3cret@127.0.0.1:{port}")).await;
    let text =
        format!("cannot connect to redis at 127.0.0.1:{port}: Connection refused (os error 111)");
    assert_text(&error, &text);
    assert_eq!(
        error.source().unwrap().to_string(),
        "Connection refused (os error 111)"
    );
    let error = refused_at("unix:///nowhere/redis.sock").await;
    assert_text(
        &error,
        "cannot connect to redis at /nowhere/redis.sock: No such file or directory (os error 2)",
    );
    // A Sentinel that is not there is told as well.
    let error = refused_at(&format!("redis+sentinel://127.0.0.1:{port}/main")).await;
    assert_text(
        &error,
        &format!("no redis sentinel knows a primary that can be reached: {text}"),
    );
}

async fn a_server_of_another_protocol() {
    // As PostgreSQL does: what comes is no request, and it hangs up.
    let port = crate::fake::listen(|mut stream| async move {
        let mut length = [0; 4];
        let _ = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut length).await;
    })
    .await;
    assert_text(
        &refused_at(&format!("redis://:s3cret@127.0.0.1:{port}")).await,
        &format!(
            "cannot connect to redis at 127.0.0.1:{port}: the server ended the connection without an \
             answer; is it a Redis server?"
        ),
    );
}

async fn a_web_server() {
    // As web servers do: they refuse what is no request, and what they take for the beginning of TLS.
    let port = crate::fake::listen(|mut stream| async move {
        let mut some = [0; 4];
        let _ = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut some).await;
        let answer: &[u8] = match some[0] {
            22 => &[21, 3, 1, 0, 2, 2, 70],
            _ => b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        };
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
    })
    .await;
    assert_text(
        &refused_at(&format!("redis://:s3cret@127.0.0.1:{port}")).await,
        &format!(
            "cannot connect to redis at 127.0.0.1:{port}: an HTTP server answers there, and no Redis \
             server"
        ),
    );
}

async fn tls_to_a_server_without_it() {
    let server = RedisServer::start();
    // Which of two things the server does depends on chance: it waits for the end of a line, or finds
    // one in the random bytes and complains.
    for _ in 0..4 {
        assert_text(
            &refused_at(&format!("rediss://:s3cret@127.0.0.1:{}", server.port())).await,
            &format!(
                "cannot connect to redis at 127.0.0.1:{}: the server does not speak TLS: use redis:// \
                 instead of rediss://",
                server.port()
            ),
        );
    }
}

async fn no_tls_to_a_server_with_it() {
    let certificates = Certificates::for_server(&["127.0.0.1"]);
    let server = RedisServer::start_with_tls(&certificates, &[]);
    let port = server.port();
    assert_text(
        &refused_at(&format!("redis://:s3cret@127.0.0.1:{port}")).await,
        &format!(
            "cannot connect to redis at 127.0.0.1:{port}: the server expects TLS: use rediss:// instead \
             of redis://"
        ),
    );
}

async fn a_certificate_that_is_not_trusted() {
    let certificates = Certificates::for_server(&["127.0.0.1"]);
    let server = RedisServer::start_with_tls(&certificates, &[]);
    let port = server.port();
    let mut config = RedisConfig::from_url(&format!("rediss://127.0.0.1:{port}")).unwrap();
    config.tls = Some(RedisTls {
        ca: Some(Certificates::for_server(&[]).ca.into_bytes()),
        ..RedisTls::default()
    });
    // Waiting would not help.
    assert_error(
        &refused(config).await,
        ErrorKind::AuthFailed,
        &format!(
            "cannot connect to redis at 127.0.0.1:{port}: TLS failed: invalid peer certificate: \
             BadSignature"
        ),
    );
}

async fn a_reply_in_the_words_of_the_server() {
    let server = RedisServer::start();
    server
        .connect()
        .call(&["RPUSH", "syncguard:private", "of somebody else"]);
    let backend = RedisBackend::new(RedisConfig::from_url(&server.url()).unwrap()).unwrap();
    let error = backend.is_locked(&key("private")).await.unwrap_err();
    let words = "WRONGTYPE Operation against a key holding the wrong kind of value script: ";
    assert!(error.message().contains(words), "{error}");

    // One that quotes what it was sent.
    let port = crate::fake::listen(|stream| async move {
        let Some(mut stream) = crate::fake::until_script(stream).await else {
            return;
        };
        let reply = b"-ERR cannot serve syncguard:private here\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, reply)
            .await
            .unwrap();
        let _ = crate::fake::read_request(&mut stream).await;
    })
    .await;
    let url = format!("redis://127.0.0.1:{port}");
    let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
    let error = backend.is_locked(&key("private")).await.unwrap_err();
    assert_eq!(
        error.message(),
        "redis answered ERR: an error that may be that of something between this process and the server: ERR cannot serve \
         [hidden] here"
    );
}
