//! PostgreSQL: its options.

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use syncguard::postgres::{
    Host, Password, Pem, PostgresBackend, PostgresConfig, PostgresOptions, SessionAttrs, SslMode,
    Tables,
};
use syncguard::{Error, Login};

use crate::backend::NativeBackend;
use crate::bridge::Bridge;
use crate::completion::Completion;
use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::login::Asked;
use crate::operations::Operations;
use crate::options::{Roots, default_roots, port, timeout, whole};
use crate::postgres_client::ClientTransport;
use crate::postgres_connection::PostgresConnection;

/// How locks are kept, whatever the transport.
#[napi(object)]
pub struct PostgresLockOptions {
    pub table_name: Option<String>,
    pub fence_table_name: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
    pub operation_timeout_ms: Option<f64>,
    pub durable_releases: Option<bool>,
    /// Whether missing tables are created at their first use.
    pub creates_tables: Option<bool>,
}

#[napi(object)]
pub struct PostgresHost {
    /// A name, an address, or the folder of a unix socket.
    pub host: String,
    pub port: Option<f64>,
}

#[napi(object)]
pub struct PostgresTlsSettings {
    /// `disable` … `verify-full`.
    pub mode: Option<String>,
    /// PEM.
    pub ca: Option<String>,
    /// Which authorities to trust without `ca`.
    pub default_roots: Option<Roots>,
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

/// Where the server is. Settings given besides a URL override it; missing ones are taken from the PG* variables.
#[napi(object)]
pub struct PostgresSettings {
    /// Whether to use the variables if there is no URL. Default: true.
    pub environment: Option<bool>,
    pub url: Option<String>,
    pub hosts: Option<Vec<PostgresHost>>,
    pub database: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// JavaScript's number for what gives the current login, in place of that here.
    pub login_client: Option<u32>,
    /// Whether nobody can log in before JavaScript was asked.
    pub needs_login: Option<bool>,
    pub tls: Option<PostgresTlsSettings>,
    pub application_name: Option<String>,
    pub options: Option<String>,
    pub parameters: Option<Vec<PostgresParameter>>,
    /// `any` or `read-write`.
    pub target_session_attrs: Option<String>,
    pub pool_size: Option<f64>,
    pub connect_timeout_ms: Option<f64>,
    /// How long a statement may take.
    pub operation_timeout_ms: Option<f64>,
    pub prepare: Option<bool>,
}

#[napi]
impl NativeBackend {
    /// A backend on `connection`.
    #[napi(factory)]
    pub fn postgres(
        completions: &Completions,
        connection: &PostgresConnection,
        locks: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let locks = lock_options(locks).map_err(thrown)?;
        let backend = PostgresBackend::on(&connection.shared, locks).map_err(thrown)?;
        Ok(Self::of_postgres(backend, completions))
    }

    /// A backend over the client object with JavaScript's number `client`.
    #[napi(factory)]
    pub fn postgres_over_client(
        completions: &Completions,
        client: u32,
        locks: PostgresLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = completions.environment.bridge(client);
        let locks = lock_options(locks).map_err(thrown)?;
        let backend =
            PostgresBackend::with_transport(Arc::new(ClientTransport::new(bridge)), locks);
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
            postgres: Some(backend),
        }
    }
}

pub(crate) fn config(
    connection: PostgresSettings,
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
    if let Some(client) = connection.login_client {
        // The other parts are in the configuration.
        let known = match &config.password {
            Password::Text(password) => Some(Login {
                password: Some(password.clone()),
                ..Login::default()
            }),
            _ => Some(Login::default()),
        };
        let known = known.filter(|_| connection.needs_login != Some(true));
        config.password = Password::Source(Arc::new(Asked::new(ask(client), known)));
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
        // Locks need a server that accepts writes.
        "read-write" | "primary" => Ok(SessionAttrs::ReadWrite),
        _ => Err(Error::invalid(
            "target_session_attrs must be any, read-write or primary",
        )),
    }
}
