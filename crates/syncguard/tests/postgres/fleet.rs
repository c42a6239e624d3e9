//! Our backends and writers like SyncGuard for TypeScript, on the same keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{AcquireOutcome, AcquireRequest, ReleaseOutcome};
use tokio::task::{JoinSet, yield_now};

use crate::canonical::Canonical;
use crate::stage::{backend, options, server};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, ttl};

/// Who takes part: two backends, and three canonical writers.
pub(crate) struct Fleet {
    pub(crate) keys: usize,
    /// How many tasks each backend has.
    pub(crate) tasks: usize,
    /// How often each task and each writer holds a lock.
    pub(crate) rounds: usize,
    pub(crate) operation_timeout: Duration,
}

/// Whether a key is held, and its fences in the order of the grants.
#[derive(Default)]
struct Seen {
    is_held: bool,
    fences: Vec<i64>,
}

#[derive(Default)]
struct Witness(Mutex<HashMap<String, Seen>>);

impl Witness {
    fn enter(&self, name: &str, fence: i64) {
        let mut all = self.0.lock().unwrap();
        let seen = all.entry(name.to_owned()).or_default();
        assert!(!seen.is_held, "two holders");
        seen.is_held = true;
        seen.fences.push(fence);
    }

    fn leave(&self, name: &str) {
        self.0.lock().unwrap().get_mut(name).unwrap().is_held = false;
    }

    fn check(&self, count: usize) {
        let all = self.0.lock().unwrap();
        let fences = all.values().map(|seen| &seen.fences);
        assert_eq!(fences.clone().map(Vec::len).sum::<usize>(), count);
        for fences in fences {
            assert!(fences.is_sorted_by(|earlier, later| earlier < later));
        }
    }
}

impl Fleet {
    /// Lets all take and release locks, and checks that they exclude each other.
    pub(crate) async fn run(self, config: PostgresConfig) {
        let Self { keys, rounds, .. } = self;
        let (_, tables) = backend(config.clone()).await;
        let witness = Arc::new(Witness::default());
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            let options = PostgresOptions {
                operation_timeout: self.operation_timeout,
                ..options(&tables)
            };
            let ours = Arc::new(PostgresBackend::new(config.clone(), options).unwrap());
            for number in 0..self.tasks {
                let (ours, witness) = (Arc::clone(&ours), Arc::clone(&witness));
                tasks.spawn(async move {
                    for round in 0..rounds {
                        let name = format!("k{}", (number + round) % keys);
                        let grant = loop {
                            let request = AcquireRequest::new(key(&name), ttl(60_000)).unwrap();
                            match ours.acquire(&request).await.unwrap() {
                                AcquireOutcome::Acquired(grant) => break grant,
                                _ => yield_now().await,
                            }
                        };
                        witness.enter(&name, i64::try_from(grant[0].fence.get()).unwrap());
                        yield_now().await;
                        witness.leave(&name);
                        let released = ours.release(&grant[0].lock_id).await.unwrap();
                        assert_eq!(released, ReleaseOutcome::Released);
                    }
                });
            }
        }
        for number in 0..3 {
            let mut other = Canonical::new(server().client().await, &tables);
            let witness = Arc::clone(&witness);
            tasks.spawn(async move {
                for round in 0..rounds {
                    let name = format!("k{}", (number + round) % keys);
                    let held = loop {
                        // A deadlock or a serialization failure is another chance.
                        if let Ok(Some(held)) = other.acquire(&key(&name), 60_000).await {
                            break held;
                        }
                    };
                    witness.enter(&name, held.fence);
                    yield_now().await;
                    witness.leave(&name);
                    assert!(other.release(&held.lock_id).await.unwrap());
                }
            });
        }
        tasks.join_all().await;
        witness.check((2 * self.tasks + 3) * rounds);
        let left = format!("SELECT count(*) FROM {}", tables.locks());
        let client = server().client().await;
        let left: i64 = client.query_one(&left, &[]).await.unwrap().get(0);
        assert_eq!(left, 0);
    }
}

/// A new role whose transactions are serializable, in a session that says nothing else.
pub(crate) async fn serializable(role: &str) -> PostgresConfig {
    let client = server().client().await;
    let sql = format!(
        "CREATE ROLE {role} SUPERUSER LOGIN; \
         ALTER ROLE {role} SET default_transaction_isolation = 'serializable'"
    );
    client.batch_execute(&sql).await.unwrap();
    PostgresConfig {
        user: Some(role.to_owned()),
        ..server().unix()
    }
}
