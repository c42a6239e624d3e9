//! Connections to PostgreSQL for several backends.

use napi_derive::napi;
use syncguard::DEFAULT_OPERATION_TIMEOUT;
use syncguard::postgres;

use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::options::timeout;
use crate::postgres::{PostgresSettings, config};

/// Connections that are made when they are needed, and closed with the last backend that uses them.
#[napi]
pub struct PostgresConnection {
    pub(crate) shared: postgres::PostgresConnection,
}

#[napi]
impl PostgresConnection {
    /// `completions` is used to ask JavaScript for passwords, if a function gives them.
    #[napi(constructor)]
    pub fn new(completions: &Completions, options: PostgresSettings) -> napi::Result<Self, Code> {
        let limit = match options.operation_timeout_ms {
            Some(ms) => timeout(ms, "operationTimeoutMs").map_err(thrown)?,
            None => DEFAULT_OPERATION_TIMEOUT,
        };
        let ask = |client| completions.environment.bridge(client);
        let config = config(options, ask).map_err(thrown)?;
        let shared = postgres::PostgresConnection::new(config, limit).map_err(thrown)?;
        Ok(Self { shared })
    }
}
