//! What happens on a connection whose server is demoted, or refuses writes, while it lives: on the
//! current Redis, and on the oldest that is supported, which words errors inside scripts otherwise.

use syncguard::ErrorKind;
use syncguard::redis::RedisConfig;

use crate::load::{acquire, backend, backend_at, pair, until_it_works};
use crate::support::process::free_port;
use crate::support::redis_server::{ADMIN, RedisServer, Version};
use crate::support::suite::tests;

tests![
    a_server_that_is_demoted_and_promoted_serves_again,
    the_primary_that_a_sentinel_names_next_is_used_though_the_demoted_one_still_answers,
    what_a_script_meets_is_told_by_its_code,
];

async fn on_each_version<F: Future<Output = ()>>(test: impl Fn(Version) -> F) {
    for version in [Version::Installed, Version::Oldest] {
        test(version).await;
    }
}

/// The number that the server gave the connection of the library.
fn connection_of_library(server: &RedisServer) -> String {
    let clients = server.connect().call(&["CLIENT", "LIST", "TYPE", "normal"]);
    // The tests' own come by the socket in the file system.
    let lines = clients.text().lines();
    let mut lines = lines.filter(|line| line.contains(" addr=127.0.0.1:"));
    let line = lines.next().expect("a connection");
    assert_eq!(lines.next(), None, "more than one connection");
    line.split_whitespace().next().unwrap().to_owned()
}

async fn a_server_that_is_demoted_and_promoted_serves_again() {
    on_each_version(async |version| {
        let server = RedisServer::start_version(version, &[]);
        let backend = backend_at(&server);
        pair(&backend, "k").await.unwrap();
        let before = connection_of_library(&server);
        let mut raw = server.connect();
        raw.call(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
        for _ in 0..3 {
            let error = acquire(&backend, "k").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
            assert!(!error.is_outcome_unknown(), "a replica does nothing");
        }
        raw.call(&["REPLICAOF", "NO", "ONE"]);
        until_it_works(&backend).await;
        pair(&backend, "k").await.unwrap();
        assert_ne!(connection_of_library(&server), before);
    })
    .await;
}

async fn the_primary_that_a_sentinel_names_next_is_used_though_the_demoted_one_still_answers() {
    on_each_version(async |version| {
        let first = RedisServer::start_version(version, &[]);
        let second = RedisServer::start_version(version, &[]);
        let (sentinel, primary) = crate::fake::sentinel(first.port()).await;
        let url = format!("redis+sentinel://127.0.0.1:{sentinel}/main");
        let backend = backend(RedisConfig::from_url(&url).unwrap());
        pair(&backend, "k").await.unwrap();
        primary.send_replace(second.port());
        first
            .connect()
            .call(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]);
        let error = acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        pair(&backend, "k").await.unwrap();
        connection_of_library(&second);
    })
    .await;
}

async fn what_a_script_meets_is_told_by_its_code() {
    on_each_version(async |version| {
        let user = "user locks on >secret ~syncguard:* -@all +eval +evalsha +get +time +ping";
        let server = RedisServer::start_version(version, &[ADMIN, user]);
        let with = |login: &str| {
            let url = format!("redis://{login}@127.0.0.1:{}", server.port());
            backend(RedisConfig::from_url(&url).unwrap())
        };
        let admin = with("admin:admin");
        let mut raw = server.connect();
        raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
        let full = acquire(&admin, "k").await.unwrap_err();
        raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
        raw.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let alone = acquire(&admin, "k").await.unwrap_err();
        raw.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        raw.call(&["RPUSH", "syncguard:k", "of somebody else"]);
        let taken = acquire(&admin, "k").await.unwrap_err();
        let reader = acquire(&with("locks:secret"), "k2").await.unwrap_err();
        for (error, kind, code) in [
            (full, ErrorKind::ServiceUnavailable, "OOM"),
            (alone, ErrorKind::ServiceUnavailable, "NOREPLICAS"),
            (taken, ErrorKind::InvalidArgument, "WRONGTYPE"),
            (reader, ErrorKind::AuthFailed, "NOPERM"),
        ] {
            assert_eq!(error.kind(), kind, "{version:?}: {error:?}");
            assert!(error.message().contains(code), "{version:?}: {error}");
            assert!(!error.is_outcome_unknown(), "{version:?}: {error:?}");
        }
    })
    .await;
}
