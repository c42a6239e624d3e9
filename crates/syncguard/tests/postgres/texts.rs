//! Ways in which no session comes about, and what is said of each.

use std::sync::Arc;

use async_trait::async_trait;
use syncguard::postgres::{Host, Password, PostgresBackend, PostgresConfig, SslMode, Tls};
use syncguard::{Error, ErrorKind, Login, LoginSource};

use crate::stage::{enters, options, own_tables, server};
use crate::support::attempts::Attempts as _;
use crate::support::locks::key;
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    each_reason_has_its_own_words,
    poolers_are_understood_by_their_words,
    a_database_that_takes_no_connections_says_so,
    a_text_that_cannot_be_one_is_named,
];

/// Takes one connection after the other, reads what it says, answers with `reply`, and closes it.
async fn stranger(reply: &'static [u8]) -> (u16, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            if client.read(&mut buffer).await.is_ok() && client.write_all(reply).await.is_ok() {
                let _ = client.shutdown().await;
            }
        }
    });
    (port, answering)
}

/// What an operation says that gets no session, with its causes.
async fn refusal(config: PostgresConfig) -> (ErrorKind, String) {
    let error = enters(config).await.unwrap_err();
    assert!(!error.is_outcome_unknown());
    let message = error.to_string();
    if message.contains(" (127") || message.contains(" (no") || message.contains(" (/") {
        assert!(std::error::Error::source(&error).is_some(), "{error:?}");
    }
    (error.kind(), message)
}

#[expect(clippy::too_many_lines, reason = "a table: one row per reason")]
async fn each_reason_has_its_own_words() {
    use ErrorKind::{AuthFailed, ServiceUnavailable};
    let at = |name: &str, port| PostgresConfig {
        hosts: vec![Host {
            name: name.to_owned(),
            port,
        }],
        ..server().tcp()
    };
    let encrypted = |config: PostgresConfig| PostgresConfig {
        tls: Tls {
            mode: SslMode::Require,
            ..Tls::default()
        },
        ..config
    };
    let bouncer = PgBouncer::start(server(), true);
    let (redis, _answering) = stranger(b"-ERR unknown command\r\n").await;
    let (web, _serving) = stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let (mute, _hanging_up) = stranger(b"").await;
    let of_bouncer = bouncer.config().hosts[0].port;
    for (config, kind, words, place) in [
        (
            PostgresConfig {
                password: Password::None,
                ..server().tcp()
            },
            AuthFailed,
            "the server asks for a password, and none is given",
            format!("127.0.0.1:{}", server().port()),
        ),
        (
            encrypted(bouncer.config()),
            AuthFailed,
            "the server does not speak TLS, and sslmode demands it",
            format!("127.0.0.1:{of_bouncer}"),
        ),
        (
            at("no-such-host.invalid", 5432),
            ServiceUnavailable,
            "the host's name cannot be resolved",
            "no-such-host.invalid:5432".to_owned(),
        ),
        (
            at("127.0.0.1", 1),
            ServiceUnavailable,
            "connection refused",
            "127.0.0.1:1".to_owned(),
        ),
        (
            at("/nonexistent", 5432),
            ServiceUnavailable,
            "socket does not exist",
            "/nonexistent/.s.PGSQL.5432".to_owned(),
        ),
        (
            at("127.0.0.1", redis),
            ServiceUnavailable,
            "does not speak PostgreSQL's protocol",
            format!("127.0.0.1:{redis}"),
        ),
        (
            at("127.0.0.1", web),
            ServiceUnavailable,
            "does not speak PostgreSQL's protocol",
            format!("127.0.0.1:{web}"),
        ),
        (
            at("127.0.0.1", mute),
            ServiceUnavailable,
            "connection closed",
            format!("127.0.0.1:{mute}"),
        ),
    ] {
        let (found, message) = refusal(config).await;
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(words), "{message}");
        assert!(message.contains(&place), "{message}");
    }
}

/// The error with which a pooler ends a session that begins.
fn fatal(state: &str, words: &str) -> &'static [u8] {
    let fields = format!("SFATAL\0VFATAL\0C{state}\0M{words}\0\0");
    let length = u32::try_from(4 + fields.len()).unwrap();
    let message = [b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat();
    message.leak()
}

async fn poolers_are_understood_by_their_words() {
    use ErrorKind::{AuthFailed, Internal, InvalidArgument, ServiceUnavailable};
    for (state, words, kind) in [
        (
            "XX000",
            "Max client connections reached",
            ServiceUnavailable,
        ),
        (
            "XX000",
            "MaxClientsInSessionMode: max clients reached - in Session mode max clients are limited to pool_size",
            ServiceUnavailable,
        ),
        ("XX000", "Tenant or user not found", AuthFailed),
        ("08P01", "no such database: nowhere", InvalidArgument),
        ("08P01", "no such user: nobody", AuthFailed),
        (
            "08P01",
            "no more connections allowed (max_client_conn)",
            ServiceUnavailable,
        ),
        (
            "XX000",
            "Couldn't connect to compute node",
            ServiceUnavailable,
        ),
        (
            "XX000",
            "The endpoint has been disabled. Enable it using Neon API and retry.",
            AuthFailed,
        ),
        ("XX000", "something else", Internal),
    ] {
        let (port, _answering) = stranger(fatal(state, words)).await;
        let config = PostgresConfig {
            hosts: vec![Host {
                name: "127.0.0.1".to_owned(),
                port,
            }],
            // What poolers refuse in other words.
            parameters: vec![("search_path".to_owned(), "public".to_owned())],
            ..server().tcp()
        };
        let (found, message) = refusal(config).await;
        let said = format!("(SQLSTATE {state}: {words})");
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(&said), "{message}");
    }
}

async fn a_database_that_takes_no_connections_says_so() {
    let client = server().client().await;
    for sql in [
        "CREATE DATABASE closed",
        "ALTER DATABASE closed ALLOW_CONNECTIONS false",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    let (kind, message) = refusal(PostgresConfig {
        database: Some("closed".to_owned()),
        ..server().tcp()
    })
    .await;
    assert_eq!(kind, ErrorKind::InvalidArgument, "{message}");
    assert!(
        message.contains("not currently accepting connections"),
        "{message}"
    );
}

/// A login that was read from files.
struct OfFiles;

#[async_trait]
impl LoginSource for OfFiles {
    async fn login(&self) -> Result<Login, Error> {
        Ok(Login {
            password: Some("s3cret\n".to_owned()),
            ..Login::default()
        })
    }
}

async fn a_text_that_cannot_be_one_is_named() {
    type Change = fn(&mut PostgresConfig, String);
    let changes: [(&str, Change); 6] = [
        ("user", |config, text| config.user = Some(text)),
        ("password", |config, text| {
            config.password = Password::Text(text)
        }),
        ("database", |config, text| config.database = Some(text)),
        ("application_name", |config, text| {
            config.application_name = Some(text)
        }),
        ("options", |config, text| config.options = Some(text)),
        ("connection", |config, text| {
            config.parameters = vec![("role".to_owned(), text)]
        }),
    ];
    for (name, change) in changes {
        let mut config = server().tcp();
        change(&mut config, "s3\0cret".to_owned());
        let error = PostgresBackend::new(config, options(&own_tables())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let start = format!("{name} must not contain U+0000");
        assert!(error.message().starts_with(&start), "{error}");
        assert!(!error.message().contains("cret"), "{error}");
    }
    let config = PostgresConfig {
        password: Password::Source(Arc::new(OfFiles)),
        ..server().tcp()
    };
    let error = enters(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.message().contains("password ends with a line break"),
        "{error}"
    );

    let tables = own_tables();
    let backend = PostgresBackend::new(server().tcp(), options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    let error = backend.is_locked(&key("a\0b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.message().starts_with("Key must not contain U+0000"),
        "{error}"
    );
}
