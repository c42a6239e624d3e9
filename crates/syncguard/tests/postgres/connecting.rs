//! Getting in, and not getting in.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{
    Host, Password, Pem, PostgresBackend, PostgresConfig, PostgresConnection, PostgresOptions,
    SslMode, Tables, Tls,
};
use syncguard::{
    Backend, DEFAULT_OPERATION_TIMEOUT, Error, ErrorKind, Login, LoginSource, Operation,
};

use crate::gate::{Gate, Rule};
use crate::stage::{enters, options, own_tables, server, sessions};
use crate::support::attempts::Attempts as _;
use crate::support::certificates::Certificates;
use crate::support::locks::{acquire, eventually, key};
use crate::support::postgres_server::{DATABASE, PASSWORD, PostgresServer, USER};
use crate::support::process::Pipe;
use crate::support::suite::tests;

tests![
    a_url_is_enough,
    passwords_are_proved_in_every_way,
    a_login_can_be_asked_for_each_time,
    tls_modes_mean_what_they_say,
    a_client_certificate_opens_the_door,
    certificates_are_read_for_each_connection,
    wrong_credentials_are_refused_and_not_shown,
    what_is_not_there_is_said,
    too_many_connections_are_said,
    a_server_that_is_too_old_is_refused,
    servers_that_only_speak_like_postgresql_are_refused,
    a_server_may_be_its_own_authority,
    a_file_that_cannot_be_read_holds_up_nobody_else,
    backends_share_connections_also_on_other_tables,
    a_silent_host_is_passed_over,
    a_standby_is_passed_over,
];

fn with_role(name: &str, config: PostgresConfig) -> PostgresConfig {
    PostgresConfig {
        user: Some(name.to_owned()),
        ..config
    }
}

async fn role(name: &str) {
    let sql = format!("CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'");
    server().client().await.batch_execute(&sql).await.unwrap();
}

async fn a_url_is_enough() {
    let port = server().port();
    let password = "a%20pass%3Aword%2Fwith%40signs";
    for url in [
        format!("postgres://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"),
        format!("postgresql://{USER}:{password}@localhost:{port}/{DATABASE}?sslmode=require"),
        format!(
            "postgres://{USER}@/{DATABASE}?host={}&port={port}",
            server().socket_folder()
        ),
        format!(
            "postgres://{USER}:{password}@127.0.0.1:{port}/{DATABASE}?sslmode=verify-full&sslrootcert={}",
            server().certificates.authority.display()
        ),
    ] {
        enters(PostgresConfig::from_url(&url).unwrap())
            .await
            .unwrap();
    }
}

async fn passwords_are_proved_in_every_way() {
    server()
        .client()
        .await
        .batch_execute(&format!(
            "SET password_encryption = md5; CREATE ROLE digested LOGIN PASSWORD '{PASSWORD}'"
        ))
        .await
        .unwrap();
    role("trusted").await;
    enters(with_role("digested", server().tcp())).await.unwrap();
    enters(PostgresConfig {
        password: Password::None,
        ..with_role("trusted", server().tcp())
    })
    .await
    .unwrap();
    enters(server().tcp()).await.unwrap();
}

struct Tokens(AtomicUsize);

#[async_trait]
impl LoginSource for Tokens {
    async fn login(&self) -> Result<Login, Error> {
        let of = |user: Option<&str>, password: &str, database: Option<&str>| Login {
            user: user.map(str::to_owned),
            password: Some(password.to_owned()),
            database: database.map(str::to_owned),
        };
        Ok(match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => of(None, "wrong", None),
            1 => of(None, PASSWORD, None),
            2 => of(Some("nobody_of_that_name"), PASSWORD, None),
            _ => of(None, PASSWORD, Some("no_such_database")),
        })
    }
}

async fn a_login_can_be_asked_for_each_time() {
    let tokens = Arc::new(Tokens(AtomicUsize::new(0)));
    let config = PostgresConfig {
        password: Password::Source(Arc::clone(&tokens) as _),
        ..server().tcp()
    };
    let backend = PostgresBackend::new(config, options(&own_tables())).unwrap();
    let error = backend.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    let error = backend.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(tokens.0.load(Ordering::Relaxed), 2);
    // The others are the source's as well.
    for kind in [ErrorKind::AuthFailed, ErrorKind::InvalidArgument] {
        let config = PostgresConfig {
            password: Password::Source(Arc::clone(&tokens) as _),
            ..server().tcp()
        };
        let backend = PostgresBackend::new(config, options(&own_tables())).unwrap();
        let error = backend.is_locked(&key("k")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

async fn tls_modes_mean_what_they_say() {
    use SslMode::*;
    role("encrypted").await;
    let tls = |mode, root: Option<&std::path::Path>, host: &str| PostgresConfig {
        hosts: vec![Host {
            name: host.to_owned(),
            port: server().port(),
        }],
        tls: Tls {
            mode,
            root: root.map(|path| Pem::File(path.to_owned())),
            ..Tls::default()
        },
        ..with_role("encrypted", server().tcp())
    };
    let ours = Some(server().certificates.authority.as_path());
    let stranger = Some(server().certificates.stranger.as_path());
    for (mode, root, host, enters_it) in [
        (Disable, None, "127.0.0.1", false),
        (Allow, None, "127.0.0.1", true),
        (Prefer, None, "127.0.0.1", true),
        (Prefer, stranger, "127.0.0.1", true),
        (Require, None, "127.0.0.1", true),
        (Require, ours, "127.0.0.1", true),
        (Require, stranger, "127.0.0.1", false),
        (VerifyCa, ours, "127.0.0.2", true),
        (VerifyCa, stranger, "127.0.0.1", false),
        (VerifyCa, None, "127.0.0.1", false),
        (VerifyFull, ours, "127.0.0.1", true),
        (VerifyFull, ours, "localhost", true),
        (VerifyFull, stranger, "localhost", false),
        (VerifyFull, None, "localhost", false),
    ] {
        // 127.0.0.2 is not in the certificate, and the server does not listen there: a name that is
        // expected instead stands for it.
        let mut config = tls(mode, root, "127.0.0.1");
        if host == "127.0.0.2" {
            config.tls.server_name = Some("other.example".to_owned());
        } else {
            config.hosts[0].name = host.to_owned();
        }
        match enters(config).await {
            Ok(()) => assert!(enters_it, "{mode:?} {root:?} {host}"),
            Err(error) => {
                assert!(!enters_it, "{mode:?} {root:?} {host}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
            }
        }
    }
    let mut elsewhere = tls(VerifyFull, ours, "127.0.0.1");
    elsewhere.tls.server_name = Some("other.example".to_owned());
    let error = enters(elsewhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.message().contains("certificate"), "{error}");
}

async fn a_client_certificate_opens_the_door() {
    role("certified").await;
    let certificates = &server().certificates;
    let mut config = PostgresConfig {
        password: Password::None,
        ..with_role("certified", server().tls())
    };
    let error = enters(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    config.tls.certificate = Some(Pem::File(certificates.client.clone()));
    let key = std::fs::read_to_string(&certificates.client_key).unwrap();
    config.tls.key = Some(Pem::Text(key));
    enters(config).await.unwrap();
}

/// The server gets other certificates, and the client's files are renewed with them.
async fn certificates_are_read_for_each_connection() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let [ca, cert, private] =
        ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let renew = |certificates: &Certificates| {
        server.stop();
        server.present(certificates);
        server.trust(certificates);
        server.run();
        std::fs::write(&cert, &certificates.client_cert).unwrap();
        std::fs::write(&private, &certificates.client_key).unwrap();
        std::fs::write(&ca, &certificates.ca).unwrap();
    };
    let made = || Certificates::signed_by("an authority", &["127.0.0.1"], USER);
    renew(&made());
    let mut config = server.tls();
    config.tls.root = Some(Pem::File(ca.clone()));
    config.tls.certificate = Some(Pem::File(cert.clone()));
    config.tls.key = Some(Pem::File(private.clone()));
    let tables = own_tables();
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    acquire(&backend, "k").await;
    // Another authority has signed all of it.
    renew(&made());
    eventually("a session with the renewed certificates", async || {
        backend
            .is_locked(&key("k"))
            .await
            .is_ok_and(|is_locked| is_locked)
    })
    .await;
    // The server does not trust what the client presents, and that is said.
    let stranger = Certificates::signed_by("another authority", &[], USER);
    std::fs::write(&cert, &stranger.client_cert).unwrap();
    std::fs::write(&private, &stranger.client_key).unwrap();
    server.stop();
    server.run();
    eventually("the refusal of the client's certificate", async || {
        let error = backend.is_locked(&key("k")).await.err();
        error.is_some_and(|error| {
            error.kind() == ErrorKind::AuthFailed
                && error.message().contains("the client's certificate")
        })
    })
    .await;
}

async fn wrong_credentials_are_refused_and_not_shown() {
    for config in [
        PostgresConfig {
            password: Password::Text("a wrong secret".to_owned()),
            ..server().tcp()
        },
        PostgresConfig {
            password: Password::None,
            ..server().tcp()
        },
        with_role("nobody_here", server().unix()),
    ] {
        let error = enters(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        assert!(!format!("{error:?}").contains("secret"));
    }
}

async fn what_is_not_there_is_said() {
    let error = enters(PostgresConfig {
        database: Some("nowhere".to_owned()),
        ..server().unix()
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("database"), "{error}");
    let mut config = server().tcp();
    config.hosts[0].port = 1;
    let error = enters(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(!error.is_outcome_unknown());
    config.hosts[0].name = "/nonexistent".to_owned();
    let error = enters(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
}

async fn too_many_connections_are_said() {
    let sql = "CREATE ROLE crowded LOGIN CONNECTION LIMIT 0";
    server().client().await.batch_execute(sql).await.unwrap();
    let error = enters(with_role("crowded", server().unix()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("max_connections"), "{error}");
}

async fn a_server_that_is_too_old_is_refused() {
    let sql = "SELECT current_setting('server_version_num')::integer";
    let row = server().client().await.query_one(sql, &[]).await.unwrap();
    let rule = Rule::Version(row.get(0), 110_022);
    let gate = Gate::start(server().port(), rule).await;
    let error = enters(gate.config(server().tcp())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    let words = "the server is PostgreSQL 11, and version 12 or later is needed";
    assert_eq!(error.message(), words);
}

async fn servers_that_only_speak_like_postgresql_are_refused() {
    // What these servers were told to answer; the rest of the text stays that of the real one.
    for (words, name) in [
        ("CockroachDB CCL v24.1.2 (x86_64", "is CockroachDB,"),
        ("PostgreSQL 11.2-YB-2.21.1.0-b0 ", "is YugabyteDB,"),
        ("PostgreSQL 18.6 (PGlite 0.5.14)", "is PGlite,"),
    ] {
        let rule = Rule::Product("PostgreSQL ", words);
        let gate = Gate::start(server().port(), rule).await;
        let backend = PostgresBackend::new(gate.config(server().tcp()), options(&own_tables()));
        let backend = backend.unwrap();
        for error in [
            enters(gate.config(server().tcp())).await.unwrap_err(),
            backend.setup_schema().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
            assert!(error.message().contains(name), "{error}");
        }
    }
}

async fn a_server_may_be_its_own_authority() {
    let server = PostgresServer::start();
    let check = async |certificates: &Certificates, name: &str| {
        server.stop();
        server.present(certificates);
        server.run();
        let mut config = server.tls();
        config.tls.root = Some(Pem::Text(certificates.ca.clone()));
        config.tls.server_name = Some(name.to_owned());
        enters(config).await
    };
    let made = Certificates::by_openssl(&["-addext", "subjectAltName=DNS:locks.example"], None);
    check(&made, "locks.example").await.unwrap();
    let refused = check(&made, "other.example").await.unwrap_err();
    // Without options for names, it is the common name that counts.
    let common = Certificates::by_openssl(&[], None);
    check(&common, "locks.example").await.unwrap();
    let also_refused = check(&common, "other.example").await.unwrap_err();
    let expired = Certificates::by_openssl(&["-days", "1"], Some("2 years ago"));
    let expired = check(&expired, "locks.example").await.unwrap_err();
    for error in [refused, also_refused, expired] {
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
    }
}

/// Reading it takes as long as somebody else likes: nobody writes into the pipe.
async fn a_file_that_cannot_be_read_holds_up_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = Pipe::new_in(folder.path());
    let mut config = server().tls();
    config.tls.root = Some(Pem::File(pipe.0.clone()));
    let limit = Duration::from_millis(500);
    let options = |tables: &Tables| PostgresOptions {
        operation_timeout: limit,
        ..options(tables)
    };
    let stuck = PostgresBackend::new(config, options(&own_tables())).unwrap();
    let tables = own_tables();
    let free = PostgresBackend::new(server().tcp(), options(&tables)).unwrap();
    free.setup_schema().await.unwrap();
    // All of it on one thread.
    let others = async {
        for _ in 0..3 {
            let grant = acquire(&free, "k").await;
            free.release(&grant.lock_id).await.unwrap();
        }
    };
    let start = Instant::now();
    let k = key("k");
    let (error, ()) = tokio::join!(stuck.is_locked(&k), others);
    // Nothing else would end it.
    assert!(start.elapsed() < limit * 20, "{:?}", start.elapsed());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("certificates"), "{error}");
    // Once it is there, it counts.
    let text = std::fs::read(&server().certificates.authority).unwrap();
    tokio::task::spawn_blocking(move || std::fs::write(&pipe.0, text).unwrap());
    eventually("the file is read", async || {
        let answer = stuck.is_locked(&key("k")).await;
        answer.is_err_and(|error| error.message().contains("setupSchema"))
    })
    .await;
}

async fn a_silent_host_is_passed_over() {
    // Takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = server().tcp();
    let host = Host {
        name: "127.0.0.1".to_owned(),
        port: silent.local_addr().unwrap().port(),
    };
    config.hosts.insert(0, host);
    let backend = PostgresBackend::new(config, options(&own_tables())).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let (call, key) = (CallOptions::default(), key("k"));
    let asked =
        operation::run::<bool>(&backend, Operation::IsLocked(key.clone()), call, pending()).await;
    let error = asked.unwrap_err();
    assert!(error.message().contains("setupSchema"), "{error}");
}

async fn a_standby_is_passed_over() {
    let reader = PostgresServer::start_with(&["fsync=off", "default_transaction_read_only=on"]);
    let tables = own_tables();
    let mut config = server().unix();
    config.hosts.insert(0, reader.unix().hosts[0].clone());
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    crate::support::locks::acquire(&backend, "k").await;
    // Alone, it says what it is.
    let backend = PostgresBackend::new(reader.unix(), options(&tables)).unwrap();
    let error = backend.setup_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.message().contains("read-only"), "{error}");
}

/// What is prepared for one backend's tables is not used for another's.
async fn backends_share_connections_also_on_other_tables() {
    let name = "shared by tables";
    let config = PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().unix()
    };
    let connection = PostgresConnection::new(config, DEFAULT_OPERATION_TIMEOUT).unwrap();
    let on = |tables| PostgresBackend::on(&connection, options(tables)).unwrap();
    let (first_tables, second_tables) = (own_tables(), own_tables());
    let (first, second) = (on(&first_tables), on(&second_tables));
    for backend in [&first, &second] {
        backend.setup_schema().await.unwrap();
    }
    let held = acquire(&first, "k").await;
    for _ in 0..3 {
        assert!(first.is_locked(&key("k")).await.unwrap());
        assert!(!second.is_locked(&key("k")).await.unwrap());
    }
    let client = server().client().await;
    assert_eq!(sessions(&client, name).await.0, 1);
    first.close().await;
    first.close().await;
    let error = first.is_locked(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    let third = on(&first_tables);
    assert!(third.is_locked(&key("k")).await.unwrap());
    assert_eq!(sessions(&client, name).await.0, 1);
    third.release(&held.lock_id).await.unwrap();
    third.close().await;
    second.close().await;
    eventually("sessions end with the last backend", async || {
        sessions(&client, name).await.0 == 0
    })
    .await;
    assert!(!on(&first_tables).is_locked(&key("k")).await.unwrap());
}
