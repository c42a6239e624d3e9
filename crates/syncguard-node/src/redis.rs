//! Redis: its options.

use std::collections::HashMap;
use std::sync::Arc;

use napi::Either;
use napi_derive::napi;
use syncguard::Error;
use syncguard::redis::{
    ClientPrefix, RedisBackend, RedisConfig, RedisLocks, RedisSentinel, RedisServer, RedisTls,
};

use crate::backend::NativeBackend;
use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::operations::Operations;
use crate::options::{TlsSettings, default_roots, port, timeout, whole};
use crate::redis_client::{ClientTransport, RedisClientTraits};
use crate::redis_cluster;
use crate::redis_connection::RedisConnection;

/// How locks are kept, whatever the transport.
#[napi(object)]
pub struct RedisLockOptions {
    pub key_prefix: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
    pub operation_timeout_ms: Option<f64>,
    /// How many replicas must have a lock.
    pub replicas: Option<f64>,
    /// After which time without an acquisition a fence counter goes.
    pub fence_ttl_ms: Option<f64>,
}

#[napi(object)]
pub struct RedisNode {
    pub host: String,
    pub port: Option<f64>,
}

/// Where the server is. Settings given besides a URL override it.
#[napi(object)]
pub struct RedisSettings {
    pub url: Option<String>,
    pub host: Option<String>,
    pub port: Option<f64>,
    pub path: Option<String>,
    pub db: Option<f64>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// JavaScript's number for what gives the current login, in place of that here.
    pub login_client: Option<u32>,
    pub tls: Option<TlsSettings>,
    /// Some nodes of a cluster: addresses, URLs, or hosts and ports.
    pub nodes: Option<Vec<Either<String, RedisNode>>>,
    /// Where the nodes of a cluster are, by the `host:port` that they announce.
    pub nat_map: Option<HashMap<String, RedisNode>>,
    pub sentinels: Option<Vec<RedisNode>>,
    /// The name that the Sentinels use for the primary.
    pub name: Option<String>,
    pub sentinel_username: Option<String>,
    pub sentinel_password: Option<String>,
    pub connection_name: Option<String>,
    /// ioredis' own prefix of keys.
    pub client_key_prefix: Option<String>,
    pub connect_timeout_ms: Option<f64>,
    /// After which time a call counts as lost.
    pub operation_timeout_ms: Option<f64>,
}

#[napi]
impl NativeBackend {
    /// A backend on `connection`.
    #[napi(factory)]
    pub fn redis(
        completions: &Completions,
        connection: &RedisConnection,
        locks: RedisLockOptions,
    ) -> napi::Result<Self, Code> {
        let backend = connection.backend(locks).map_err(thrown)?;
        let backend = Arc::new(backend);
        Ok(Self {
            operations: Operations::new(backend, completions, connection.is_on_event_loop()),
            postgres: None,
        })
    }

    /// A backend over the client object with JavaScript's number `client`.
    #[napi(factory)]
    pub fn redis_over_client(
        completions: &Completions,
        client: u32,
        traits: RedisClientTraits,
        locks: RedisLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = completions.environment.bridge(client);
        let locks = lock_settings(locks, RedisLocks::default()).map_err(thrown)?;
        let prefix = match &traits.key_prefix {
            None => ClientPrefix::Theirs,
            Some(none) if none.is_empty() => ClientPrefix::None,
            Some(prefix) => ClientPrefix::Ours(prefix.clone()),
        };
        let transport = Arc::new(ClientTransport::new(bridge, traits));
        let backend = RedisBackend::over(transport, prefix, &locks);
        Ok(Self::of(backend.map_err(thrown)?, completions))
    }
}

pub(crate) fn config(connection: RedisSettings) -> Result<RedisConfig, Error> {
    let mut config = match (&connection.url, &connection.nodes) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("nodes cannot be given together with url"));
        }
        (Some(url), None) => RedisConfig::from_url(url)?,
        (None, Some(nodes)) => redis_cluster::config(nodes)?,
        (None, None) => RedisConfig::default(),
    };
    redis_cluster::check(&connection, &config.server)?;
    let given_port = connection
        .port
        .map(|number| port(number, "port"))
        .transpose()?;
    if let RedisServer::Cluster(cluster) = &mut config.server {
        cluster.nat_map = connection.nat_map.map(redis_cluster::nat_map).transpose()?;
    } else if let Some(nodes) = connection.sentinels {
        let nodes = nodes.into_iter().map(|node| {
            let number = node.port.unwrap_or(26379.0);
            Ok((node.host, port(number, "sentinels.port")?))
        });
        config.server = RedisServer::Sentinel(RedisSentinel {
            nodes: nodes.collect::<Result<_, Error>>()?,
            name: connection.name.unwrap_or_default(),
            username: connection.sentinel_username,
            password: connection.sentinel_password,
        });
    } else if let Some(path) = connection.path {
        config.server = RedisServer::Unix(path.into());
    } else if let RedisServer::Tcp { host, port } = &mut config.server {
        if let Some(given) = connection.host {
            *host = given;
        }
        if let Some(given) = given_port {
            *port = given;
        }
    }
    if let Some(db) = connection.db {
        config.database = whole(db, "db", 255.0)? as u8;
    }
    config.username = connection.username.or(config.username);
    config.password = connection.password.or(config.password);
    config.connection_name = connection.connection_name.or(config.connection_name);
    if let Some(tls) = connection.tls {
        config.tls = Some(RedisTls {
            ca: tls.ca.map(String::into_bytes),
            default_roots: default_roots(tls.default_roots),
            cert: tls.cert.map(String::into_bytes),
            key: tls.key.map(String::into_bytes),
            servername: tls.servername,
            reject_unauthorized: tls.reject_unauthorized.unwrap_or(true),
        });
    }
    if let Some(prefix) = connection.client_key_prefix {
        config.client_key_prefix = prefix;
    }
    if let Some(ms) = connection.connect_timeout_ms {
        config.connect_timeout = timeout(ms, "connectTimeoutMs")?;
    }
    if let Some(ms) = connection.operation_timeout_ms {
        config.locks.operation_timeout = timeout(ms, "operationTimeoutMs")?;
    }
    Ok(config)
}

/// More than a primary can have.
const MOST_REPLICAS: f64 = 1000.0;

pub(crate) fn lock_settings(
    options: RedisLockOptions,
    defaults: RedisLocks,
) -> Result<RedisLocks, Error> {
    let operation_timeout = match options.operation_timeout_ms {
        Some(ms) => timeout(ms, "operationTimeoutMs")?,
        None => defaults.operation_timeout,
    };
    Ok(RedisLocks {
        key_prefix: options.key_prefix.unwrap_or(defaults.key_prefix),
        cleanup_in_is_locked: options
            .cleanup_in_is_locked
            .unwrap_or(defaults.cleanup_in_is_locked),
        operation_timeout,
        replicas: match options.replicas {
            Some(count) => whole(count, "replicas", MOST_REPLICAS)? as u32,
            None => defaults.replicas,
        },
        fence_ttl: match options.fence_ttl_ms {
            Some(ms) => Some(timeout(ms, "fenceTtlMs")?),
            None => defaults.fence_ttl,
        },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn connection() -> RedisSettings {
        RedisSettings {
            url: None,
            host: None,
            port: None,
            path: None,
            db: None,
            username: None,
            password: None,
            login_client: None,
            tls: None,
            nodes: None,
            nat_map: None,
            sentinels: None,
            name: None,
            sentinel_username: None,
            sentinel_password: None,
            connection_name: None,
            client_key_prefix: None,
            connect_timeout_ms: None,
            operation_timeout_ms: None,
        }
    }

    #[test]
    fn fields_override_the_url() {
        let options = RedisSettings {
            url: Some("redis://u:p@first:1/2".into()),
            host: Some("second".into()),
            db: Some(3.0),
            ..connection()
        };
        let config = config(options).unwrap();
        assert_eq!(
            config.server,
            RedisServer::Tcp {
                host: "second".into(),
                port: 1
            }
        );
        assert_eq!(config.database, 3);
        assert_eq!(config.password.as_deref(), Some("p"));
    }

    #[test]
    fn bad_numbers_are_named() {
        for (options, field) in [
            (
                RedisSettings {
                    port: Some(0.0),
                    ..connection()
                },
                "port",
            ),
            (
                RedisSettings {
                    port: Some(65536.0),
                    ..connection()
                },
                "port",
            ),
            (
                RedisSettings {
                    db: Some(-1.0),
                    ..connection()
                },
                "db",
            ),
            (
                RedisSettings {
                    db: Some(f64::NAN),
                    ..connection()
                },
                "db",
            ),
            (
                RedisSettings {
                    connect_timeout_ms: Some(0.0),
                    ..connection()
                },
                "connectTimeoutMs",
            ),
        ] {
            let error = config(options).unwrap_err();
            assert!(error.message().starts_with(field), "{error}");
        }
    }
}
