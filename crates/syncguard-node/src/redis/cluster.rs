//! Redis Cluster: its nodes as users give them.

use std::collections::HashMap;

use napi::Either;
use napi_derive::napi;
use syncguard::Error;
use syncguard::redis::{NatMap, RedisCluster, RedisConfig, RedisServer};

use crate::convert::options::port;

#[napi(object)]
pub struct RedisNode {
    pub host: String,
    pub port: Option<f64>,
}

/// The port of a node that is given without one.
const DEFAULT_PORT: f64 = 6379.0;

impl RedisNode {
    pub(super) fn address(&self, default: f64, field: &str) -> Result<(String, u16), Error> {
        let port = port(self.port.unwrap_or(default), field)?;
        Ok((self.host.clone(), port))
    }
}

/// The settings that are in a list of nodes.
pub(super) fn config(nodes: &[Either<String, RedisNode>]) -> Result<RedisConfig, Error> {
    let mut addresses = Vec::with_capacity(nodes.len());
    let mut common: Option<RedisConfig> = None;
    for node in nodes {
        let text = match node {
            Either::A(text) => text,
            Either::B(node) => {
                addresses.push(node.address(DEFAULT_PORT, "nodes.port")?);
                continue;
            }
        };
        let config = read(text)?;
        let RedisServer::Tcp { host, port } = &config.server else {
            return Err(no_address());
        };
        addresses.push((host.clone(), *port));
        match &common {
            Some(others) if beside_address(others) != beside_address(&config) => {
                return Err(Error::invalid(
                    "nodes must not differ in anything but host and port",
                ));
            }
            Some(_) => {}
            None => common = Some(config),
        }
    }
    let mut config = common.unwrap_or_default();
    config.server = RedisServer::Cluster(RedisCluster {
        nodes: addresses,
        nat_map: None,
    });
    Ok(config)
}

/// A node as a text: an address, or a URL of one server.
fn read(text: &str) -> Result<RedisConfig, Error> {
    if text.is_empty() {
        return Err(no_address());
    }
    let config = match text.contains("://") {
        true => RedisConfig::from_url(text),
        false => RedisConfig::from_url(&format!("redis://{text}")),
    };
    config.map_err(|error| Error::invalid(format!("nodes: {}", error.message())))
}

fn no_address() -> Error {
    Error::invalid(
        "nodes must hold texts like host:port, redis:// or rediss:// URLs, or { host, port }",
    )
}

/// What all nodes have in common.
fn beside_address(config: &RedisConfig) -> impl PartialEq {
    (
        config.username.clone(),
        config.password.clone(),
        config.tls.is_some(),
        config.database,
        config.connection_name.clone(),
        config.locks.key_prefix.clone(),
    )
}

/// Where nodes are, by the address that they announce.
pub(super) fn nat_map(map: HashMap<String, RedisNode>) -> Result<NatMap, Error> {
    map.iter()
        .map(|(announced, node)| {
            let reached = node.address(DEFAULT_PORT, "natMap.port")?;
            Ok((announced_address(announced)?, reached))
        })
        .collect()
}

/// As ioredis writes it: the address of a host may have colons itself, with or without brackets.
fn announced_address(text: &str) -> Result<(String, u16), Error> {
    let parts = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.ok_or_else(|| {
        Error::invalid(
            "natMap must have names like host:port, with the address that a node announces",
        )
    })?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    Ok((bare.unwrap_or(host).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::settings::{self, RedisSettings};

    fn at(host: &str, port: f64) -> RedisNode {
        RedisNode {
            host: host.to_owned(),
            port: Some(port),
        }
    }

    fn texts(texts: &[&str]) -> RedisSettings {
        RedisSettings {
            nodes: Some(
                texts
                    .iter()
                    .map(|text| Either::A((*text).to_owned()))
                    .collect(),
            ),
            ..RedisSettings::default()
        }
    }

    fn problem(settings: RedisSettings) -> String {
        let error = settings::config(settings).unwrap_err();
        error.message().to_owned()
    }

    #[test]
    fn nodes_may_be_addresses_urls_and_objects() {
        for (nodes, has_tls) in [
            (texts(&["a:1", "[::1]:2", "c"]), false),
            (
                texts(&[
                    "rediss://u:p@a:1",
                    "rediss://u:p@[::1]:2/0",
                    "rediss://u:p@c",
                ]),
                true,
            ),
        ] {
            let config = settings::config(nodes).unwrap();
            let RedisServer::Cluster(cluster) = config.server else {
                panic!("no cluster");
            };
            let expected = [("a", 1), ("::1", 2), ("c", 6379)];
            assert_eq!(
                cluster.nodes,
                expected.map(|(host, port)| (host.to_owned(), port))
            );
            assert_eq!(config.tls.is_some(), has_tls);
            assert_eq!(config.password.is_some(), has_tls);
        }
        let mixed = RedisSettings {
            nodes: Some(vec![
                Either::A("u:p@a:1".to_owned()),
                Either::B(at("b", 2.0)),
            ]),
            ..RedisSettings::default()
        };
        let config = settings::config(mixed).unwrap();
        assert_eq!(config.username.as_deref(), Some("u"));
    }

    #[test]
    fn what_does_not_go_with_a_cluster_is_named() {
        let nodes = || texts(&["a:1"]);
        for (settings, name) in [
            (
                RedisSettings {
                    url: Some("redis://h".into()),
                    ..nodes()
                },
                "nodes",
            ),
            (
                RedisSettings {
                    host: Some("h".into()),
                    ..nodes()
                },
                "host",
            ),
            (
                RedisSettings {
                    port: Some(1.0),
                    ..nodes()
                },
                "port",
            ),
            (
                RedisSettings {
                    path: Some("/p".into()),
                    ..nodes()
                },
                "path",
            ),
            (
                RedisSettings {
                    sentinels: Some(vec![at("h", 1.0)]),
                    ..nodes()
                },
                "sentinels",
            ),
            (
                RedisSettings {
                    nat_map: Some(HashMap::new()),
                    ..RedisSettings::default()
                },
                "natMap",
            ),
            (texts(&[""]), "nodes"),
            (texts(&["secret:0x"]), "nodes"),
            (texts(&["unix:///secret"]), "nodes"),
            (texts(&["redis://a", "redis://u:secret@b"]), "nodes"),
            (
                RedisSettings {
                    nodes: Some(vec![Either::B(at("secret", 0.0))]),
                    ..RedisSettings::default()
                },
                "nodes.port",
            ),
        ] {
            let problem = problem(settings);
            assert!(problem.starts_with(name), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn announced_addresses_are_read_as_ioredis_writes_them() {
        for text in ["::1:7000", "[::1]:7000"] {
            assert_eq!(announced_address(text).unwrap(), ("::1".to_owned(), 7000));
        }
        assert_eq!(announced_address("h:1").unwrap(), ("h".to_owned(), 1));
        for bad in ["", "h", "h:", "h:x", "h:65536"] {
            assert!(announced_address(bad).is_err(), "{bad}");
        }
    }
}
