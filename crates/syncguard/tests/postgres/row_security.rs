//! Row level security on the tables of locks.

use std::sync::Arc;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{Backend, ErrorKind, Fact, LockId, LockOptions, Lookup, PageRequest, lock};

use crate::groups::{COUNT, at_once};
use crate::guards::{commit_guarded, refusal};
use crate::stage::{backend, options, server};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key, try_acquire};
use crate::support::suite::tests;

tests![
    what_is_hidden_is_not_free,
    a_policy_for_all_rows_is_enough,
    a_policy_that_shows_all_rows_in_other_words_hides_nothing,
    a_guard_says_that_rows_may_be_hidden,
];

/// A role with all rights, on tables with row level security.
async fn secured(role: &str) -> (PostgresBackend, Tables, PostgresConfig) {
    let (backend, tables) = backend(server().unix()).await;
    let (locks, fences) = (tables.locks(), tables.fences());
    let sql = format!(
        "CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON {locks}, {fences} TO {role}; \
         ALTER TABLE {locks} ENABLE ROW LEVEL SECURITY; ALTER TABLE {fences} ENABLE ROW LEVEL SECURITY"
    );
    server().client().await.batch_execute(&sql).await.unwrap();
    let config = PostgresConfig {
        user: Some(role.to_owned()),
        ..server().unix()
    };
    (backend, tables, config)
}

fn first_page() -> PageRequest {
    PageRequest {
        limit: 10,
        ..PageRequest::default()
    }
}

async fn allow(tables: &Tables, role: &str) {
    allow_where(tables, role, "true").await;
}

async fn allow_where(tables: &Tables, role: &str, condition: &str) {
    for table in [tables.locks(), tables.fences()] {
        let sql = format!(
            "DROP POLICY IF EXISTS syncguard ON {table}; \
             CREATE POLICY syncguard ON {table} TO {role} USING ({condition}) WITH CHECK ({condition})"
        );
        server().client().await.batch_execute(&sql).await.unwrap();
    }
}

/// The fact of that name about the tables.
async fn fact(backend: &PostgresBackend, name: &str) -> Option<Fact> {
    let facts = backend.facts().await.unwrap();
    let mut facts = facts[0].facts.iter();
    facts.find(|fact| fact.0 == name).map(|fact| fact.1.clone())
}

async fn what_is_hidden_is_not_free() {
    let (owner, tables, config) = secured("hidden_from").await;
    let held = acquire(&owner, "k").await;
    for cleanup_in_is_locked in [false, true] {
        let options = syncguard::postgres::PostgresOptions {
            cleanup_in_is_locked,
            ..options(&tables)
        };
        let poor = PostgresBackend::new(config.clone(), options).unwrap();
        let by_id = Lookup::LockId(held.lock_id.clone());
        let page = first_page();
        for error in [
            poor.is_locked(&key("k")).await.unwrap_err(),
            poor.lookup(&Lookup::Key(key("k"))).await.unwrap_err(),
            poor.lookup(&by_id).await.unwrap_err(),
            poor.list(&page).await.map(drop).unwrap_err(),
            try_acquire(&poor, "free").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::AuthFailed);
            let words = format!("row level security keeps rows of {}", tables.locks());
            assert!(
                error.message().contains(&words) || error.message().contains(tables.fences()),
                "{error}"
            );
        }
        // Not from those who ask together either.
        let poor = Arc::new(poor);
        let many = (0..COUNT).map(|_| {
            let (poor, lookup) = (
                Arc::clone(&poor),
                Lookup::LockId(LockId::generate().unwrap()),
            );
            async move { poor.lookup(&lookup).await.unwrap_err().kind() }
        });
        let kinds = at_once(many).await;
        assert!(kinds.iter().all(|kind| *kind == ErrorKind::AuthFailed));
    }
}

async fn a_policy_for_all_rows_is_enough() {
    let (_, tables, config) = secured("allowed_all").await;
    allow(&tables, "allowed_all").await;
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    assert!(
        backend
            .lookup(&Lookup::Key(key("k")))
            .await
            .unwrap()
            .is_none()
    );
    assert!(backend.list(&first_page()).await.unwrap().locks.is_empty());
    acquire(&backend, "k").await;
    assert!(backend.is_locked(&key("k")).await.unwrap());
    for name in ["rowSecurity", "rowPolicies"] {
        assert_eq!(fact(&backend, name).await, None, "{name}");
    }
}

async fn a_policy_that_shows_all_rows_in_other_words_hides_nothing() {
    let role = "allowed_in_words";
    let (owner, tables, config) = secured(role).await;
    let mut client = server().client().await;
    let set_role = format!("SET ROLE {role}");
    client.batch_execute(&set_role).await.unwrap();
    for condition in [
        "1 = 1",
        "current_user = 'allowed_in_words'",
        "pg_has_role('allowed_in_words', 'USAGE')",
    ] {
        allow_where(&tables, role, condition).await;
        let backend = PostgresBackend::new(config.clone(), options(&tables)).unwrap();
        assert!(!backend.is_locked(&key("k")).await.unwrap(), "{condition}");
        let found = backend.lookup(&Lookup::Key(key("k"))).await.unwrap();
        assert!(found.is_none(), "{condition}");
        assert!(backend.list(&first_page()).await.unwrap().locks.is_empty());
        assert_eq!(fact(&backend, "rowSecurity").await, None, "{condition}");
        let uncertain = format!("{}, {}", tables.locks(), tables.fences());
        let uncertain = Fact::from(uncertain.as_str());
        assert_eq!(fact(&backend, "rowPolicies").await, Some(uncertain));
        let backend: Arc<dyn Backend> = Arc::new(backend);
        let guard = lock(&backend, &key("k"), &LockOptions::default())
            .await
            .unwrap();
        commit_guarded(&mut client, &guard).await;
        assert!(owner.force_release(&key("k")).await.unwrap());
        // The store says that it is gone, and whoever works under it hears of that.
        let error = refusal(&mut client, &guard).await;
        assert_eq!(error.kind(), ErrorKind::LockLost, "{condition}: {error}");
        assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
    }
    for condition in ["false", "fence < '0'"] {
        allow_where(&tables, role, condition).await;
        let backend = PostgresBackend::new(config.clone(), options(&tables)).unwrap();
        let error = try_acquire(&backend, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{condition}");
        assert!(error.message().contains("row level security"), "{error}");
        let is_hidden = fact(&backend, "rowSecurity").await.is_some();
        assert_eq!(is_hidden, condition == "false");
    }
}

async fn a_guard_says_that_rows_may_be_hidden() {
    let (owner, tables, _) = secured("guards_hidden").await;
    let owner: Arc<dyn Backend> = Arc::new(owner);
    let guard = lock(&owner, &key("k"), &LockOptions::default())
        .await
        .unwrap();
    let mut client = server().client().await;
    client
        .batch_execute("SET ROLE guards_hidden")
        .await
        .unwrap();
    let error = refusal(&mut client, &guard).await;
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.message().contains("row level security"), "{error}");
    allow(&tables, "guards_hidden").await;
    commit_guarded(&mut client, &guard).await;
    assert!(guard.release().await.unwrap());
}
