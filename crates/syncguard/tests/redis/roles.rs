//! What happens on a connection whose server is demoted, or refuses writes, while it lives: on the
//! current Redis, and on the oldest that is supported, which words errors inside scripts otherwise.

use std::sync::Arc;
use std::time::Duration;

use syncguard::redis::{RedisBackend, RedisConfig, RedisLocks};
use syncguard::{AutoExtend, Backend, ErrorKind, LockOptions, lock};

use crate::fake::{FakeSentinel, sentinel, sentinel_that_names};
use crate::load::{TIMEOUT, acquire, backend, backend_at, pair, until_it_works};
use crate::support::clients;
use crate::support::locks::{eventually, key, ttl};
use crate::support::process::free_port;
use crate::support::redis_server::{ADMIN, RedisServer, Version};
use crate::support::suite::tests;

tests![
    a_server_that_is_demoted_and_promoted_serves_again,
    the_primary_that_a_sentinel_names_next_is_used_though_the_demoted_one_still_answers,
    a_primary_that_a_sentinel_names_no_more_is_left_though_it_goes_on,
    a_holder_whose_lock_the_new_primary_lacks_is_told_at_once,
    a_server_that_comes_back_without_what_it_had_is_asked_after_all_that_is_held,
    what_no_primary_says_leads_to_another_question,
    a_sentinel_that_changes_its_mind_at_once_is_believed,
    what_a_script_meets_is_told_by_its_code,
    what_a_script_meets_is_told_by_its_code_through_clients,
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

/// A backend whose calls have time, also on a machine that is busy with other things.
fn patient(sentinel: &FakeSentinel) -> Arc<dyn Backend> {
    let config = RedisConfig::from_url(&sentinel.url()).unwrap();
    Arc::new(RedisBackend::new(config).unwrap())
}

async fn the_primary_that_a_sentinel_names_next_is_used_though_the_demoted_one_still_answers() {
    on_each_version(async |version| {
        let first = RedisServer::start_version(version, &[]);
        let second = RedisServer::start_version(version, &[]);
        // It tells of nothing by itself: what the demoted one answers leads to the other.
        let sentinel = sentinel((first.port(), None), true).await;
        let backend = patient(&sentinel);
        pair(&backend, "k").await.unwrap();
        sentinel.is_listened_to().await;
        sentinel.told.send_replace((second.port(), None));
        // Not of the second: it would take the replica's connection for one of the library.
        first
            .connect()
            .call(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
        let error = acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        until_it_works(&backend).await;
        pair(&backend, "k").await.unwrap();
        connection_of_library(&second);
    })
    .await;
}

/// A backend by a Sentinel that may only be asked, and two servers of which it names the first until it is told otherwise.
async fn two_primaries() -> ([RedisServer; 2], Arc<dyn Backend>, FakeSentinel) {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel((servers[0].port(), None), false).await;
    let backend = patient(&sentinel);
    pair(&backend, "k").await.unwrap();
    (servers, backend, sentinel)
}

async fn a_primary_that_a_sentinel_names_no_more_is_left_though_it_goes_on() {
    let (servers, backend, sentinel) = two_primaries().await;
    let before = connection_of_library(&servers[0]);
    sentinel.told.send_replace((servers[1].port(), None));
    let mut raw = servers[0].connect();
    eventually("the connection has ended", async || {
        let clients = raw.call(&["CLIENT", "LIST", "TYPE", "normal"]);
        !clients.text().contains(&before)
    })
    .await;
    pair(&backend, "k").await.unwrap();
    connection_of_library(&servers[1]);
}

async fn a_holder_whose_lock_the_new_primary_lacks_is_told_at_once() {
    let (servers, backend, sentinel) = two_primaries().await;
    let options = LockOptions {
        // A heartbeat in a hundred seconds.
        ttl: ttl(300_000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("held"), &options).await.unwrap();
    sentinel.told.send_replace((servers[1].port(), None));
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    let lost = lost.expect("long before the next heartbeat");
    assert!(
        lost.message().contains("the store no longer has it"),
        "{lost}"
    );
}

async fn a_server_that_comes_back_without_what_it_had_is_asked_after_all_that_is_held() {
    let mut server = RedisServer::start();
    let backend = backend_at(&server);
    let mut guards = Vec::new();
    for (name, auto_extend) in [("a", Some(AutoExtend::default())), ("b", None)] {
        let options = LockOptions {
            // A heartbeat in a hundred seconds.
            ttl: ttl(300_000),
            auto_extend,
            ..LockOptions::default()
        };
        guards.push(lock(&backend, &key(name), &options).await.unwrap());
    }
    server.kill();
    server.restart();
    // Whoever connects again calls for another reason.
    until_it_works(&backend).await;
    for guard in guards {
        let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
        let lost = lost.expect("long before the next heartbeat");
        assert!(
            lost.message().contains("the store no longer has it"),
            "{lost}"
        );
    }
}

async fn what_no_primary_says_leads_to_another_question() {
    for replicas in [0, 1] {
        let servers = [RedisServer::start(), RedisServer::start()];
        // It tells of nothing by itself.
        let sentinel = sentinel((servers[0].port(), None), true).await;
        let mut config = RedisConfig::from_url(&sentinel.url()).unwrap();
        config.locks.replicas = replicas;
        let backend = backend(config);
        until_it_works(&backend).await;
        sentinel.is_listened_to().await;
        sentinel.told.send_replace((servers[1].port(), None));
        if replicas == 0 {
            let mut raw = servers[0].connect();
            raw.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        }
        // Too few replicas, in either way.
        let error = acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        eventually("the other server is asked", async || {
            let _ = acquire(&backend, "k").await;
            let clients = servers[1].connect().call(&["CLIENT", "LIST"]);
            clients.text().contains(" addr=127.0.0.1:")
        })
        .await;
    }
}

/// Between the search for the primary and the first time that the Sentinel is listened to.
async fn a_sentinel_that_changes_its_mind_at_once_is_believed() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let ports = [servers[0].port(), servers[1].port()];
    let said = move |number| (ports[usize::from(number > 0)], None);
    let sentinel = sentinel_that_names(said, true).await;
    let url = format!("redis+sentinel://127.0.0.1:{sentinel}/main");
    let backend = backend(RedisConfig::from_url(&url).unwrap());
    until_it_works(&backend).await;
    eventually("the other server is asked", async || {
        until_it_works(&backend).await;
        let clients = servers[1].connect().call(&["CLIENT", "LIST"]);
        clients.text().contains(" addr=127.0.0.1:")
    })
    .await;
}

async fn what_a_script_meets_is_told_by_its_code() {
    on_each_version(async |version| {
        let user = "user locks on >secret ~syncguard:* -@all +eval +evalsha +get +time +ping";
        let server = RedisServer::start_version(version, &[ADMIN, user, "save 3600 1000000"]);
        let with = |login: &str| {
            let url = format!("redis://{login}@127.0.0.1:{}", server.port());
            backend(RedisConfig::from_url(&url).unwrap())
        };
        let admin = [("a connection of our own", with("admin:admin"))];
        meets_all_refusals(&server, &admin).await;
        server
            .connect()
            .call(&["RPUSH", "syncguard:k", "of somebody else"]);
        let taken = acquire(&admin[0].1, "k").await.unwrap_err();
        let reader = acquire(&with("locks:secret"), "k2").await.unwrap_err();
        for (error, kind, code) in [
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

async fn what_a_script_meets_is_told_by_its_code_through_clients() {
    on_each_version(async |version| {
        let server = RedisServer::start_version(version, &["save 3600 1000000"]);
        let locks = RedisLocks {
            operation_timeout: TIMEOUT,
            ..RedisLocks::default()
        };
        let fred = syncguard_clients::fred::backend(&clients::fred(server.port()).await, &locks);
        let manager = clients::manager(server.port()).await;
        let redis_rs = syncguard_clients::redis_rs::backend(&manager, &locks);
        let backends: [(_, Arc<dyn Backend>); 2] = [
            ("fred", Arc::new(fred.unwrap())),
            ("redis-rs", Arc::new(redis_rs.unwrap())),
        ];
        meets_all_refusals(&server, &backends).await;
    })
    .await;
}

/// Has the server refuse what scripts write, for one reason after the other.
async fn meets_all_refusals(server: &RedisServer, backends: &[(&str, Arc<dyn Backend>)]) {
    let mut raw = server.connect();
    let refused = async |code: &str| {
        for (name, backend) in backends {
            let error = acquire(backend, "k").await.unwrap_err();
            let kind = ErrorKind::ServiceUnavailable;
            assert_eq!(error.kind(), kind, "{name}: {error:?}");
            let told = format!("redis answered {code}: ");
            assert!(error.message().starts_with(&told), "{name}: {error}");
            // What fred has sent before may have been carried out.
            let is_repeated = *name == "fred";
            assert_eq!(error.is_outcome_unknown(), is_repeated, "{name}: {error:?}");
        }
    };
    for (setting, value, before, code) in [
        ("maxmemory", "1", "0", "OOM"),
        ("min-replicas-to-write", "1", "0", "NOREPLICAS"),
    ] {
        raw.call(&["CONFIG", "SET", setting, value]);
        refused(code).await;
        raw.call(&["CONFIG", "SET", setting, before]);
    }
    // What is to be written there cannot be.
    let file = server.socket().with_file_name("dump.rdb");
    std::fs::create_dir(&file).unwrap();
    raw.call(&["BGSAVE"]);
    eventually("the server cannot save", async || {
        let about = raw.call(&["INFO", "persistence"]);
        about.text().contains("rdb_last_bgsave_status:err")
    })
    .await;
    refused("MISCONF").await;
    std::fs::remove_dir(&file).unwrap();
    raw.call(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    raw.call(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    refused("READONLY").await;
    raw.call(&["REPLICAOF", "NO", "ONE"]);
    for (_, backend) in backends {
        until_it_works(backend).await;
        pair(backend, "k").await.unwrap();
    }
}
