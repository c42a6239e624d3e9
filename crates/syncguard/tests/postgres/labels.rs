//! Owner labels beside writers that do not know them.

use std::sync::Arc;

use crate::support::attempts::Attempts as _;
use syncguard::postgres::PostgresBackend;
use syncguard::{AcquireOutcome, AcquireRequest, Labels, Lookup, Owner};

use crate::canonical::Canonical;
use crate::groups::{COUNT, at_once, granted};
use crate::stage::{backend, options, own_tables, server};
use crate::support::locks::{key, ttl};
use crate::support::suite::tests;

tests![
    a_label_left_by_an_older_writer_is_not_shown,
    tables_without_labels_will_do,
    tables_without_labels_will_do_for_many,
    labels_come_with_the_column,
];

async fn acquire_as(backend: &PostgresBackend, owner: &str, ttl_ms: i64) {
    let mut request = AcquireRequest::new(key("k"), ttl(ttl_ms)).unwrap();
    request.labels.owner = Some(Owner::new(owner).unwrap());
    let outcome = backend.acquire(&request).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Acquired(_)));
}

async fn shown(backend: &PostgresBackend) -> Option<String> {
    let record = backend.lookup(&Lookup::Key(key("k"))).await.unwrap();
    let owner = record.unwrap().labels.owner;
    owner.map(|owner| owner.as_str().to_owned())
}

async fn a_label_left_by_an_older_writer_is_not_shown() {
    let (ours, tables) = backend(server().unix()).await;
    acquire_as(&ours, "first", 60_000).await;
    assert_eq!(shown(&ours).await.as_deref(), Some("first"));
    let client = server().client().await;
    let expire = format!("UPDATE {} SET expires_at_ms = 1", tables.locks());
    client.batch_execute(&expire).await.unwrap();
    let mut older = Canonical::new(server().client().await, &tables);
    assert!(older.acquire(&key("k"), 60_000).await.unwrap().is_some());
    let left = format!("SELECT owner IS NOT NULL FROM {}", tables.locks());
    let left: bool = client.query_one(&left, &[]).await.unwrap().get(0);
    assert!(
        left,
        "the older writer has removed the label: the test tests nothing"
    );
    assert_eq!(shown(&ours).await, None);
    // Nor when we take over without a label.
    client.batch_execute(&expire).await.unwrap();
    let mut unlabelled = AcquireRequest::new(key("k"), ttl(60_000)).unwrap();
    unlabelled.labels = Labels::default();
    assert!(!ours.acquire(&unlabelled).await.unwrap().is_locked());
    assert_eq!(shown(&ours).await, None);
}

/// Tables as the documents for older versions have them.
pub(crate) async fn older_tables() -> (PostgresBackend, syncguard::postgres::Tables) {
    let tables = own_tables();
    let (locks, fences) = (tables.locks(), tables.fences());
    let sql = format!(
        "CREATE TABLE {locks} (key TEXT PRIMARY KEY, lock_id TEXT NOT NULL, \
         expires_at_ms BIGINT NOT NULL, acquired_at_ms BIGINT NOT NULL, fence TEXT NOT NULL, \
         user_key TEXT NOT NULL); \
         CREATE UNIQUE INDEX idx_{locks}_lock_id ON {locks} (lock_id); \
         CREATE INDEX idx_{locks}_expires ON {locks} (expires_at_ms); \
         CREATE TABLE {fences} (fence_key TEXT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0, \
         key_debug TEXT)"
    );
    server().client().await.batch_execute(&sql).await.unwrap();
    let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    (backend, tables)
}

async fn tables_without_labels_will_do() {
    let (ours, _) = older_tables().await;
    for _ in 0..2 {
        acquire_as(&ours, "me", 60_000).await;
        assert_eq!(shown(&ours).await, None);
        assert!(ours.force_release(&key("k")).await.unwrap());
    }
}

/// So many at once that they go in groups.
async fn tables_without_labels_will_do_for_many() {
    let (ours, _) = older_tables().await;
    let ours = Arc::new(ours);
    for round in 0..2 {
        let names = (0..COUNT).map(|number| key(&format!("{round}:{number}")));
        let asked = names.map(|key| {
            let ours = Arc::clone(&ours);
            async move {
                let mut request = AcquireRequest::new(key, ttl(60_000)).unwrap();
                request.labels.owner = Some(Owner::new("me").unwrap());
                ours.acquire(&request).await
            }
        });
        assert_eq!(granted(at_once(asked).await).len(), COUNT);
    }
}

async fn labels_come_with_the_column() {
    let (ours, _) = older_tables().await;
    acquire_as(&ours, "me", 60_000).await;
    assert!(ours.force_release(&key("k")).await.unwrap());
    ours.setup_schema().await.unwrap();
    acquire_as(&ours, "me", 60_000).await;
    assert_eq!(shown(&ours).await.as_deref(), Some("me"));
}
