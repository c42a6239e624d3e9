//! Who excludes whom, with writers like SyncGuard for TypeScript among them.

use std::sync::Arc;
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{AcquireOutcome, AcquireRequest, DEFAULT_OPERATION_TIMEOUT};
use tokio::task::JoinSet;

use crate::canonical::Canonical;
use crate::fleet::{Fleet, serializable};
use crate::stage::{backend, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, ttl};
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    a_mixed_fleet_on_one_key,
    a_mixed_fleet_through_a_pooler,
    a_mixed_fleet_where_transactions_are_serializable,
    a_mixed_fleet_in_groups,
    a_mixed_fleet_in_groups_through_a_pooler,
    a_mixed_fleet_in_groups_where_transactions_are_serializable,
    a_mixed_fleet_takes_over_expired_locks,
    a_stale_snapshot_grants_nothing,
    a_stale_snapshot_does_not_hide_a_first_grant,
    a_release_during_the_wait_is_not_an_obstacle,
];

async fn mixed_fleet(config: PostgresConfig) {
    let fleet = Fleet {
        keys: 1,
        tasks: 3,
        rounds: 100,
        operation_timeout: DEFAULT_OPERATION_TIMEOUT,
    };
    fleet.run(config).await;
}

async fn a_mixed_fleet_on_one_key() {
    mixed_fleet(server().tcp()).await;
}

async fn a_mixed_fleet_through_a_pooler() {
    let bouncer = PgBouncer::start(server(), false);
    mixed_fleet(bouncer.config()).await;
}

async fn a_mixed_fleet_where_transactions_are_serializable() {
    let config = serializable("strict").await;
    for prepare in [true, false] {
        mixed_fleet(PostgresConfig {
            prepare,
            ..config.clone()
        })
        .await;
    }
}

/// With so few connections, and for so many tasks, groups are the rule.
async fn mixed_fleet_in_groups(config: PostgresConfig) {
    let fleet = Fleet {
        keys: 5,
        tasks: 12,
        rounds: 40,
        operation_timeout: Duration::from_secs(30),
    };
    let config = PostgresConfig {
        pool_size: 2,
        ..config
    };
    fleet.run(config).await;
}

async fn a_mixed_fleet_in_groups() {
    mixed_fleet_in_groups(server().tcp()).await;
}

async fn a_mixed_fleet_in_groups_through_a_pooler() {
    let bouncer = PgBouncer::start(server(), true);
    mixed_fleet_in_groups(bouncer.config()).await;
}

async fn a_mixed_fleet_in_groups_where_transactions_are_serializable() {
    mixed_fleet_in_groups(PostgresConfig {
        prepare: false,
        ..serializable("stricter").await
    })
    .await;
}

/// Nobody releases: each grant waits for the one before it to expire, the tolerance included.
async fn a_mixed_fleet_takes_over_expired_locks() {
    let (ours, tables) = backend(server().unix()).await;
    let ours = Arc::new(ours);
    let mut tasks = JoinSet::new();
    let taken = Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..8 {
        let (ours, taken, tables) = (Arc::clone(&ours), Arc::clone(&taken), tables.clone());
        tasks.spawn(async move {
            let mut other = Canonical::new(server().client().await, &tables);
            while taken.lock().unwrap().len() < 5 {
                let grant = if number % 2 == 0 {
                    let request = AcquireRequest::new(key("k"), ttl(1)).unwrap();
                    match ours.acquire(&request).await.unwrap() {
                        AcquireOutcome::Acquired(grant) => {
                            let fence = i64::try_from(grant[0].fence.get()).unwrap();
                            (fence, grant[0].expires_at_ms)
                        }
                        _ => continue,
                    }
                } else {
                    match other.acquire(&key("k"), 1).await.unwrap() {
                        Some(held) => (held.fence, held.expires_at_ms),
                        None => continue,
                    }
                };
                taken.lock().unwrap().push(grant);
            }
        });
    }
    tasks.join_all().await;
    let mut taken = taken.lock().unwrap();
    taken.sort_unstable();
    for pair in taken.windows(2) {
        let [(earlier, expiry), (later, next_expiry)] = pair else {
            unreachable!()
        };
        assert!(earlier < later, "a fence came twice");
        // Locks of one millisecond.
        assert!(*next_expiry > expiry + 1000, "taken before its time");
    }
}

/// A backend whose sessions have a name of their own.
async fn named(name: &str) -> (Arc<PostgresBackend>, Tables) {
    let (ours, tables) = backend(PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().unix()
    })
    .await;
    (Arc::new(ours), tables)
}

/// Ours takes its snapshot of a free key and waits for the advisory lock, while the holder of the
/// advisory lock writes a lock and commits.
async fn a_stale_snapshot_grants_nothing() {
    for counter_exists in [false, true] {
        let (ours, tables) = named("stale").await;
        if counter_exists {
            let grant = crate::support::locks::acquire(&*ours, "k").await;
            ours.release(&grant.lock_id).await.unwrap();
        }
        let mut writer = server().client().await;
        let watcher = server().client().await;
        let t = writer.transaction().await.unwrap();
        let advisory = "SELECT pg_advisory_xact_lock(hashtext('k'))";
        t.execute(advisory, &[]).await.unwrap();
        let mut waiters = JoinSet::new();
        for _ in 0..3 {
            let ours = Arc::clone(&ours);
            waiters.spawn(async move {
                crate::support::locks::try_acquire(&*ours, "k")
                    .await
                    .unwrap()
            });
        }
        until_waiting(&watcher, "stale", 3).await;
        let fence = if counter_exists { 2 } else { 1 };
        let write = format!(
            "INSERT INTO {0} VALUES ('fence:k', 1) ON CONFLICT (fence_key) DO UPDATE SET fence = 2; \
             INSERT INTO {1} VALUES ('k', 'AAAAAAAAAAAAAAAAAAAAAA', \
             floor(extract(epoch FROM now()) * 1000) + 60000, 0, '00000000000000{fence}', 'k')",
            tables.fences(),
            tables.locks(),
        );
        t.batch_execute(&write).await.unwrap();
        t.commit().await.unwrap();
        for outcome in waiters.join_all().await {
            assert!(outcome.is_locked());
        }
        let counter = format!("SELECT fence FROM {}", tables.fences());
        let counter: i64 = watcher.query_one(&counter, &[]).await.unwrap().get(0);
        assert_eq!(counter, fence, "a refused attempt spent a number");
    }
}

/// A lock row that was written without a counter, or beside it, still stops us.
async fn a_stale_snapshot_does_not_hide_a_first_grant() {
    let (ours, tables) = named("hidden").await;
    let mut writer = server().client().await;
    let watcher = server().client().await;
    let t = writer.transaction().await.unwrap();
    let advisory = "SELECT pg_advisory_xact_lock(hashtext('k'))";
    t.execute(advisory, &[]).await.unwrap();
    let waiter = {
        let ours = Arc::clone(&ours);
        tokio::spawn(async move {
            crate::support::locks::try_acquire(&*ours, "k")
                .await
                .unwrap()
        })
    };
    until_waiting(&watcher, "hidden", 1).await;
    let write = format!(
        "INSERT INTO {} VALUES ('k', 'AAAAAAAAAAAAAAAAAAAAAA', \
         floor(extract(epoch FROM now()) * 1000) + 60000, 0, '000000000000001', 'k')",
        tables.locks(),
    );
    t.batch_execute(&write).await.unwrap();
    t.commit().await.unwrap();
    assert!(waiter.await.unwrap().is_locked());
    let lookup = syncguard::Lookup::Key(key("k"));
    let held = ours.lookup(&lookup).await.unwrap().unwrap();
    assert_eq!(held.lock_id.as_str(), "AAAAAAAAAAAAAAAAAAAAAA");
}

/// Ours waits to write over an expired row that a release is about to delete.
async fn a_release_during_the_wait_is_not_an_obstacle() {
    let (ours, tables) = named("deleted").await;
    let write = format!(
        "INSERT INTO {} VALUES ('k', 'AAAAAAAAAAAAAAAAAAAAAA', 1, 0, '000000000000001', 'k')",
        tables.locks(),
    );
    let mut writer = server().client().await;
    let watcher = server().client().await;
    writer.batch_execute(&write).await.unwrap();
    let t = writer.transaction().await.unwrap();
    let delete = format!("DELETE FROM {}", tables.locks());
    t.batch_execute(&delete).await.unwrap();
    let waiter = {
        let ours = Arc::clone(&ours);
        tokio::spawn(async move {
            crate::support::locks::try_acquire(&*ours, "k")
                .await
                .unwrap()
        })
    };
    until_waiting(&watcher, "deleted", 1).await;
    t.commit().await.unwrap();
    assert!(matches!(waiter.await.unwrap(), AcquireOutcome::Acquired(_)));
}
