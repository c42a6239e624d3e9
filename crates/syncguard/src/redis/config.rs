//! Where the server is and how locks are kept there.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::tls::RedisTls;
use super::names::{ClientPrefix, Names};
use super::nat_map::NatMap;
use crate::background::backend::DEFAULT_OPERATION_TIMEOUT;
use crate::network::login::LoginSource;
use crate::text::error::{Error, ErrorKind};
use crate::text::login::check_secret;

/// Redis' own port.
pub(super) const DEFAULT_PORT: u16 = 6379;
/// Sentinel's own port.
pub(super) const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Everything about one store of locks in Redis. Checked by
/// [`RedisBackend::new`](super::RedisBackend::new).
///
/// `Debug` shows neither user names nor passwords.
#[derive(Clone)]
pub struct RedisConfig {
    /// Where the server is.
    pub server: RedisServer,
    /// The number of the database. A cluster has only 0.
    pub database: u8,
    /// The ACL user; `None` for the default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// Asked for user, password and database before each new connection, if they may change. It may take as long as making the
    /// connection may.
    pub login: Option<Arc<dyn LoginSource>>,
    /// TLS settings; `None` for no TLS. They apply to Sentinels and to all nodes of a cluster too.
    pub tls: Option<RedisTls>,
    /// What `CLIENT LIST` calls the connection.
    pub connection_name: Option<String>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// A prefix that the client puts before every key it sends, as ioredis does with its option `keyPrefix`:
    /// before the locks' own prefix, and with no colon between the two. Empty for none.
    pub client_key_prefix: String,
    /// How locks are kept.
    pub locks: RedisLocks,
    /// Called for each connection to a primary that few Sentinels named.
    pub on_few_sentinels: Option<FewSentinelsHook>,
}

/// A callback for [`FewSentinels`]. It is called on the thread that connects and must not block.
pub type FewSentinelsHook = Arc<dyn Fn(FewSentinels) + Send + Sync>;

/// No more than half of the Sentinels named the primary that is used. In a failover, that is so for the second in which the others learn
/// of it; at other times, it may be a former primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FewSentinels {
    /// How many had named it when it was taken.
    pub naming: usize,
    /// How many there are.
    pub known: usize,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisServer {
    /// At a host and a port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket in the file system.
    Unix(PathBuf),
    /// Wherever the Sentinels say the primary is.
    Sentinel(RedisSentinel),
    /// On the nodes of a cluster.
    Cluster(RedisCluster),
}

/// A Redis Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisCluster {
    /// The hosts and ports of some of its nodes. They are asked for the others.
    pub nodes: Vec<(String, u16)>,
    /// Where the nodes are for this process, if not where they say.
    pub nat_map: Option<NatMap>,
}

/// A set of Sentinels. `Debug` shows no credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSentinel {
    /// Their hosts and ports.
    pub nodes: Vec<(String, u16)>,
    /// The name under which they know the primary.
    pub name: String,
    /// The ACL user of the Sentinels themselves.
    pub username: Option<String>,
    /// The password of the Sentinels themselves.
    pub password: Option<String>,
}

/// How locks are kept, on whichever connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisLocks {
    /// The first part of every name, followed by a colon.
    pub key_prefix: String,
    /// Whether `is_locked` removes what expired more than two seconds ago.
    pub cleanup_in_is_locked: bool,
    /// How long one operation may take.
    pub operation_timeout: Duration,
    /// How many replicas must have a lock before it counts as granted, and an extension before it counts; 0: the primary's word
    /// is enough. If they do not have it within a tenth of `operation_timeout`, a lock is released, an extension does not
    /// move the end, and the attempt fails with `ServiceUnavailable`. Not over clients of the application's own.
    pub replicas: u32,
    /// After which time without an acquisition the fence counter of a key goes; `None`: never. At least
    /// [`RedisLocks::LEAST_FENCE_TTL`], because the order of fences is then that of the clock. Must not be used
    /// while other libraries count on from where the counters are.
    pub fence_ttl: Option<Duration>,
}

impl Default for RedisLocks {
    fn default() -> Self {
        Self {
            key_prefix: "syncguard".to_owned(),
            cleanup_in_is_locked: false,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            replicas: 0,
            fence_ttl: None,
        }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            server: RedisServer::Tcp {
                host: "localhost".to_owned(),
                port: DEFAULT_PORT,
            },
            database: 0,
            username: None,
            password: None,
            login: None,
            tls: None,
            connection_name: None,
            connect_timeout: Duration::from_secs(5),
            client_key_prefix: String::new(),
            locks: RedisLocks::default(),
            on_few_sentinels: None,
        }
    }
}

impl RedisConfig {
    /// The configuration for a connection that is about to be made.
    pub(super) async fn current(&self) -> Result<Cow<'_, Self>, Error> {
        let Some(source) = &self.login else {
            return Ok(Cow::Borrowed(self));
        };
        let asked = timeout(self.connect_timeout, source.login()).await;
        let login = asked.map_err(|_| {
            let late = "whoever gives the login has not answered in the time for a connection";
            Error::new(ErrorKind::NetworkTimeout, late)
        })??;
        let mut current = self.clone();
        current.username = login.user.or(current.username);
        current.password = login.password.or(current.password);
        current.check_login()?;
        if let Some(number) = login.database {
            let refused = |_| Error::invalid("db must be a whole number from 0 to 255");
            current.database = number.parse().map_err(refused)?;
        }
        Ok(Cow::Owned(current))
    }

    fn check_login(&self) -> Result<(), Error> {
        check_secret("username", self.username.as_deref())?;
        check_secret("password", self.password.as_deref())
    }

    pub(super) fn validate(&self) -> Result<Names, Error> {
        self.check_login()?;
        match &self.server {
            RedisServer::Tcp { host, port } => check_node(host, *port)?,
            RedisServer::Unix(path) => {
                if path.as_os_str().is_empty() {
                    return Err(Error::invalid("path must not be empty"));
                }
                if self.tls.is_some() {
                    return Err(Error::invalid("tls cannot be used on a unix socket"));
                }
            }
            RedisServer::Sentinel(sentinel) => {
                check_secret("sentinelUsername", sentinel.username.as_deref())?;
                check_secret("sentinelPassword", sentinel.password.as_deref())?;
                if sentinel.nodes.is_empty() {
                    return Err(Error::invalid("sentinels must not be empty"));
                }
                for (host, port) in &sentinel.nodes {
                    check_node(host, *port)?;
                }
                if sentinel.name.is_empty() {
                    return Err(Error::invalid(
                        "name must say which primary of the sentinels to use",
                    ));
                }
            }
            RedisServer::Cluster(cluster) => {
                if cluster.nodes.is_empty() {
                    return Err(Error::invalid("nodes must not be empty"));
                }
                for (host, port) in &cluster.nodes {
                    check_node(host, *port)?;
                }
                if self.database != 0 {
                    return Err(Error::invalid("db must be 0 in a redis cluster"));
                }
            }
        }
        if self.username.is_some() && self.password.is_none() && self.login.is_none() {
            return Err(Error::invalid("username is given without a password"));
        }
        if let Some(name) = &self.connection_name
            && !name.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Error::invalid(
                "connectionName must be printable ASCII without spaces",
            ));
        }
        check_timeout("connectTimeoutMs", self.connect_timeout)?;
        let is_cluster = matches!(self.server, RedisServer::Cluster(_));
        self.locks.validate(self.client_prefix(), is_cluster)
    }

    pub(super) fn client_prefix(&self) -> ClientPrefix {
        match self.client_key_prefix.as_str() {
            "" => ClientPrefix::None,
            prefix => ClientPrefix::Ours(prefix.to_owned()),
        }
    }
}

impl RedisLocks {
    /// The least that [`fence_ttl`](Self::fence_ttl) may be: more than any clock is set back by.
    pub const LEAST_FENCE_TTL: Duration = Duration::from_secs(60 * 60);
    /// The most.
    pub const LONGEST_FENCE_TTL: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

    pub(super) fn validate(&self, prefix: ClientPrefix, is_cluster: bool) -> Result<Names, Error> {
        check_timeout("operationTimeoutMs", self.operation_timeout)?;
        let bounds = Self::LEAST_FENCE_TTL..=Self::LONGEST_FENCE_TTL;
        if self.fence_ttl.is_some_and(|ttl| !bounds.contains(&ttl)) {
            return Err(Error::invalid(format!(
                "fenceTtlMs must be from {} to {}: it has to be more than clocks are ever set back by",
                bounds.start().as_millis(),
                bounds.end().as_millis()
            )));
        }
        match is_cluster {
            true => Names::in_cluster(&self.key_prefix, prefix),
            false => Names::new(&self.key_prefix, prefix),
        }
    }
}

fn check_node(host: &str, port: u16) -> Result<(), Error> {
    if host.is_empty() {
        return Err(Error::invalid("host must not be empty"));
    }
    if port == 0 {
        return Err(Error::invalid("port must be from 1 to 65535"));
    }
    Ok(())
}

fn check_timeout(field: &str, timeout: Duration) -> Result<(), Error> {
    // The longest that every timer can take.
    const LONGEST: Duration = Duration::from_millis(2_147_483_647);
    if timeout < Duration::from_millis(1) || timeout > LONGEST {
        return Err(Error::invalid(format!(
            "{field} must be from 1 to {} milliseconds",
            LONGEST.as_millis()
        )));
    }
    Ok(())
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("server", &self.server)
            .field("database", &self.database)
            .field("tls", &self.tls.is_some())
            .field("connect_timeout", &self.connect_timeout)
            .field("locks", &self.locks)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisSentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSentinel")
            .field("nodes", &self.nodes)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::network::login::Login;

    fn refused(change: impl FnOnce(&mut RedisConfig)) -> String {
        let mut config = RedisConfig::default();
        change(&mut config);
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    fn sentinel(nodes: &[(&str, u16)], name: &str) -> RedisServer {
        RedisServer::Sentinel(RedisSentinel {
            nodes: nodes.iter().map(|(h, p)| ((*h).into(), *p)).collect(),
            name: name.into(),
            username: None,
            password: Some("secret".into()),
        })
    }

    #[test]
    fn the_default_is_valid() {
        assert!(RedisConfig::default().validate().is_ok());
    }

    #[test]
    fn bad_fields_are_named() {
        let tcp = |host: &str, port| RedisServer::Tcp {
            host: host.into(),
            port,
        };
        assert!(refused(|c| c.server = tcp("", 1)).starts_with("host"));
        assert!(refused(|c| c.server = tcp("h", 0)).starts_with("port"));
        assert!(refused(|c| c.server = RedisServer::Unix("".into())).starts_with("path"));
        assert!(
            refused(|c| {
                c.server = RedisServer::Unix("/s".into());
                c.tls = Some(RedisTls::default());
            })
            .starts_with("tls")
        );
        assert!(refused(|c| c.server = sentinel(&[], "n")).starts_with("sentinels"));
        assert!(refused(|c| c.server = sentinel(&[("h", 1)], "")).starts_with("name"));
        let cluster = |nodes: &[(&str, u16)]| {
            RedisServer::Cluster(RedisCluster {
                nodes: nodes.iter().map(|(h, p)| ((*h).into(), *p)).collect(),
                nat_map: None,
            })
        };
        assert!(refused(|c| c.server = cluster(&[])).starts_with("nodes"));
        assert!(refused(|c| c.server = cluster(&[("h", 1), ("", 1)])).starts_with("host"));
        assert!(
            refused(|c| {
                c.server = cluster(&[("h", 1)]);
                c.database = 1;
            })
            .starts_with("db")
        );
        assert!(
            refused(|c| {
                c.server = cluster(&[("h", 1)]);
                c.locks.key_prefix = "a}b".into();
            })
            .starts_with("keyPrefix")
        );
        assert!(refused(|c| c.username = Some("u".into())).starts_with("username"));
        assert!(refused(|c| c.username = Some("u\n".into())).contains("username ends with a line"));
        assert!(refused(|c| c.password = Some("p\n".into())).contains("password ends with a line"));
        assert!(refused(|c| c.connection_name = Some("a b".into())).starts_with("connectionName"));
        assert!(refused(|c| c.connect_timeout = Duration::ZERO).starts_with("connectTimeoutMs"));
        assert!(
            refused(|c| c.locks.operation_timeout = Duration::MAX)
                .starts_with("operationTimeoutMs")
        );
        assert!(refused(|c| c.locks.key_prefix = "fence".into()).starts_with("keyPrefix"));
    }

    struct Silent;

    #[async_trait]
    impl LoginSource for Silent {
        async fn login(&self) -> Result<Login, Error> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_no_login_is_not_waited_for_without_end() {
        let config = RedisConfig {
            username: Some("u".into()),
            login: Some(Arc::new(Silent)),
            ..RedisConfig::default()
        };
        assert!(config.validate().is_ok(), "the password comes later");
        let start = tokio::time::Instant::now();
        let error = config.current().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error}");
        assert!(error.message().contains("login"), "{error}");
        assert_eq!(start.elapsed(), config.connect_timeout);
    }

    #[test]
    fn debug_output_shows_no_credentials() {
        let config = RedisConfig {
            server: sentinel(&[("h", 1)], "n"),
            username: Some("secret".into()),
            password: Some("secret".into()),
            ..RedisConfig::default()
        };
        assert!(!format!("{config:?}").contains("secret"));
    }
}
