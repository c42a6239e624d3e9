//! Failovers by Sentinels.

use std::sync::Arc;
use std::time::Duration;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, LockOptions, lock};

use crate::support::failover::{Make, Seen, held, no_lock_had_two, watched};
use crate::support::locks::{eventually, key};
use crate::support::redis_server::RedisServer;
use crate::support::sentinel_group::SentinelGroup;
use crate::support::suite::tests;

tests![
    a_planned_failover_gives_no_lock_to_two,
    a_planned_failover_gives_no_lock_to_two_where_replicas_come_late,
    a_planned_failover_gives_no_lock_to_two_where_primaries_need_replicas,
    a_primary_that_is_killed_gives_no_lock_to_two,
    all_connections_leave_a_former_primary_before_it_knows,
];

fn backend(url: &str, replicas: u32) -> Arc<dyn Backend> {
    let mut config = RedisConfig::from_url(url).unwrap();
    config.locks.replicas = replicas;
    Arc::new(RedisBackend::new(config).unwrap())
}

fn make(group: &SentinelGroup) -> Make {
    let url = group.url();
    Arc::new(move |replicas| backend(&url, replicas))
}

/// For how long two may hold a lock: until all are told of the new primary, and the heartbeats that they send at once are answered.
const OVERLAP: Duration = Duration::from_secs(1);
/// Followed by replicas again at once, where a full copy begins without a pause.
const AT_ONCE: &str = "repl-diskless-sync-delay 0";
/// The default of Redis, in seconds.
const DELAYED: &str = "repl-diskless-sync-delay 5";

/// How often a test begins anew.
const TRIES: usize = 5;

/// What is seen of a failover of groups with these settings. On a busy machine a server may be silent for the half second that Sentinels
/// give it. Then they fail over again, to one that has just come back empty, and no client can know better: such a run says nothing.
async fn seen(settings: &[&str], fail: impl Fn(&mut SentinelGroup)) -> Vec<Seen> {
    for _ in 0..TRIES {
        let mut group = SentinelGroup::start(2, settings);
        let all = watched(make(&group), &[0, 1, 2], || fail(&mut group)).await;
        if group.failovers() == 1 {
            no_lock_had_two(&all, OVERLAP);
            return all;
        }
    }
    panic!("the Sentinels fail over again and again");
}

async fn a_planned_failover_gives_no_lock_to_two() {
    let all = seen(&[AT_ONCE], |group| group.fail_over()).await;
    // The new primary knows it, and is told of it at once.
    assert_eq!(all[0].lost, None, "{all:?}");
}

async fn a_planned_failover_gives_no_lock_to_two_where_replicas_come_late() {
    let all = seen(&[DELAYED], |group| group.fail_over()).await;
    assert_eq!(all[0].lost, None, "{all:?}");
}

async fn a_planned_failover_gives_no_lock_to_two_where_primaries_need_replicas() {
    let settings = [AT_ONCE, "min-replicas-to-write 1"];
    seen(&settings, |group| group.fail_over()).await;
}

async fn a_primary_that_is_killed_gives_no_lock_to_two() {
    seen(&[AT_ONCE], SentinelGroup::lose_primary).await;
}

/// The connections of a backend that a server has.
fn connections(server: &RedisServer) -> usize {
    // A server that changes its role ends connections.
    let clients = (0..10).find_map(|_| server.connect().try_call(&["CLIENT", "LIST"]).ok());
    clients.unwrap().text().matches(" name=mine ").count()
}

/// Those for calls, for heartbeats, for what waits for replicas, and on which the server tells what is freed.
async fn all_connections_leave_a_former_primary_before_it_knows() {
    let group = SentinelGroup::start(2, &[AT_ONCE]);
    let url = format!("{}?connectionName=mine", group.url());
    let [plain, replicated] = [0, 1].map(|replicas| backend(&url, replicas));
    let guards = [held(&plain, "a").await, held(&replicated, "b").await];
    let waiting = [("a", &plain), ("b", &replicated)].map(|(name, backend)| {
        let backend = Arc::clone(backend);
        tokio::spawn(async move { lock(&backend, &key(name), &LockOptions::default()).await })
    });
    // For calls, and for what tells; for grants, for extensions, and for what tells.
    let wanted = 2 + 3;
    eventually("all are open", async || {
        connections(&group.servers[0]) == wanted
    })
    .await;
    tokio::task::block_in_place(|| group.fail_over());
    eventually("none leads to the former primary", async || {
        connections(&group.servers[0]) == 0
    })
    .await;
    let role = group.servers[0].connect().call(&["ROLE"]);
    assert_eq!(role.list()[0].text(), "master", "it has not been told yet");
    eventually("all lead to another", async || {
        let others = group.servers[1..].iter();
        others.map(connections).sum::<usize>() == wanted
    })
    .await;
    // Who waits hears of a release there.
    for guard in guards {
        assert!(guard.release().await.unwrap());
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}
