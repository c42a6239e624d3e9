//! Redis: its options, and what they mean to the core.

use std::collections::HashMap;

use napi::Either;
use napi_derive::napi;
use syncguard::Error;
use syncguard::redis::{RedisConfig, RedisLocks, RedisSentinel, RedisServer, RedisTls};

use super::cluster::{self, RedisNode};
use crate::convert::options::{TlsSettings, default_roots, port, timeout, timeout_or, whole};

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

/// Where the server is. Settings given besides a URL override it.
#[napi(object)]
#[derive(Default)]
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
    /// Whether nobody can log in before JavaScript was asked.
    pub needs_login: Option<bool>,
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
    /// JavaScript's number for what is told of a primary that few Sentinels named.
    pub few_sentinels_client: Option<u32>,
    pub connection_name: Option<String>,
    /// ioredis' own prefix of keys.
    pub client_key_prefix: Option<String>,
    pub connect_timeout_ms: Option<f64>,
    /// After which time a call counts as lost.
    pub operation_timeout_ms: Option<f64>,
}

pub(super) fn config(settings: RedisSettings) -> Result<RedisConfig, Error> {
    let mut config = match (&settings.url, &settings.nodes) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("nodes cannot be given together with url"));
        }
        (Some(url), None) => RedisConfig::from_url(url)?,
        (None, Some(nodes)) => cluster::config(nodes)?,
        (None, None) => RedisConfig::default(),
    };
    check_cluster(&settings, &config.server)?;
    let given_port = settings
        .port
        .map(|number| port(number, "port"))
        .transpose()?;
    if let RedisServer::Cluster(cluster) = &mut config.server {
        cluster.nat_map = settings.nat_map.map(cluster::nat_map).transpose()?;
    } else if let Some(nodes) = settings.sentinels {
        let nodes = nodes
            .iter()
            .map(|node| node.address(26379.0, "sentinels.port"));
        config.server = RedisServer::Sentinel(RedisSentinel {
            nodes: nodes.collect::<Result<_, _>>()?,
            name: settings.name.unwrap_or_default(),
            username: settings.sentinel_username,
            password: settings.sentinel_password,
        });
    } else if let Some(path) = settings.path {
        config.server = RedisServer::Unix(path.into());
    } else if let RedisServer::Tcp { host, port } = config.server {
        config.server = RedisServer::Tcp {
            host: settings.host.unwrap_or(host),
            port: given_port.unwrap_or(port),
        };
    }
    if let Some(db) = settings.db {
        config.database = whole(db, "db", 255.0)? as u8;
    }
    if let Some(tls) = settings.tls {
        config.tls = Some(RedisTls {
            ca: tls.ca.map(String::into_bytes),
            default_roots: default_roots(tls.default_roots),
            cert: tls.cert.map(String::into_bytes),
            key: tls.key.map(String::into_bytes),
            servername: tls.servername,
            reject_unauthorized: tls.reject_unauthorized.unwrap_or(true),
        });
    }
    let limit = settings.operation_timeout_ms;
    config.locks.operation_timeout =
        timeout_or(config.locks.operation_timeout, limit, "operationTimeoutMs")?;
    let limit = settings.connect_timeout_ms;
    Ok(RedisConfig {
        username: settings.username.or(config.username),
        password: settings.password.or(config.password),
        connection_name: settings.connection_name.or(config.connection_name),
        client_key_prefix: settings
            .client_key_prefix
            .unwrap_or(config.client_key_prefix),
        connect_timeout: timeout_or(config.connect_timeout, limit, "connectTimeoutMs")?,
        ..config
    })
}

/// Refuses settings that do not go together with a cluster, or only with one.
fn check_cluster(settings: &RedisSettings, server: &RedisServer) -> Result<(), Error> {
    if !matches!(server, RedisServer::Cluster(_)) {
        return match settings.nat_map {
            Some(_) => Err(Error::invalid(
                "natMap is for a redis cluster: give nodes, or a redis+cluster:// URL",
            )),
            None => Ok(()),
        };
    }
    let others = [
        ("host", settings.host.is_some()),
        ("port", settings.port.is_some()),
        ("path", settings.path.is_some()),
        ("sentinels", settings.sentinels.is_some()),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Error::invalid(format!(
            "{name} cannot be given for a redis cluster, whose nodes are in nodes or in the URL"
        ))),
        None => Ok(()),
    }
}

/// More than a primary can have.
const MOST_REPLICAS: f64 = 1000.0;

pub(super) fn locks(options: RedisLockOptions, defaults: RedisLocks) -> Result<RedisLocks, Error> {
    let limit = options.operation_timeout_ms;
    Ok(RedisLocks {
        key_prefix: options.key_prefix.unwrap_or(defaults.key_prefix),
        cleanup_in_is_locked: options
            .cleanup_in_is_locked
            .unwrap_or(defaults.cleanup_in_is_locked),
        operation_timeout: timeout_or(defaults.operation_timeout, limit, "operationTimeoutMs")?,
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
mod tests {
    use super::*;

    #[test]
    fn fields_override_the_url() {
        let options = RedisSettings {
            url: Some("redis://u:p@first:1/2".into()),
            host: Some("second".into()),
            db: Some(3.0),
            ..RedisSettings::default()
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
                    ..RedisSettings::default()
                },
                "port",
            ),
            (
                RedisSettings {
                    port: Some(65536.0),
                    ..RedisSettings::default()
                },
                "port",
            ),
            (
                RedisSettings {
                    db: Some(-1.0),
                    ..RedisSettings::default()
                },
                "db",
            ),
            (
                RedisSettings {
                    db: Some(f64::NAN),
                    ..RedisSettings::default()
                },
                "db",
            ),
            (
                RedisSettings {
                    connect_timeout_ms: Some(0.0),
                    ..RedisSettings::default()
                },
                "connectTimeoutMs",
            ),
        ] {
            let error = config(options).unwrap_err();
            assert!(error.message().starts_with(field), "{error}");
        }
    }
}
