//! The stores, by a name that fits on a command line.

use std::sync::Arc;
use std::time::Duration;

use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{Backend, Error};

use crate::mixed::Mixed;

/// How long an operation may take.
pub const LIMIT: Duration = Duration::from_secs(2);

/// The longest TTL of a lock that is cancelled on its way.
pub(crate) const LONGEST_MS: i64 = 20_000;

/// Opens the store at `url`: `redis://…`, `postgres://…`, `firestore://HOST:PORT` for an emulator, or `sqlite:PATH`.
/// `mixed+postgres://…` is a PostgreSQL whose tables another library uses too. `#durable` at the end makes PostgreSQL's
/// releases durable.
///
/// # Errors
/// As the backends say; `InvalidArgument` for another kind of URL.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>, Error> {
    match url.strip_prefix("mixed+") {
        Some(url) => Ok(Arc::new(Mixed::open(open_ours(url).await?, url).await?)),
        None => open_ours(url).await,
    }
}

/// Whether the locks of a set may be on different servers, and are acquired one after the other.
pub(crate) fn is_spread(url: &str) -> bool {
    url.split("://")
        .next()
        .is_some_and(|scheme| scheme.contains("cluster"))
}

/// For how much longer than its readers a group may last there at most.
pub(crate) fn group_ms(url: &str) -> i64 {
    match kind(url) {
        // Half a TTL longer than the reader who would have ended last, also if that one has left.
        "firestore" => LONGEST_MS * 3 / 2,
        // As long as a reader has asked for who asks for less now.
        "postgres" => LONGEST_MS,
        _ => 0,
    }
}

/// Whether a reader leaves in one step, and its group in another.
pub(crate) fn is_left_in_steps(url: &str) -> bool {
    kind(url) == "postgres"
}

/// Which store it is, also if another library uses it, too.
fn kind(url: &str) -> &str {
    let scheme = url.split(':').next().unwrap_or_default();
    scheme.strip_prefix("mixed+").unwrap_or(scheme)
}

async fn open_ours(url: &str) -> Result<Arc<dyn Backend>, Error> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        let mut config = SqliteConfig::file(path);
        config.operation_timeout = LIMIT;
        return Ok(Arc::new(SqliteBackend::new(config)?));
    }
    if let Some(host) = url.strip_prefix("firestore://") {
        let config = FirestoreConfig {
            project_id: Some("torture".to_owned()),
            emulator_host: Some(host.to_owned()),
            operation_timeout: LIMIT,
            // Where the clocks of all clients are set, they are to decide all the same.
            ignore_clock_skew: std::env::var_os("FAKETIME_TIMESTAMP_FILE").is_some(),
            ..FirestoreConfig::default()
        };
        return Ok(Arc::new(FirestoreBackend::new(config)?));
    }
    if url.starts_with("postgres") {
        return Ok(Arc::new(postgres(url)?));
    }
    let mut config = RedisConfig::from_url(url)?;
    config.locks.operation_timeout = LIMIT;
    Ok(Arc::new(RedisBackend::new(config)?))
}

/// Makes the tables of PostgreSQL, if the store at `url` is one.
///
/// # Errors
/// As the backend says.
pub async fn prepare(url: &str) -> Result<(), Error> {
    let url = url.strip_prefix("mixed+").unwrap_or(url);
    if url.starts_with("postgres") {
        let backend = postgres(url)?;
        backend.setup_schema().await?;
        backend.close().await;
    }
    Ok(())
}

fn postgres(url: &str) -> Result<PostgresBackend, Error> {
    let durable = url.strip_suffix("#durable");
    let options = PostgresOptions {
        operation_timeout: LIMIT,
        durable_releases: durable.is_some(),
        ..PostgresOptions::default()
    };
    PostgresBackend::new(PostgresConfig::from_url(durable.unwrap_or(url))?, options)
}
