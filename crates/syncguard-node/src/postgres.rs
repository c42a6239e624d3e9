//! PostgreSQL: its options, and the transport over a client in JavaScript.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use napi::Env;
use napi::bindgen_prelude::Reference;
use napi_derive::napi;
use serde_json::{Value, json};
use syncguard::postgres::{
    Call, Failure, Fault, Host, Param, Password, PasswordSource, Pem, PostgresBackend,
    PostgresConfig, PostgresOptions, Row, SessionAttrs, SslMode, Tables, Transport,
};
use syncguard::{Error, ErrorKind};

use crate::backend::NativeBackend;
use crate::bridge::{Bridge, Rejection};
use crate::completion::{Completions, Outcome};
use crate::error::{Code, thrown};
use crate::options::{RootsOption, default_roots, port, timeout, whole};

/// What the locks are like, whoever talks to the server.
#[napi(object)]
pub struct PostgresLockOptions {
    pub table_name: Option<String>,
    pub fence_table_name: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
    pub operation_timeout_ms: Option<f64>,
    pub durable_releases: Option<bool>,
    /// Whether tables that are missing are made at their first use.
    pub creates_tables: Option<bool>,
}

#[napi(object)]
pub struct PostgresHost {
    /// A name, an address, or the folder of a unix socket.
    pub host: String,
    pub port: Option<f64>,
}

#[napi(object)]
pub struct PostgresTlsOptions {
    /// `disable` … `verify-full`.
    pub mode: Option<String>,
    /// PEM.
    pub ca: Option<String>,
    /// Whom to trust without `ca`.
    pub default_roots: Option<RootsOption>,
    /// PEM.
    pub cert: Option<String>,
    /// PEM.
    pub key: Option<String>,
    pub servername: Option<String>,
}

#[napi(object)]
pub struct PostgresParameter {
    pub name: String,
    pub value: String,
}

/// Where the server is. What stands beside a URL overrides it; what is not said is taken from the PG*
/// variables.
#[napi(object)]
pub struct PostgresConnectionOptions {
    /// Whether the variables count where there is no URL: yes if this is not said.
    pub environment: Option<bool>,
    pub url: Option<String>,
    pub hosts: Option<Vec<PostgresHost>>,
    pub database: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// The number under which JavaScript knows a function that gives the password.
    pub password_client: Option<u32>,
    pub tls: Option<PostgresTlsOptions>,
    pub application_name: Option<String>,
    pub options: Option<String>,
    pub parameters: Option<Vec<PostgresParameter>>,
    /// `any` or `read-write`.
    pub target_session_attrs: Option<String>,
    pub pool_size: Option<f64>,
    pub connect_timeout_ms: Option<f64>,
    pub prepare: Option<bool>,
}

#[napi]
impl NativeBackend {
    /// Over connections of the core's own.
    #[napi(factory)]
    pub fn postgres(
        completions: Reference<Completions>,
        connection: PostgresConnectionOptions,
        locks: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let ask = |client| Bridge::new(Arc::clone(&completions.mailbox), client);
        let config = config(connection, ask).map_err(thrown)?;
        let locks = lock_options(locks).map_err(thrown)?;
        let backend = PostgresBackend::new(config, locks).map_err(thrown)?;
        Ok(Self::of_postgres(backend, completions))
    }

    /// Over the client that JavaScript knows by the number `client`.
    #[napi(factory)]
    pub fn postgres_over_client(
        completions: Reference<Completions>,
        client: u32,
        locks: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = Bridge::new(Arc::clone(&completions.mailbox), client);
        let locks = lock_options(locks).map_err(thrown)?;
        let backend = PostgresBackend::with_transport(Arc::new(ClientTransport(bridge)), locks);
        Ok(Self::of_postgres(backend, completions))
    }

    /// Makes what is missing of the tables. Only for PostgreSQL.
    #[napi]
    pub fn setup_schema(&self, env: Env, operation: u32) -> bool {
        let postgres = self.postgres.clone();
        self.submit(env, operation, false, |_, _| async move {
            let backend = postgres.ok_or_else(|| {
                Error::invalid("only a PostgreSQL backend has a schema to set up")
            })?;
            backend.setup_schema().await?;
            Ok(Outcome::Done)
        })
    }

    fn of_postgres(backend: PostgresBackend, completions: Reference<Completions>) -> Self {
        let backend = Arc::new(backend);
        Self {
            backend: backend.clone(),
            postgres: Some(backend),
            completions,
        }
    }
}

fn config(
    connection: PostgresConnectionOptions,
    ask: impl FnOnce(u32) -> Bridge,
) -> Result<PostgresConfig, Error> {
    let mut config = match &connection.url {
        Some(url) => PostgresConfig::from_url(url)?,
        None if connection.environment == Some(false) => PostgresConfig::default(),
        None => PostgresConfig::from_env()?,
    };
    if let Some(hosts) = connection.hosts {
        let hosts = hosts.into_iter().map(|host| {
            Ok(Host {
                name: host.host,
                port: port(host.port.unwrap_or(5432.0), "port")?,
            })
        });
        config.hosts = hosts.collect::<Result<_, Error>>()?;
    }
    config.database = connection.database.or(config.database);
    config.user = connection.user.or(config.user);
    if let Some(password) = connection.password {
        config.password = Password::Text(password);
    }
    if let Some(client) = connection.password_client {
        config.password = Password::Source(Arc::new(PasswordFunction(ask(client))));
    }
    if let Some(tls) = connection.tls {
        if let Some(mode) = tls.mode {
            config.tls.mode = ssl_mode(&mode)?;
        }
        let pem = |text: Option<String>| text.map(Pem::Text);
        config.tls.root = pem(tls.ca).or(config.tls.root);
        config.tls.default_roots = default_roots(tls.default_roots);
        config.tls.certificate = pem(tls.cert).or(config.tls.certificate);
        config.tls.key = pem(tls.key).or(config.tls.key);
        config.tls.server_name = tls.servername.or(config.tls.server_name);
    }
    config.application_name = connection.application_name.or(config.application_name);
    config.options = connection.options.or(config.options);
    for parameter in connection.parameters.unwrap_or_default() {
        config.parameters.push((parameter.name, parameter.value));
    }
    if let Some(attrs) = connection.target_session_attrs {
        config.session_attrs = session_attrs(&attrs)?;
    }
    if let Some(size) = connection.pool_size {
        config.pool_size = whole(size, "max", 10_000.0)? as usize;
    }
    if let Some(ms) = connection.connect_timeout_ms {
        config.connect_timeout = timeout(ms, "connectTimeoutMs")?;
    }
    config.prepare = connection.prepare.unwrap_or(config.prepare);
    Ok(config)
}

fn lock_options(options: PostgresLockOptions) -> Result<PostgresOptions, Error> {
    let defaults = PostgresOptions::default();
    let locks = options.table_name.as_deref();
    let fences = options.fence_table_name.as_deref();
    let tables = Tables::new(
        locks.unwrap_or(defaults.tables.locks()),
        fences.unwrap_or(defaults.tables.fences()),
    )?;
    let operation_timeout = match options.operation_timeout_ms {
        Some(ms) => timeout(ms, "operationTimeoutMs")?,
        None => defaults.operation_timeout,
    };
    Ok(PostgresOptions {
        tables,
        cleanup_in_is_locked: options
            .cleanup_in_is_locked
            .unwrap_or(defaults.cleanup_in_is_locked),
        operation_timeout,
        durable_releases: options
            .durable_releases
            .unwrap_or(defaults.durable_releases),
        creates_tables: options.creates_tables.unwrap_or(defaults.creates_tables),
    })
}

fn ssl_mode(name: &str) -> Result<SslMode, Error> {
    Ok(match name {
        "disable" => SslMode::Disable,
        "allow" => SslMode::Allow,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => {
            return Err(Error::invalid(
                "sslmode must be disable, allow, prefer, require, verify-ca or verify-full",
            ));
        }
    })
}

fn session_attrs(name: &str) -> Result<SessionAttrs, Error> {
    match name {
        "any" => Ok(SessionAttrs::Any),
        // A lock takes a server that accepts writes.
        "read-write" | "primary" => Ok(SessionAttrs::ReadWrite),
        _ => Err(Error::invalid(
            "target_session_attrs must be any, read-write or primary",
        )),
    }
}

/// A password that a function of the user gives for each connection.
struct PasswordFunction(Bridge);

#[async_trait]
impl PasswordSource for PasswordFunction {
    async fn password(&self) -> Result<String, Error> {
        match self.0.ask(&json!({ "password": true })).await {
            Ok(Value::String(password)) => Ok(password),
            Ok(_) => Err(Error::invalid("the password function must give a string")),
            // What it says may hold the secret it tried to get.
            Err(_) => Err(Error::new(
                ErrorKind::AuthFailed,
                "the password function failed",
            )),
        }
    }
}

/// Statements through a client's own query call.
struct ClientTransport(Bridge);

impl fmt::Debug for ClientTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTransport")
    }
}

impl ClientTransport {
    /// What the client answers. What the server refused comes as an answer too, with its severity.
    async fn ask(&self, request: &Value) -> Result<Value, Failure> {
        let answer = self.0.ask(request).await.map_err(failure)?;
        let word = |name| answer.get(name).and_then(Value::as_str);
        match (word("code"), word("severity")) {
            (Some(code), severity @ Some(_)) => Err(failure_of(code, severity)),
            _ => Ok(answer),
        }
    }
}

#[async_trait]
impl Transport for ClientTransport {
    async fn run(&self, call: &Call<'_>) -> Result<Option<Row>, Failure> {
        let params: Vec<Value> = call
            .params
            .iter()
            .map(|param| match param {
                Param::Text(text) => json!(text),
                // As text: JavaScript's numbers are shorter, and the statements cast it.
                Param::BigInt(number) => json!(number.to_string()),
            })
            .collect();
        let request = json!({
            "sql": call.sql,
            "params": params,
            "columns": call.operation.columns(),
        });
        row(self.ask(&request).await?)
    }

    async fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.ask(&json!({ "batch": sql })).await.map(drop)
    }

    /// The client is its owner's to close.
    async fn close(&self) {}
}

fn row(value: Value) -> Result<Option<Row>, Failure> {
    let malformed = || Failure::new(Fault::Malformed).with_unknown_outcome();
    match value {
        Value::Null => Ok(None),
        Value::Array(columns) => columns
            .into_iter()
            .map(|column| match column {
                Value::Null => Ok(None),
                Value::String(text) => Ok(Some(text)),
                Value::Bool(yes) => Ok(Some(if yes { "t" } else { "f" }.to_owned())),
                Value::Number(number) => Ok(Some(number.to_string())),
                Value::Array(_) | Value::Object(_) => Err(malformed()),
            })
            .collect::<Result<Row, Failure>>()
            .map(Some),
        _ => Err(malformed()),
    }
}

fn failure(rejection: Rejection) -> Failure {
    failure_of(rejection.code.as_deref().unwrap_or_default(), None)
}

fn failure_of(code: &str, severity: Option<&str>) -> Failure {
    match Fault::from_code(code) {
        Some(Fault::State(state)) => Failure::reported(state, severity),
        Some(fault) => Failure::new(fault).with_unknown_outcome(),
        None => Failure::other(Error::new(
            ErrorKind::Internal,
            "the client failed with an error of its own",
        ))
        .with_unknown_outcome(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_clients_become_rows() {
        assert_eq!(row(json!(null)).unwrap(), None);
        assert_eq!(
            row(json!(["a", null, true, 12])).unwrap(),
            Some(vec![
                Some("a".into()),
                None,
                Some("t".into()),
                Some("12".into())
            ])
        );
        for bad in [json!("a"), json!({}), json!([[]])] {
            assert_eq!(row(bad).unwrap_err().error().kind(), ErrorKind::Internal);
        }
    }

    #[test]
    fn rejections_are_classified_by_code() {
        for (code, kind, unknown) in [
            (Some("42P01"), ErrorKind::InvalidArgument, false),
            (Some("08P01"), ErrorKind::ServiceUnavailable, true),
            (Some("ECONNREFUSED"), ErrorKind::ServiceUnavailable, true),
            (Some("CONNECT_TIMEOUT"), ErrorKind::NetworkTimeout, true),
            (Some("whatever"), ErrorKind::Internal, true),
            (None, ErrorKind::Internal, true),
        ] {
            let failure = failure(Rejection {
                name: "Error".into(),
                code: code.map(str::to_owned),
                message: String::new(),
            });
            assert_eq!(failure.error().kind(), kind, "{code:?}");
            assert_eq!(failure.error().is_outcome_unknown(), unknown, "{code:?}");
        }
    }
}
