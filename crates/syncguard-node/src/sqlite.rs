//! SQLite: a backend on a file, or in memory.

use napi_derive::napi;
use syncguard::Error;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};

use crate::calls::backend::NativeBackend;
use crate::calls::environment::Completions;
use crate::convert::error::{Code, thrown};
use crate::convert::options::timeout_or;

#[napi(object)]
pub struct SqliteOptions {
    /// Absent for a database in memory.
    pub path: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
    pub operation_timeout_ms: Option<f64>,
    pub allow_network_file_system: Option<bool>,
}

impl TryFrom<SqliteOptions> for SqliteConfig {
    type Error = Error;

    fn try_from(options: SqliteOptions) -> Result<Self, Error> {
        let defaults = match options.path {
            Some(path) => Self::file(path),
            None => Self::in_memory(),
        };
        let limit = options.operation_timeout_ms;
        Ok(Self {
            cleanup_in_is_locked: options
                .cleanup_in_is_locked
                .unwrap_or(defaults.cleanup_in_is_locked),
            operation_timeout: timeout_or(defaults.operation_timeout, limit, "operationTimeoutMs")?,
            allow_network_file_system: options
                .allow_network_file_system
                .unwrap_or(defaults.allow_network_file_system),
            ..defaults
        })
    }
}

#[napi]
impl NativeBackend {
    #[napi(factory)]
    pub fn sqlite(completions: &Completions, options: SqliteOptions) -> napi::Result<Self, Code> {
        let config = SqliteConfig::try_from(options).map_err(thrown)?;
        let backend = SqliteBackend::new(config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }
}
