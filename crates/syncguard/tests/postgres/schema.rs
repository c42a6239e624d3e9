//! Setting up, and who may.

use crate::support::attempts::Attempts as _;
use syncguard::ErrorKind;
use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use tokio::task::JoinSet;

use crate::canonical::Canonical;
use crate::scene::named;
use crate::stage::{backend, options, own_tables, schema_of, server, sessions};
use crate::support::locks::{acquire, eventually, is_from_the_clock, key, try_acquire};
use crate::support::suite::tests;

tests![
    it_makes_what_the_specification_names,
    it_can_be_repeated_by_many_at_once,
    older_writers_work_on_it,
    a_role_without_rights_needs_none_when_all_is_there,
    a_role_that_may_create_can_set_up,
    a_role_that_may_not_create_is_told_so,
    missing_indexes_and_columns_are_added,
    nobody_waits_for_a_change_that_waits_for_a_reader,
    nothing_is_locked_where_nothing_is_missing,
    names_are_case_sensitive_and_may_be_reserved_words,
    names_whose_indexes_would_collide_are_refused,
    a_missing_table_is_explained,
    tables_can_be_made_at_their_first_use_by_many_at_once,
    tables_that_may_not_be_made_at_their_first_use_are_explained,
    the_documented_ddl_is_all_that_is_needed,
];

async fn it_makes_what_the_specification_names() {
    let (_, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let columns = "SELECT string_agg(column_name || ' ' || data_type || ' ' || is_nullable, ', ' \
                   ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name = $1";
    let of = async |table: &str| -> String {
        client.query_one(columns, &[&table]).await.unwrap().get(0)
    };
    assert_eq!(
        of(tables.locks()).await,
        "key text NO, lock_id text NO, expires_at_ms bigint NO, acquired_at_ms bigint NO, \
         fence text NO, user_key text NO, owner text YES"
    );
    assert_eq!(
        of(tables.fences()).await,
        "fence_key text NO, fence bigint NO, key_debug text YES, done_due text YES, done_at_ms bigint YES, \
             done_lock_id text YES"
    );
    let indexes = "SELECT string_agg(indexdef, '; ' ORDER BY indexname) FROM pg_indexes \
                   WHERE tablename = $1 AND indexname LIKE 'idx%'";
    let locks = tables.locks();
    let indexes: String = client.query_one(indexes, &[&locks]).await.unwrap().get(0);
    assert_eq!(
        indexes,
        format!(
            "CREATE INDEX idx_{locks}_expires ON public.{locks} USING btree (expires_at_ms); \
             CREATE UNIQUE INDEX idx_{locks}_lock_id ON public.{locks} USING btree (lock_id); \
             CREATE INDEX idx_{locks}_readers ON public.{locks} USING btree (\"left\"(key, '-24'::integer)) \
             WHERE (\"right\"(key, 23) = ('r'::text || lock_id))"
        )
    );
}

async fn it_can_be_repeated_by_many_at_once() {
    for _ in 0..3 {
        let tables = own_tables();
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
            tasks.spawn(async move { backend.setup_schema().await });
        }
        // Someone who knows nothing of our lock.
        let (client, locks) = (server().client().await, tables.locks().to_owned());
        tasks.spawn(async move {
            let sql = format!(
                "CREATE TABLE IF NOT EXISTS {locks} (key TEXT PRIMARY KEY, lock_id TEXT NOT NULL, \
                 expires_at_ms BIGINT NOT NULL, acquired_at_ms BIGINT NOT NULL, \
                 fence TEXT NOT NULL, user_key TEXT NOT NULL)"
            );
            let _ = client.batch_execute(&sql).await;
            Ok(())
        });
        for result in tasks.join_all().await {
            result.unwrap();
        }
        let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
        backend.setup_schema().await.unwrap();
        acquire(&backend, "k").await;
    }
}

async fn older_writers_work_on_it() {
    let (ours, tables) = backend(server().unix()).await;
    let mut older = Canonical::new(server().client().await, &tables);
    let held = older.acquire(&key("k"), 60_000).await.unwrap().unwrap();
    assert!(try_acquire(&ours, "k").await.unwrap().is_locked());
    assert!(older.release(&held.lock_id).await.unwrap());
    // The other library counts, and ours goes on from the clock.
    let grant = acquire(&ours, "k").await;
    assert!(is_from_the_clock(grant.fence.get()));
    ours.release(&grant.lock_id).await.unwrap();
    let held = older.acquire(&key("k"), 60_000).await.unwrap().unwrap();
    assert_eq!(held.fence.unsigned_abs(), grant.fence.get() + 1);
    assert!(older.release(&held.lock_id).await.unwrap());
    let next = acquire(&ours, "k").await.fence.get();
    assert!(next > held.fence.unsigned_abs());
    assert!(older.acquire(&key("k"), 60_000).await.unwrap().is_none());
}

/// A role that may log in, and read and write the tables of locks, and nothing else.
async fn poor_role(name: &str, tables: &Tables) -> PostgresConfig {
    let sql = format!(
        "CREATE ROLE {name} LOGIN; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON {}, {} TO {name}",
        tables.locks(),
        tables.fences()
    );
    server().client().await.batch_execute(&sql).await.unwrap();
    PostgresConfig {
        user: Some(name.to_owned()),
        ..server().unix()
    }
}

async fn a_role_without_rights_needs_none_when_all_is_there() {
    let (_, tables) = backend(server().unix()).await;
    let config = poor_role("poor_reader", &tables).await;
    let poor = PostgresBackend::new(config, options(&tables)).unwrap();
    poor.setup_schema().await.unwrap();
    acquire(&poor, "k").await;
    // Without the column for labels, which only the tables' owner can add.
    let drop = format!("ALTER TABLE {} DROP COLUMN owner", tables.locks());
    server().client().await.batch_execute(&drop).await.unwrap();
    poor.setup_schema().await.unwrap();
    acquire(&poor, "l").await;
}

async fn a_role_that_may_create_can_set_up() {
    let client = server().client().await;
    let sql = "CREATE ROLE builder LOGIN; CREATE SCHEMA AUTHORIZATION builder";
    client.batch_execute(sql).await.unwrap();
    let (backend, tables) = backend(PostgresConfig {
        user: Some("builder".to_owned()),
        ..server().unix()
    })
    .await;
    acquire(&backend, "k").await;
    assert_eq!(schema_of(&client, &tables).await, "builder");
}

async fn a_role_that_may_not_create_is_told_so() {
    let (_, there) = backend(server().unix()).await;
    let config = poor_role("poor_builder", &there).await;
    let missing = own_tables();
    let poor = PostgresBackend::new(config, options(&missing)).unwrap();
    let error = poor.setup_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
}

async fn missing_indexes_and_columns_are_added() {
    let (backend, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let (locks, fences) = (tables.locks(), tables.fences());
    for sql in [
        format!("DROP INDEX idx_{locks}_lock_id"),
        format!("DROP INDEX idx_{locks}_expires"),
        format!("DROP INDEX idx_{locks}_readers"),
        format!("ALTER TABLE {fences} DROP COLUMN key_debug"),
        format!("ALTER TABLE {locks} DROP COLUMN owner"),
        format!("DROP TABLE {fences}"),
    ] {
        client.batch_execute(&sql).await.unwrap();
        backend.setup_schema().await.unwrap();
        // What is there already cannot be dropped a second time unless it came back.
        client.batch_execute(&sql).await.unwrap();
        backend.setup_schema().await.unwrap();
    }
    acquire(&backend, "k").await;
}

/// While somebody reads a table of an older version, as a backup does, the change cannot be made.
async fn nobody_waits_for_a_change_that_waits_for_a_reader() {
    let (ours, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let older = format!(
        "ALTER TABLE {} DROP COLUMN owner; ALTER TABLE {} DROP COLUMN done_due",
        tables.locks(),
        tables.fences()
    );
    client.batch_execute(&older).await.unwrap();
    let read = format!(
        "BEGIN; SELECT FROM {}; SELECT FROM {}",
        tables.locks(),
        tables.fences()
    );
    client.batch_execute(&read).await.unwrap();
    let mut changing = JoinSet::new();
    for _ in 0..3 {
        let config = named("a change", server().unix());
        let backend = PostgresBackend::new(config, options(&tables)).unwrap();
        changing.spawn(async move { backend.setup_schema().await });
    }
    let watcher = server().client().await;
    eventually("they look", async || {
        sessions(&watcher, "a change").await.0 >= 3
    })
    .await;
    // Of a queue behind a waiting change, one of these would be a part for as long as a statement may last.
    for number in 0..100 {
        let name = format!("beside a change {number}");
        let grant = acquire(&ours, &name).await;
        ours.release(&grant.lock_id).await.unwrap();
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' \
                       AND relation IN (to_regclass($1), to_regclass($2))";
        let (locks, fences) = (tables.locks(), tables.fences());
        let row = watcher.query_one(waiting, &[&locks, &fences]).await;
        assert_eq!(row.unwrap().get::<_, i64>(0), 0);
    }
    assert!(changing.try_join_next().is_none());
    client.batch_execute("COMMIT").await.unwrap();
    for changed in changing.join_all().await {
        changed.unwrap();
    }
    client.batch_execute(&older).await.unwrap();
}

async fn nothing_is_locked_where_nothing_is_missing() {
    let (ours, tables) = backend(server().unix()).await;
    let client = server().client().await;
    let lock = format!("BEGIN; LOCK TABLE {} IN ROW EXCLUSIVE MODE", tables.locks());
    client.batch_execute(&lock).await.unwrap();
    ours.setup_schema().await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

async fn names_are_case_sensitive_and_may_be_reserved_words() {
    let tables = Tables::new("Select", "Order").unwrap();
    let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    acquire(&backend, "k").await;
    let sql = "SELECT count(*) FROM \"Select\" JOIN \"Order\" ON key_debug = user_key";
    let count: i64 = server()
        .client()
        .await
        .query_one(sql, &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(count, 1);
}

async fn names_whose_indexes_would_collide_are_refused() {
    let setup = async |length: usize| {
        let tables = Tables::new(&"l".repeat(length), &"f".repeat(63)).unwrap();
        let backend = PostgresBackend::new(server().unix(), options(&tables)).unwrap();
        backend.setup_schema().await
    };
    setup(57).await.unwrap();
    setup(57).await.unwrap();
    let error = setup(58).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().starts_with("tableName"), "{error}");
}

async fn a_missing_table_is_explained() {
    let backend = PostgresBackend::new(server().unix(), options(&own_tables())).unwrap();
    let error = try_acquire(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("setupSchema"), "{error}");
    assert!(!error.is_outcome_unknown());
}

/// A backend that makes its tables itself.
fn provident(config: PostgresConfig, tables: &Tables) -> PostgresBackend {
    let options = syncguard::postgres::PostgresOptions {
        creates_tables: true,
        ..options(tables)
    };
    PostgresBackend::new(config, options).unwrap()
}

async fn tables_can_be_made_at_their_first_use_by_many_at_once() {
    for pool_size in [1, 10] {
        let tables = own_tables();
        let mut tasks = tokio::task::JoinSet::new();
        for process in 0..4 {
            let config = PostgresConfig {
                pool_size,
                ..server().unix()
            };
            let backend = std::sync::Arc::new(provident(config, &tables));
            for number in 0..8 {
                let backend = std::sync::Arc::clone(&backend);
                tasks.spawn(async move {
                    let name = format!("{process} {number}");
                    let grant = acquire(&*backend, &name).await;
                    assert!(is_from_the_clock(grant.fence.get()));
                    assert!(
                        backend
                            .is_locked(&crate::support::locks::key(&name))
                            .await
                            .unwrap()
                    );
                });
            }
        }
        tasks.join_all().await;
    }
    // Also in a database from which they have been dropped meanwhile.
    let tables = own_tables();
    let backend = provident(server().unix(), &tables);
    for _ in 0..2 {
        acquire(&backend, "k").await;
        let drop = format!("DROP TABLE {}, {}", tables.locks(), tables.fences());
        server().client().await.batch_execute(&drop).await.unwrap();
    }
}

async fn tables_that_may_not_be_made_at_their_first_use_are_explained() {
    let client = server().client().await;
    client
        .batch_execute("CREATE ROLE modest LOGIN")
        .await
        .unwrap();
    let config = PostgresConfig {
        user: Some("modest".to_owned()),
        ..server().unix()
    };
    let error = try_acquire(&provident(config, &own_tables()), "k")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
    assert!(error.message().contains("docs/postgres.md"), "{error}");
    assert!(!error.is_outcome_unknown());
}

async fn the_documented_ddl_is_all_that_is_needed() {
    let docs = include_str!("../../../../docs/postgres.md");
    let ddl = docs
        .split("```sql postgres\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let client = server().client().await;
    client
        .batch_execute(&format!(
            "CREATE SCHEMA documented; SET search_path = documented; {}; \
             CREATE ROLE migrated LOGIN; GRANT USAGE ON SCHEMA documented TO migrated; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA documented TO migrated",
            ddl.unwrap()
        ))
        .await
        .unwrap();
    let config = PostgresConfig {
        user: Some("migrated".to_owned()),
        parameters: vec![("search_path".to_owned(), "documented".to_owned())],
        ..server().unix()
    };
    // A role that may not create anything finds all there.
    let backend = PostgresBackend::new(config, options(&Tables::default())).unwrap();
    backend.setup_schema().await.unwrap();
    acquire(&backend, "k").await;
}
