//! The stores, by a name that fits on a command line.

use std::sync::Arc;
use std::time::Duration;

use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{Backend, Error};

/// How long an operation may take.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Opens the store at `url`: `redis://…`, `postgres://…`, `firestore://HOST:PORT` for an emulator, or `sqlite:PATH`.
/// Makes PostgreSQL's tables.
///
/// # Errors
/// As the backends say; `InvalidArgument` for another kind of URL.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>, Error> {
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
            ..FirestoreConfig::default()
        };
        return Ok(Arc::new(FirestoreBackend::new(config)?));
    }
    if url.starts_with("postgres") {
        let options = PostgresOptions {
            operation_timeout: LIMIT,
            ..PostgresOptions::default()
        };
        let backend = PostgresBackend::new(PostgresConfig::from_url(url)?, options)?;
        backend.setup_schema().await?;
        return Ok(Arc::new(backend));
    }
    let mut config = RedisConfig::from_url(url)?;
    config.locks.operation_timeout = LIMIT;
    Ok(Arc::new(RedisBackend::new(config)?))
}
