//! PostgreSQL: its options, and what they mean to the core.

use std::sync::Arc;

use napi_derive::napi;
use syncguard::postgres::{Host, Password, Pem, PostgresConfig, PostgresOptions, Tables};
use syncguard::{Error, Login};

use crate::clients::bridge::Bridge;
use crate::clients::login::JavaScriptLogin;
use crate::convert::options::{Roots, default_roots, port, timeout_or, whole};

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

pub(super) fn config(
    settings: PostgresSettings,
    ask: impl FnOnce(u32) -> Bridge,
) -> Result<PostgresConfig, Error> {
    let mut config = match &settings.url {
        Some(url) => PostgresConfig::from_url(url)?,
        None if settings.environment == Some(false) => PostgresConfig::default(),
        None => PostgresConfig::from_env()?,
    };
    if let Some(hosts) = settings.hosts {
        let hosts = hosts.into_iter().map(|host| {
            Ok(Host {
                name: host.host,
                port: port(host.port.unwrap_or(5432.0), "port")?,
            })
        });
        config.hosts = hosts.collect::<Result<_, Error>>()?;
    }
    config.database = settings.database.or(config.database);
    config.user = settings.user.or(config.user);
    if let Some(password) = settings.password {
        config.password = Password::Text(password);
    }
    if let Some(client) = settings.login_client {
        // The other parts are in the configuration.
        let known = Login {
            password: match &config.password {
                Password::Text(password) => Some(password.clone()),
                _ => None,
            },
            ..Login::default()
        };
        let source = JavaScriptLogin::new(ask(client), known, settings.needs_login);
        config.password = Password::Source(Arc::new(source));
    }
    if let Some(tls) = settings.tls {
        if let Some(mode) = tls.mode {
            config.tls.mode = mode.parse()?;
        }
        let pem = |text: Option<String>| text.map(Pem::Text);
        config.tls.root = pem(tls.ca).or(config.tls.root);
        config.tls.default_roots = default_roots(tls.default_roots);
        config.tls.certificate = pem(tls.cert).or(config.tls.certificate);
        config.tls.key = pem(tls.key).or(config.tls.key);
        config.tls.server_name = tls.servername.or(config.tls.server_name);
    }
    config.application_name = settings.application_name.or(config.application_name);
    config.options = settings.options.or(config.options);
    for parameter in settings.parameters.unwrap_or_default() {
        config.parameters.push((parameter.name, parameter.value));
    }
    if let Some(attrs) = settings.target_session_attrs {
        config.session_attrs = attrs.parse()?;
    }
    if let Some(size) = settings.pool_size {
        config.pool_size = whole(size, "max", 10_000.0)? as usize;
    }
    let limit = settings.connect_timeout_ms;
    config.connect_timeout = timeout_or(config.connect_timeout, limit, "connectTimeoutMs")?;
    config.prepare = settings.prepare.unwrap_or(config.prepare);
    Ok(config)
}

pub(super) fn locks(options: PostgresLockOptions) -> Result<PostgresOptions, Error> {
    let defaults = PostgresOptions::default();
    let locks = options.table_name.as_deref();
    let fences = options.fence_table_name.as_deref();
    let limit = options.operation_timeout_ms;
    Ok(PostgresOptions {
        tables: Tables::new(
            locks.unwrap_or(defaults.tables.locks()),
            fences.unwrap_or(defaults.tables.fences()),
        )?,
        cleanup_in_is_locked: options
            .cleanup_in_is_locked
            .unwrap_or(defaults.cleanup_in_is_locked),
        operation_timeout: timeout_or(defaults.operation_timeout, limit, "operationTimeoutMs")?,
        durable_releases: options
            .durable_releases
            .unwrap_or(defaults.durable_releases),
        creates_tables: options.creates_tables.unwrap_or(defaults.creates_tables),
    })
}
