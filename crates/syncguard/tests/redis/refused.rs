//! Who is refused: by a password, by the rights of a user, and by certificates.

use std::time::{Duration, Instant};

use syncguard::redis::{RedisBackend, RedisConfig, RedisTls};
use syncguard::{ErrorKind, Fact};

use crate::load::{TIMEOUT, acquire, backend, pair, until_it_works};
use crate::support::attempts::Attempts as _;
use crate::support::certificates::Certificates;
use crate::support::redis_server::{ADMIN, LOCKS_ONLY, RedisServer, Version};
use crate::support::resp::Answer;
use crate::support::suite::tests;

tests![
    wrong_credentials_fail_at_once_and_say_so,
    a_user_without_the_rights_is_refused,
    rights_that_scripts_lack_are_found_by_trying,
    a_password_that_changes_ends_in_auth_failed,
    a_wrong_database_is_an_invalid_argument,
    tls_trusts_whom_it_is_told_to_trust,
    a_server_may_be_its_own_authority,
];

async fn wrong_credentials_fail_at_once_and_say_so() {
    let server = RedisServer::start_with(&["requirepass secret"]);
    for (url, message) in [
        ("redis://:wrong@", "WRONGPASS"),
        ("redis://nobody:secret@", "WRONGPASS"),
        ("redis://", "NOAUTH"),
    ] {
        let url = format!("{url}127.0.0.1:{}", server.port());
        let backend = backend(RedisConfig::from_url(&url).unwrap());
        let mut quickest = TIMEOUT;
        for _ in 0..5 {
            let start = Instant::now();
            let error = acquire(&backend, "k").await.unwrap_err();
            quickest = quickest.min(start.elapsed());
            assert_eq!(error.kind(), ErrorKind::AuthFailed);
            assert!(error.message().contains(message), "{error}");
            assert!(!format!("{error:?} {backend:?}").contains("secret"));
        }
        assert!(quickest < TIMEOUT / 2, "no use in waiting");
    }
}

async fn a_user_without_the_rights_is_refused() {
    let mut settings = LOCKS_ONLY.to_vec();
    settings.push("user reader on >secret ~syncguard:* -@all +get +ping +client +info");
    settings.push("user stranger on >secret ~other:* +@all");
    let server = RedisServer::start_with(&settings);
    for user in ["reader", "stranger"] {
        let url = format!("redis://{user}:secret@127.0.0.1:{}", server.port());
        let backend = backend(RedisConfig::from_url(&url).unwrap());
        let error = acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        assert!(error.message().contains("NOPERM"), "{error}");
        let needs = "needs +eval +evalsha +get +set +time";
        assert!(error.message().contains(needs), "{error}");
    }
}

async fn rights_that_scripts_lack_are_found_by_trying() {
    for version in [Version::Installed, Version::Oldest] {
        let user = "user some on >secret ~syncguard:* -@all +eval +evalsha +ping";
        let server = RedisServer::start_version(version, &[ADMIN, user]);
        let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
        let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
        let mut raw = server.connect();
        let all = [
            ["time", "get", "set", "del", "scan", "publish"].as_slice(),
            &["zadd", "zrem", "zrevrange", "zremrangebyscore", "pexpire"],
        ]
        .concat();
        for given in 0..=all.len() {
            let facts = backend.facts().await.unwrap().remove(0).facts;
            let missing = facts.iter().find(|(name, _)| *name == "missingRights");
            let missing = missing.map(|(_, fact)| fact.clone());
            let expected = all[given..].join(" ");
            let expected = (!expected.is_empty()).then(|| Fact::from(expected.as_str()));
            assert_eq!(missing, expected, "{version:?}");
            if let Some(name) = all.get(given) {
                let right = format!("+{name}");
                raw.call(&["ACL", "SETUSER", "some", &right, "allchannels"]);
            }
        }
        assert_eq!(raw.call(&["DBSIZE"]), Answer::Int(0), "nothing is changed");
    }
}

async fn a_password_that_changes_ends_in_auth_failed() {
    let server = RedisServer::start_with(&["requirepass secret"]);
    let url = format!("redis://:secret@127.0.0.1:{}", server.port());
    let backend = backend(RedisConfig::from_url(&url).unwrap());
    until_it_works(&backend).await;
    let mut raw = server.connect();
    raw.call(&["AUTH", "secret"]);
    raw.call(&["CONFIG", "SET", "requirepass", "other"]);
    raw.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let start = Instant::now();
    while acquire(&backend, "k").await.map_err(|error| error.kind()) != Err(ErrorKind::AuthFailed) {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    raw.call(&["CONFIG", "SET", "requirepass", "secret"]);
    until_it_works(&backend).await;
}

async fn a_wrong_database_is_an_invalid_argument() {
    let server = RedisServer::start();
    let backend = backend(RedisConfig::from_url(&format!("{}/99", server.url())).unwrap());
    let error = acquire(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
}

async fn tls_trusts_whom_it_is_told_to_trust() {
    let certificates = Certificates::for_server(&["locks.example"]);
    let server = RedisServer::start_with_tls(&certificates, LOCKS_ONLY);
    let url = format!("rediss://locks:secret@127.0.0.1:{}", server.port());
    let right = RedisTls {
        ca: Some(certificates.ca.clone().into_bytes()),
        cert: Some(certificates.client_cert.clone().into_bytes()),
        key: Some(certificates.client_key.clone().into_bytes()),
        servername: Some("locks.example".into()),
        ..RedisTls::default()
    };
    let with = |tls: RedisTls| {
        let mut config = RedisConfig::from_url(&url).unwrap();
        config.tls = Some(tls);
        backend(config)
    };
    pair(&with(right.clone()), "k").await.unwrap();
    let trusting = RedisTls {
        ca: None,
        servername: None,
        reject_unauthorized: false,
        ..right.clone()
    };
    pair(&with(trusting), "k").await.unwrap();
    let other = Certificates::for_server(&[]);
    for tls in [
        RedisTls {
            servername: None,
            ..right.clone()
        },
        RedisTls {
            ca: None,
            ..right.clone()
        },
        RedisTls {
            ca: Some(other.ca.clone().into_bytes()),
            ..right.clone()
        },
        RedisTls {
            cert: None,
            key: None,
            ..right.clone()
        },
    ] {
        // Waiting would not help.
        let error = acquire(&with(tls), "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
    }
    let plain = format!("redis://127.0.0.1:{}", server.port());
    let error = acquire(&backend(RedisConfig::from_url(&plain).unwrap()), "k").await;
    assert!(error.is_err());
    let unfit = RedisTls {
        key: Some(other.client_key.into_bytes()),
        ..right
    };
    let mut config = RedisConfig::from_url(&url).unwrap();
    config.tls = Some(unfit);
    let error = RedisBackend::new(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

async fn a_server_may_be_its_own_authority() {
    let check = async |certificates: &Certificates, name: &str| {
        let server = RedisServer::start_with_tls(certificates, &["tls-auth-clients no"]);
        let url = format!("rediss://127.0.0.1:{}", server.port());
        let mut config = RedisConfig::from_url(&url).unwrap();
        config.tls = Some(RedisTls {
            ca: Some(certificates.ca.clone().into_bytes()),
            servername: Some(name.to_owned()),
            ..RedisTls::default()
        });
        pair(&backend(config), "k").await
    };
    let named = ["-addext", "subjectAltName=DNS:locks.example,IP:127.0.0.1"];
    let made = Certificates::by_openssl(&named, None);
    check(&made, "locks.example").await.unwrap();
    check(&made, "127.0.0.1").await.unwrap();
    let refused = check(&made, "other.example").await.unwrap_err();
    // Without options for names, it is the common name that counts.
    let common = Certificates::by_openssl(&[], None);
    check(&common, "locks.example").await.unwrap();
    let also_refused = check(&common, "127.0.0.1").await.unwrap_err();
    let expired = Certificates::by_openssl(&["-days", "1"], Some("2 years ago"));
    let expired = check(&expired, "locks.example").await.unwrap_err();
    assert!(expired.message().contains("expired"), "{expired}");
    for error in [refused, also_refused, expired] {
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        assert!(error.message().contains("TLS failed"), "{error}");
    }
}
