//! How the nodes of a cluster are found and reached.

use std::collections::HashMap;

use syncguard::ErrorKind;
use syncguard::redis::{NatMap, RedisConfig, RedisServer as Server, RedisTls};

use crate::stage::{backend, backend_with, name_on, pair};
use crate::support::attempts::Attempts as _;
use crate::support::certificates::Certificates;
use crate::support::locks::{acquire, key};
use crate::support::process::free_port;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::{ADMIN, RedisServer, Version};
use crate::support::suite::tests;

tests![
    any_node_leads_to_all,
    nodes_that_are_not_there_are_passed_over,
    a_cluster_that_is_not_there_is_unavailable,
    a_server_that_is_no_node_says_so,
    a_node_that_is_taken_for_a_server_says_so,
    a_node_without_a_cluster_serves_nothing,
    addresses_are_translated,
    tls_reaches_all_nodes_by_their_names,
    a_user_with_the_documented_rights_can_do_all,
    before_version_7_too,
    without_the_right_to_read_the_slots_it_says_so,
    wrong_credentials_say_so,
    scripts_that_were_flushed_are_not_noticed,
];

/// Each of these is on a node of its own.
async fn works_on_all_nodes(backend: &std::sync::Arc<dyn syncguard::Backend>) {
    for primary in 0..3 {
        let name = name_on(backend.as_ref(), primary);
        pair(backend, &name).await.unwrap();
        let grant = acquire(backend.as_ref(), &name).await;
        backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn any_node_leads_to_all() {
    let cluster = RedisCluster::start();
    // Also a replica.
    for index in [0, 2, 5] {
        let url = cluster.url_of(|other| other == index, "");
        works_on_all_nodes(&backend(&url)).await;
    }
}

async fn nodes_that_are_not_there_are_passed_over() {
    let cluster = RedisCluster::start();
    // One refuses, one never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    let (gone, node) = (free_port(), cluster.nodes[1].port());
    let url = format!("redis+cluster://127.0.0.1:{gone},127.0.0.1:{silent},127.0.0.1:{node}");
    works_on_all_nodes(&backend(&url)).await;
}

async fn a_cluster_that_is_not_there_is_unavailable() {
    let (a, b) = (free_port(), free_port());
    let backend = backend(&format!("redis+cluster://127.0.0.1:{a},127.0.0.1:{b}"));
    for _ in 0..3 {
        let error = pair(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(error.message().contains("Connection refused"), "{error}");
        assert!(!error.is_outcome_unknown());
    }
}

async fn a_server_that_is_no_node_says_so() {
    let server = RedisServer::start();
    let backend = backend(&format!("redis+cluster://127.0.0.1:{}", server.port()));
    let error = pair(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .contains("not a node of a redis cluster: use redis://"),
        "{error}"
    );
}

async fn a_node_that_is_taken_for_a_server_says_so() {
    let cluster = RedisCluster::start();
    let backend = backend(&format!("redis://127.0.0.1:{}", cluster.nodes[0].port()));
    for number in 0..5 {
        let error = pair(&backend, &number.to_string()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("use redis+cluster://"), "{error}");
    }
}

async fn a_node_without_a_cluster_serves_nothing() {
    let lines = ["cluster-enabled yes", "cluster-config-file nodes.conf"];
    let node = RedisServer::start_node(Version::Installed, None, &lines);
    let backend = backend(&format!("redis+cluster://127.0.0.1:{}", node.port()));
    let error = pair(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(
        error.message().contains("no node of the redis cluster"),
        "{error}"
    );
}

async fn addresses_are_translated() {
    // They announce a name that leads nowhere, and their own ports.
    let settings = [
        "cluster-announce-hostname nowhere.invalid",
        "cluster-preferred-endpoint-type hostname",
    ];
    let cluster = RedisCluster::start_with(Version::Installed, None, &settings);
    cluster.until("all announce it", |raw| {
        let slots = format!("{:?}", raw.call(&["CLUSTER", "SLOTS"]));
        slots.matches("nowhere.invalid").count() == 6
    });
    let error = pair(&backend(&cluster.url()), "k").await.unwrap_err();
    assert!(error.message().contains("nowhere.invalid"), "{error}");
    let pairs: HashMap<_, _> = cluster
        .nodes
        .iter()
        .map(|node| {
            (
                ("nowhere.invalid".to_owned(), node.port()),
                ("127.0.0.1".to_owned(), node.port()),
            )
        })
        .collect();
    let with = |map: NatMap| {
        backend_with(&cluster.url(), |config| {
            let Server::Cluster(set) = &mut config.server else {
                panic!("not a cluster");
            };
            set.nat_map = Some(map);
        })
    };
    works_on_all_nodes(&with(pairs.into_iter().collect())).await;
    works_on_all_nodes(&with(NatMap::new(|_, port| {
        Some(("127.0.0.1".to_owned(), port))
    })))
    .await;
}

async fn tls_reaches_all_nodes_by_their_names() {
    let by_name = [
        "cluster-announce-hostname localhost",
        "cluster-preferred-endpoint-type hostname",
    ];
    for (name, settings) in [("127.0.0.1", &[][..]), ("localhost", &by_name[..])] {
        let certificates = Certificates::for_server(&[name]);
        let cluster = RedisCluster::start_with(Version::Installed, Some(&certificates), settings);
        let url = cluster.url().replace("127.0.0.1", name);
        let trusting = |config: &mut RedisConfig| {
            config.tls = Some(RedisTls {
                ca: Some(certificates.ca.clone().into_bytes()),
                cert: Some(certificates.client_cert.clone().into_bytes()),
                key: Some(certificates.client_key.clone().into_bytes()),
                ..RedisTls::default()
            });
        };
        works_on_all_nodes(&backend_with(&url, trusting)).await;
        let error = pair(&backend(&url), "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed);
        assert!(error.message().contains("TLS failed"), "{error}");
    }
}

/// A user who may do what docs/redis.md says.
const LOCKS: &str = "user locks on >secret ~{syncguard:* &{syncguard:* -@all +eval +evalsha +get +set +del +zadd +zrem +zrevrange +zremrangebyscore +pexpire +incr +time +ping +asking +cluster|slots +publish +spublish +subscribe +unsubscribe +ssubscribe +sunsubscribe";

fn users(lines: &[&str]) -> RedisCluster {
    users_of(Version::Installed, lines)
}

fn users_of(version: Version, lines: &[&str]) -> RedisCluster {
    let between = [
        "user default off",
        "masteruser admin",
        "masterauth admin",
        ADMIN,
    ];
    let settings: Vec<_> = between.iter().chain(lines).copied().collect();
    RedisCluster::start_with(version, None, &settings)
}

async fn a_user_with_the_documented_rights_can_do_all() {
    can_do_all(users(&[LOCKS])).await;
}

async fn before_version_7_too() {
    let line = LOCKS
        .replace(" +spublish", "")
        .replace(" +ssubscribe +sunsubscribe", "")
        // A user had the right to all channels there, unless that was taken away.
        .replace(" &", " resetchannels &");
    can_do_all(users_of(Version::Oldest, &[&line])).await;
}

async fn can_do_all(cluster: RedisCluster) {
    let backend = backend_with(&cluster.url_of(|_| true, "locks:secret@"), |config| {
        config.locks.cleanup_in_is_locked = true;
    });
    works_on_all_nodes(&backend).await;
    acquire(backend.as_ref(), "k").await;
    assert!(backend.force_release(&key("k")).await.unwrap());
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    let held = acquire(backend.as_ref(), "k").await;
    let waiter = crate::support::waiters::wait_listening(&backend, "k").await;
    backend.release(&held.lock_id).await.unwrap();
    crate::support::waiters::soon(waiter).await.unwrap();
}

async fn without_the_right_to_read_the_slots_it_says_so() {
    let line = LOCKS.replace(" +cluster|slots", "");
    let cluster = users(&[&line]);
    let backend = backend(&cluster.url_of(|_| true, "locks:secret@"));
    let error = pair(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.message().contains("cluster|slots"), "{error}");
}

async fn wrong_credentials_say_so() {
    let cluster = users(&[LOCKS]);
    for login in ["locks:wrong@", ""] {
        let error = pair(&backend(&cluster.url_of(|_| true, login)), "k")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
        assert!(!error.message().contains("wrong@"), "{error}");
    }
}

async fn scripts_that_were_flushed_are_not_noticed() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    for _ in 0..2 {
        works_on_all_nodes(&backend).await;
        for node in &cluster.nodes[..3] {
            node.connect().call(&["SCRIPT", "FLUSH"]);
        }
    }
    works_on_all_nodes(&backend).await;
}
