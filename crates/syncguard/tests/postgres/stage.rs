//! What the tests share: a server, backends on it, and a look at its sessions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncguard::Error;
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions, Tables};

use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, eventually, key};
use crate::support::postgres_server::PostgresServer;

static SERVER: OnceLock<PostgresServer> = OnceLock::new();

/// The server of the tests that do it no harm.
pub(crate) fn server() -> &'static PostgresServer {
    SERVER.get_or_init(PostgresServer::start)
}

pub(crate) fn stop() {
    if let Some(server) = SERVER.get() {
        server.end();
    }
}

/// Tables that no other test uses.
pub(crate) fn own_tables() -> Tables {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    Tables::new(&format!("locks_{number}"), &format!("fences_{number}")).unwrap()
}

pub(crate) fn options(tables: &Tables) -> PostgresOptions {
    PostgresOptions {
        tables: tables.clone(),
        ..PostgresOptions::default()
    }
}

/// A backend on tables of its own, which are there.
pub(crate) async fn backend(config: PostgresConfig) -> (PostgresBackend, Tables) {
    let tables = own_tables();
    let backend = PostgresBackend::new(config, options(&tables)).unwrap();
    backend.setup_schema().await.unwrap();
    (backend, tables)
}

/// Lets the fences of a key be counted one by one.
pub(crate) async fn count(tables: &Tables, name: &str) {
    let sql = format!("INSERT INTO {} VALUES ($1, $2)", tables.fences());
    let (name, counter) = (format!("fence:{name}"), AHEAD.cast_signed());
    let client = server().client().await;
    client.execute(&sql, &[&name, &counter]).await.unwrap();
}

/// Whether a session can be had: asks for tables that do not exist.
pub(crate) async fn enters(config: PostgresConfig) -> Result<(), Error> {
    let backend = PostgresBackend::new(config, options(&own_tables())).unwrap();
    match backend.is_locked(&key("k")).await {
        Err(error) if error.message().contains("setupSchema") => Ok(()),
        other => other.map(drop),
    }
}

/// The schema in which the table of locks is.
pub(crate) async fn schema_of(client: &tokio_postgres::Client, tables: &Tables) -> String {
    let sql = "SELECT schemaname FROM pg_tables WHERE tablename = $1";
    let row = client.query_one(sql, &[&tables.locks()]).await.unwrap();
    row.get(0)
}

/// How many sessions called `application` there are, and how many of them are at work.
pub(crate) async fn sessions(client: &tokio_postgres::Client, application: &str) -> (i64, i64) {
    let sql = "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') \
               FROM pg_stat_activity WHERE application_name = $1";
    let row = client.query_one(sql, &[&application]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Waits until a session called `application` waits for a lock of the server's.
pub(crate) async fn until_waiting(client: &tokio_postgres::Client, application: &str, count: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE application_name = $1 AND wait_event_type = 'Lock'";
    eventually("a session waits for a lock", async || {
        let row = client.query_one(sql, &[&application]).await.unwrap();
        row.get::<_, i64>(0) >= count
    })
    .await;
}

/// Settings of a server whose log is flushed by who commits and by nobody else: the writer that flushes
/// in the background is too slow to interfere.
pub(crate) const QUIET: [&str; 5] = [
    "wal_writer_delay=10s",
    "synchronous_commit=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "autovacuum=off",
];

/// Whether there is something in the log that is not on disk.
pub(crate) async fn is_behind(client: &tokio_postgres::Client) -> bool {
    let sql = "SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Sends a signal to one of the server's processes, which may have ended by itself just before.
pub(crate) fn signal(pid: i32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([name, &pid.to_string()])
        .status();
    let is_there = || std::path::Path::new("/proc").join(pid.to_string()).exists();
    assert!(sent.unwrap().success() || !is_there(), "kill {name}");
}
