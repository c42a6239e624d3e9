//! The clock is read after a wait for another's row lock, not before it.

use std::sync::Arc;
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{Absence, AcquireOutcome, AcquireRequest, ExtendOutcome, Grant, ReleaseOutcome};
use tokio::task::JoinHandle;

use crate::stage::{backend, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, ttl};
use crate::support::suite::tests;

tests![
    an_extension_that_waits_past_the_expiry_comes_too_late,
    a_release_that_waits_past_the_expiry_says_so,
    a_forced_release_that_waits_past_the_expiry_says_so,
    an_acquisition_that_waits_has_its_whole_ttl,
    a_lock_that_is_taken_over_during_the_wait_is_left_alone,
];

/// A lock whose row another session has locked, and what waits for it.
struct Scene {
    backend: Arc<PostgresBackend>,
    tables: Tables,
    writer: tokio_postgres::Client,
    grant: Grant,
}

impl Scene {
    async fn new(name: &str, ttl_ms: i64) -> Self {
        let (backend, tables) = backend(PostgresConfig {
            application_name: Some(name.to_owned()),
            ..server().unix()
        })
        .await;
        let request = AcquireRequest::new(key("k"), ttl(ttl_ms)).unwrap();
        let AcquireOutcome::Acquired(mut grants) = backend.acquire(&request).await.unwrap() else {
            panic!("locked");
        };
        let grant = grants.remove(0);
        Self {
            backend: Arc::new(backend),
            tables,
            writer: server().client().await,
            grant,
        }
    }

    /// Locks the row, starts `work`, waits until it waits, runs `sql`, lets `time` pass, and lets go.
    async fn run<T: Send + 'static>(
        &self,
        name: &str,
        sql: &str,
        time: Duration,
        work: impl FnOnce(Arc<PostgresBackend>, Grant) -> JoinHandle<T>,
    ) -> T {
        let lock = format!("BEGIN; SELECT FROM {} FOR UPDATE", self.tables.locks());
        self.writer.batch_execute(&lock).await.unwrap();
        let work = work(Arc::clone(&self.backend), self.grant.clone());
        until_waiting(&server().client().await, name, 1).await;
        let sql = sql.replace("{locks}", self.tables.locks());
        self.writer.batch_execute(&sql).await.unwrap();
        // The server's clock goes on while the row is locked.
        tokio::time::sleep(time).await;
        self.writer.batch_execute("COMMIT").await.unwrap();
        work.await.unwrap()
    }
}

const PAST_EXPIRY: Duration = Duration::from_millis(1700);

async fn an_extension_that_waits_past_the_expiry_comes_too_late() {
    let scene = Scene::new("late extend", 500).await;
    let outcome = scene
        .run("late extend", "", PAST_EXPIRY, |backend, grant| {
            tokio::spawn(async move { backend.extend(&grant.lock_id, ttl(60_000)).await.unwrap() })
        })
        .await;
    assert_eq!(outcome, ExtendOutcome::absent(Absence::Expired));
    assert!(!scene.backend.is_locked(&key("k")).await.unwrap());
}

async fn a_release_that_waits_past_the_expiry_says_so() {
    let scene = Scene::new("late release", 500).await;
    let outcome = scene
        .run("late release", "", PAST_EXPIRY, |backend, grant| {
            tokio::spawn(async move { backend.release(&grant.lock_id).await.unwrap() })
        })
        .await;
    assert_eq!(outcome, ReleaseOutcome::Absent(Absence::Expired));
}

async fn a_forced_release_that_waits_past_the_expiry_says_so() {
    let scene = Scene::new("late force", 500).await;
    let held = scene
        .run("late force", "", PAST_EXPIRY, |backend, _| {
            tokio::spawn(async move { backend.force_release(&key("k")).await.unwrap() })
        })
        .await;
    assert!(!held);
}

async fn an_acquisition_that_waits_has_its_whole_ttl() {
    let scene = Scene::new("waiting", 1).await;
    let expire = format!("UPDATE {} SET expires_at_ms = 1", scene.tables.locks());
    scene.writer.batch_execute(&expire).await.unwrap();
    let outcome = scene
        .run("waiting", "", PAST_EXPIRY, |backend, _| {
            let request = AcquireRequest::new(key("k"), ttl(1000)).unwrap();
            tokio::spawn(async move { backend.acquire(&request).await.unwrap() })
        })
        .await;
    let AcquireOutcome::Acquired(mut grants) = outcome else {
        panic!("locked");
    };
    let grant = grants.remove(0);
    let lookup = syncguard::Lookup::LockId(grant.lock_id);
    let record = scene.backend.lookup(&lookup).await.unwrap().unwrap();
    assert_eq!(record.expires_at_ms - record.acquired_at_ms, 1000);
    assert_eq!(record.expires_at_ms, grant.expires_at_ms);
    assert!(
        record.read_at_ms - record.acquired_at_ms < 500,
        "time from before the wait"
    );
}

async fn a_lock_that_is_taken_over_during_the_wait_is_left_alone() {
    for (number, name) in ["taken extend", "taken release"].into_iter().enumerate() {
        let scene = Scene::new(name, 60_000).await;
        let take_over = "UPDATE {locks} SET lock_id = 'AAAAAAAAAAAAAAAAAAAAAA'";
        let nothing = scene
            .run(name, take_over, Duration::ZERO, move |backend, grant| {
                tokio::spawn(async move {
                    if number == 0 {
                        backend.extend(&grant.lock_id, ttl(1)).await.unwrap()
                            == ExtendOutcome::absent(Absence::NotFound)
                    } else {
                        backend.release(&grant.lock_id).await.unwrap()
                            == ReleaseOutcome::Absent(Absence::NotFound)
                    }
                })
            })
            .await;
        assert!(nothing, "{name}");
        let lookup = syncguard::Lookup::Key(key("k"));
        let record = scene.backend.lookup(&lookup).await.unwrap().unwrap();
        assert_eq!(record.lock_id.as_str(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(record.expires_at_ms, scene.grant.expires_at_ms);
    }
}
