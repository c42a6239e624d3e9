//! PostgreSQL: connections for several backends, and a backend on them or over a client in JavaScript.

mod client;
mod settings;

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use syncguard::postgres::{self, PostgresBackend};
use syncguard::{DEFAULT_OPERATION_TIMEOUT, Error};

use self::client::PostgresClient;
use self::settings::{PostgresLockOptions, PostgresSettings, config, locks};
use crate::answers::completion::Completion;
use crate::calls::backend::NativeBackend;
use crate::calls::environment::Completions;
use crate::calls::operations::Operations;
use crate::convert::error::{Code, thrown};
use crate::convert::options::timeout_or;

/// Connections that are made when they are needed, and closed with the last backend that uses them.
#[napi]
pub struct PostgresConnection {
    shared: postgres::PostgresConnection,
}

#[napi]
impl PostgresConnection {
    /// `completions` is used to ask JavaScript for passwords, if a function gives them.
    #[napi(constructor)]
    pub fn new(completions: &Completions, options: PostgresSettings) -> napi::Result<Self, Code> {
        let limit = options.operation_timeout_ms;
        let limit = timeout_or(DEFAULT_OPERATION_TIMEOUT, limit, "operationTimeoutMs");
        let limit = limit.map_err(thrown)?;
        let ask = |client| completions.environment.bridge(client);
        let config = config(options, ask).map_err(thrown)?;
        let shared = postgres::PostgresConnection::new(config, limit).map_err(thrown)?;
        Ok(Self { shared })
    }
}

#[napi]
impl NativeBackend {
    /// A backend on `connection`.
    #[napi(factory)]
    pub fn postgres(
        completions: &Completions,
        connection: &PostgresConnection,
        options: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let locks = locks(options).map_err(thrown)?;
        let backend = PostgresBackend::on(&connection.shared, locks).map_err(thrown)?;
        Ok(Self::of_postgres(backend, completions))
    }

    /// A backend over the client object with JavaScript's number `client`.
    #[napi(factory)]
    pub fn postgres_over_client(
        completions: &Completions,
        client: u32,
        options: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = completions.environment.bridge(client);
        let locks = locks(options).map_err(thrown)?;
        let transport = Arc::new(PostgresClient::new(bridge));
        let backend = PostgresBackend::with_transport(transport, locks);
        Ok(Self::of_postgres(backend, completions))
    }

    /// Creates the tables that are missing. Only for PostgreSQL.
    #[napi]
    pub fn setup_schema(&self, env: Env, operation: u32) {
        let postgres = self.postgres.clone();
        self.operations
            .spawn(&env, operation, false, |_| async move {
                let backend = postgres.ok_or_else(|| {
                    Error::invalid("only a PostgreSQL backend has a schema to set up")
                })?;
                backend.setup_schema().await?;
                Ok(Completion::Done)
            });
    }

    fn of_postgres(backend: PostgresBackend, completions: &Completions) -> Self {
        let backend = Arc::new(backend);
        Self {
            operations: Operations::new(backend.clone(), completions, false),
            client: backend.client_connections().cloned(),
            postgres: Some(backend),
        }
    }
}
