//! Configuration from a URL.

use percent_encoding::percent_decode_str;

use super::config::{
    DEFAULT_PORT, DEFAULT_SENTINEL_PORT, RedisCluster, RedisConfig, RedisSentinel, RedisServer,
};
use super::connection::tls::RedisTls;
use crate::text::error::Error;
use crate::text::login::{check_login, check_secret};
use crate::text::suggest;

/// The parts of a URL, not yet decoded.
struct Parts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl RedisConfig {
    /// Reads a URL:
    ///
    /// - `redis://user:password@host:port/db`, with TLS as `rediss://`
    /// - `unix:///path/to/socket?db=1`, also `redis+unix://`
    /// - `redis+sentinel://user:password@host:port,host:port/name/db`, with TLS as
    ///   `rediss+sentinel://`; also `redis-sentinel://`. The query may hold `sentinelUsername` and
    ///   `sentinelPassword`.
    /// - `redis+cluster://user:password@host:port,host:port`, with TLS as `rediss+cluster://`; also
    ///   `redis-cluster://`
    ///
    /// `valkey` may stand in the place of `redis` in each: `valkey://`, `valkeys://`.
    ///
    /// Queries may hold `db`, `username`, `password`, `connectionName`, and `keyPrefix` and `replicas` of the locks.
    ///
    /// # Errors
    /// `InvalidArgument`, which says what is wrong and does not quote the URL.
    ///
    /// ```
    /// use syncguard::redis::RedisConfig;
    /// let config = RedisConfig::from_url("rediss://locks:secret@cache.example:6380/2")?;
    /// assert_eq!(config.database, 2);
    /// assert!(config.tls.is_some());
    /// # Ok::<(), syncguard::Error>(())
    /// ```
    pub fn from_url(text: &str) -> Result<Self, Error> {
        read(text)
    }
}

fn read(text: &str) -> Result<RedisConfig, Error> {
    check_secret("the url", Some(text))?;
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| Error::invalid("the url must start with redis:// or the like"))?;
    // Valkey's schemes mean what those of Redis do.
    let scheme = scheme.to_ascii_lowercase().replacen("valkey", "redis", 1);
    check_login(rest, |name| PARAMETERS.contains(&name))?;
    let parts = split(rest);
    let mut config = RedisConfig {
        username: decoded(parts.user)?,
        password: decoded(parts.password)?,
        ..RedisConfig::default()
    };
    if scheme.starts_with("rediss") {
        config.tls = Some(RedisTls::default());
    }
    match scheme.as_str() {
        "redis" | "rediss" => tcp(&mut config, &parts)?,
        "unix" | "redis+unix" => unix(&mut config, &parts)?,
        "redis+sentinel" | "redis-sentinel" | "rediss+sentinel" | "rediss-sentinel" => {
            sentinel(&mut config, &parts)?;
        }
        "redis+cluster" | "redis-cluster" | "rediss+cluster" | "rediss-cluster" => {
            cluster(&mut config, &parts)?;
        }
        _ => {
            return Err(Error::invalid(
                "the url's scheme must be redis, rediss, valkey, valkeys, unix, redis+sentinel, rediss+sentinel, redis+cluster or \
                 rediss+cluster",
            ));
        }
    }
    query(&mut config, parts.query)?;
    Ok(config)
}

fn split(rest: &str) -> Parts<'_> {
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority
        .split_once('@')
        .map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let (user, password) = match login.map(|login| login.split_once(':')) {
        Some(Some((user, password))) => (Some(user), Some(password)),
        // A lone word is the user, as Redis' own tools read it.
        Some(None) => (login, None),
        None => (None, None),
    };
    Parts {
        user,
        password,
        hosts,
        path,
        query,
        fragment,
    }
}

fn tcp(config: &mut RedisConfig, parts: &Parts<'_>) -> Result<(), Error> {
    let (host, port) = node(parts.hosts, DEFAULT_PORT)?;
    let host = if host.is_empty() {
        "localhost".to_owned()
    } else {
        host
    };
    config.server = RedisServer::Tcp { host, port };
    let path = parts.path.trim_end_matches('/');
    if !path.is_empty() {
        config.database = database(path)?;
    }
    Ok(())
}

fn unix(config: &mut RedisConfig, parts: &Parts<'_>) -> Result<(), Error> {
    if !parts.hosts.is_empty() {
        return Err(Error::invalid(
            "the url of a unix socket must have an absolute path: unix:///path",
        ));
    }
    config.server = RedisServer::Unix(format!("/{}", decode(parts.path)?).into());
    Ok(())
}

fn sentinel(config: &mut RedisConfig, parts: &Parts<'_>) -> Result<(), Error> {
    let nodes = nodes(parts.hosts, DEFAULT_SENTINEL_PORT)?;
    let mut name = decode(parts.fragment)?;
    for segment in parts.path.split('/').filter(|segment| !segment.is_empty()) {
        if name.is_empty() && segment.parse::<u64>().is_err() {
            name = decode(segment)?;
        } else {
            config.database = database(segment)?;
        }
    }
    config.server = RedisServer::Sentinel(RedisSentinel {
        nodes,
        name,
        username: None,
        password: None,
    });
    Ok(())
}

fn cluster(config: &mut RedisConfig, parts: &Parts<'_>) -> Result<(), Error> {
    let path = parts.path.trim_end_matches('/');
    if !path.is_empty() {
        config.database = database(path)?;
    }
    config.server = RedisServer::Cluster(RedisCluster {
        nodes: nodes(parts.hosts, DEFAULT_PORT)?,
        nat_map: None,
    });
    Ok(())
}

fn nodes(hosts: &str, default_port: u16) -> Result<Vec<(String, u16)>, Error> {
    let hosts = hosts.split(',');
    hosts.map(|text| node(text, default_port)).collect()
}

fn query(config: &mut RedisConfig, query: &str) -> Result<(), Error> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        match (name, &mut config.server) {
            ("db", _) => config.database = database(&value)?,
            ("username", _) => config.username = Some(value),
            ("password", _) => config.password = Some(value),
            ("connectionName", _) => config.connection_name = Some(value),
            ("keyPrefix", _) => config.locks.key_prefix = value,
            ("replicas", _) => config.locks.replicas = replicas(&value)?,
            ("sentinelServiceName" | "sentinelMasterId" | "name", RedisServer::Sentinel(set)) => {
                set.name = value;
            }
            ("sentinelUsername", RedisServer::Sentinel(set)) => set.username = Some(value),
            ("sentinelPassword", RedisServer::Sentinel(set)) => set.password = Some(value),
            ("node", RedisServer::Sentinel(set)) => {
                set.nodes.push(node(&value, DEFAULT_SENTINEL_PORT)?);
            }
            ("node", RedisServer::Cluster(set)) => set.nodes.push(node(&value, DEFAULT_PORT)?),
            (name, server) => return Err(unknown(name, server)),
        }
    }
    Ok(())
}

/// The parameters of every URL, then that of URLs of clusters, then those of URLs with Sentinels.
const PARAMETERS: [&str; 12] = [
    "db",
    "username",
    "password",
    "connectionName",
    "keyPrefix",
    "replicas",
    "node",
    "name",
    "sentinelServiceName",
    "sentinelMasterId",
    "sentinelUsername",
    "sentinelPassword",
];

fn unknown(name: &str, server: &RedisServer) -> Error {
    if name == "family" {
        return Error::invalid(
            "family in the url's query is not needed: leave it out, addresses of IPv4 and IPv6 are both tried",
        );
    }
    let known = match server {
        RedisServer::Sentinel(_) => &PARAMETERS[..],
        RedisServer::Cluster(_) => &PARAMETERS[..7],
        _ => &PARAMETERS[..6],
    };
    let all = format!("it may hold {}", known.join(", "));
    suggest::unknown_parameter(name, known, &all)
}

/// `host`, `host:port`, `[address]` or `[address]:port`.
fn node(text: &str, default_port: u16) -> Result<(String, u16), Error> {
    let bad_port = || Error::invalid("port must be from 1 to 65535");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| Error::invalid("host has a [ without a ]"))?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(bad_port()),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => default_port,
        Some(digits) => digits.parse().map_err(|_| bad_port())?,
    };
    Ok((decode(host)?, port))
}

fn replicas(text: &str) -> Result<u32, Error> {
    text.parse()
        .map_err(|_| Error::invalid("replicas must be a whole number"))
}

fn database(text: &str) -> Result<u8, Error> {
    text.parse()
        .map_err(|_| Error::invalid("db must be a number from 0 to 255"))
}

/// The decoded text; `None` if it is empty, as the user in `redis://:password@host`.
fn decoded(text: Option<&str>) -> Result<Option<String>, Error> {
    text.filter(|text| !text.is_empty()).map(decode).transpose()
}

fn decode(text: &str) -> Result<String, Error> {
    percent_decode_str(text)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Error::invalid("the url is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn tcp_at(host: &str, port: u16) -> RedisServer {
        RedisServer::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn a_server_by_host_and_port() {
        for (text, server, database) in [
            ("redis://", tcp_at("localhost", 6379), 0),
            ("redis://h", tcp_at("h", 6379), 0),
            ("REDIS://h:1/", tcp_at("h", 1), 0),
            ("redis://h/3", tcp_at("h", 6379), 3),
            ("redis://h:1?db=4", tcp_at("h", 1), 4),
            ("redis://[::1]:7/2", tcp_at("::1", 7), 2),
            ("redis://[::1]", tcp_at("::1", 6379), 0),
            (
                "unix:///run/r.sock",
                RedisServer::Unix("/run/r.sock".into()),
                0,
            ),
            (
                "redis+unix:///r%20s?db=5",
                RedisServer::Unix("/r s".into()),
                5,
            ),
        ] {
            let config = read(text).unwrap();
            assert_eq!(config.server, server, "{text}");
            assert_eq!(config.database, database, "{text}");
            assert!(config.tls.is_none());
            assert!(config.username.is_none() && config.password.is_none());
        }
        assert!(read("rediss://h").unwrap().tls.is_some());
        for (valkey, redis) in [
            ("valkey://u:p@h:1/2", "redis://u:p@h:1/2"),
            ("VALKEYS://h", "rediss://h"),
            ("valkeys+cluster://h", "rediss+cluster://h"),
            ("valkey-sentinel://h/main", "redis-sentinel://h/main"),
        ] {
            let [valkey, redis] = [valkey, redis].map(|text| read(text).unwrap());
            assert_eq!(valkey.server, redis.server);
            assert_eq!(valkey.tls.is_some(), redis.tls.is_some());
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let login = |text| {
            let config = read(text).unwrap();
            (config.username, config.password)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(login("redis://:p@h"), (None, some("p")));
        assert_eq!(login("redis://u:p%40%2F%3a@h"), (some("u"), some("p@/:")));
        assert_eq!(login("redis://u:a:b@h"), (some("u"), some("a:b")));
        assert_eq!(
            login("redis://h?username=u&password=p"),
            (some("u"), some("p"))
        );
    }

    #[test]
    fn sentinels_have_several_spellings() {
        for text in [
            "redis+sentinel://u:p@a:1,b/main/2?sentinelUsername=su&sentinelPassword=sp",
            "redis-sentinel://u:p@a:1,b/2?sentinelUsername=su&sentinelPassword=sp#main",
            "rediss+sentinel://u:p@a:1/2?node=b&name=main&sentinelUsername=su&sentinelPassword=sp",
            "redis-sentinel://u:p@a:1/2?node=b&sentinelServiceName=main&sentinelUsername=su&sentinelPassword=sp",
        ] {
            let config = read(text).unwrap();
            assert_eq!(config.database, 2, "{text}");
            assert_eq!(config.username.as_deref(), Some("u"));
            assert_eq!(config.password.as_deref(), Some("p"));
            assert_eq!(config.tls.is_some(), text.starts_with("rediss"));
            let expected = RedisSentinel {
                nodes: vec![("a".into(), 1), ("b".into(), 26379)],
                name: "main".into(),
                username: Some("su".into()),
                password: Some("sp".into()),
            };
            assert_eq!(config.server, RedisServer::Sentinel(expected), "{text}");
        }
    }

    #[test]
    fn a_cluster_has_several_nodes_and_no_database() {
        for (text, database) in [
            ("redis+cluster://u:p@a:7000,b", 0),
            ("redis-cluster://u:p@a:7000,b/", 0),
            ("rediss+cluster://u:p@a:7000/0?node=b", 0),
            ("rediss-cluster://u:p@a:7000,b/3", 3),
        ] {
            let config = read(text).unwrap();
            let nodes = vec![("a".into(), 7000), ("b".into(), 6379)];
            let nat_map = None;
            let expected = RedisServer::Cluster(RedisCluster { nodes, nat_map });
            assert_eq!(config.server, expected, "{text}");
            assert_eq!(config.username.as_deref(), Some("u"));
            assert_eq!(config.tls.is_some(), text.starts_with("rediss"));
            assert_eq!(config.database, database);
            assert_eq!(config.validate().is_ok(), database == 0);
        }
    }

    #[test]
    fn unknown_parameters_are_refused_with_what_was_probably_meant() {
        for (text, end) in [
            ("redis://h?keyPrefx=a", "did you mean keyPrefix?"),
            ("redis://h?connectionname=a", "did you mean connectionName?"),
            (
                "redis://h?family=0",
                "leave it out, addresses of IPv4 and IPv6 are both tried",
            ),
            (
                "redis+sentinel://h/m?sentinelpasword=a",
                "did you mean sentinelPassword?",
            ),
            (
                "redis://h?sentinelPassword=a",
                "it may hold db, username, password, connectionName, keyPrefix, replicas",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().ends_with(end), "{error}");
        }
        // Each that is known is read.
        let values = PARAMETERS.map(|name| format!("{name}=1"));
        read(&format!("redis+sentinel://h/main?{}", values.join("&"))).unwrap();
        read(&format!("redis+cluster://h?{}", values[..7].join("&"))).unwrap();
        read(&format!("redis://h?{}", values[..6].join("&"))).unwrap();
    }

    #[test]
    fn bad_urls_are_refused_and_not_quoted() {
        for text in [
            "",
            "secret",
            "http://secret",
            "redis://secret:99999",
            "redis://secret:x",
            "redis://h/secret",
            "redis://h/256",
            "redis://[secret",
            "redis://[::1]secret",
            "redis://h?secret=1",
            "redis://h?sentinelPassword=secret",
            "redis://secret%ff:p@h",
            "redis://u:p@secret@h",
            "redis://u:p@secret/tail@h",
            "redis://u:p@secret#tail@h/0",
            "unix://secret/path",
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(!error.message().contains("secret"), "{error}");
        }
        let error = read("redis://u:p@h:6379\n").unwrap_err();
        assert!(
            error
                .message()
                .starts_with("the url ends with a line break"),
            "{error}"
        );
    }
}
