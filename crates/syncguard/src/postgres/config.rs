//! Where the server is and how to log in.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::options;
use crate::network::keepalive::Keepalive;
use crate::network::login::{Login, LoginSource};
use crate::network::tls::DefaultRoots;
use crate::text::error::Error;
use crate::text::login::check_secret;

/// The port if none is given.
pub(super) const DEFAULT_PORT: u16 = 5432;

/// Where the server is, as whom to log in, and how many connections there may be.
///
/// [`from_url`](Self::from_url) and [`from_env`](Self::from_env) fill it the way `psql` does.
#[derive(Clone)]
pub struct PostgresConfig {
    /// Servers, tried in order until one accepts writes. An empty list means this machine. Of several, those that are not in
    /// use are asked, at most once a second, whether they have been promoted (docs/postgres.md, "When a standby is promoted").
    pub hosts: Vec<Host>,
    /// The role. Default: the name of the operating system's user.
    pub user: Option<String>,
    /// How the role authenticates.
    pub password: Password,
    /// The database. Default: the name of the role.
    pub database: Option<String>,
    /// How connections name themselves in `pg_stat_activity`.
    pub application_name: Option<String>,
    /// Command-line options for the session, as in `-c search_path=locks`.
    pub options: Option<String>,
    /// Settings for the session by name.
    pub parameters: Vec<(String, String)>,
    /// Encryption.
    pub tls: Tls,
    /// Which kind of server to accept. Default: with several hosts, one that accepts writes.
    pub session_attrs: SessionAttrs,
    /// How long getting a connection may take, with all hosts.
    pub connect_timeout: Duration,
    /// TCP settings of the connections.
    pub tcp: TcpSettings,
    /// The most connections at once. They are opened when they are needed.
    pub pool_size: usize,
    /// Whether statements may be prepared once per connection. The backend notices where that does not work, so
    /// turning it off is rarely necessary.
    pub prepare: bool,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            user: None,
            password: Password::None,
            database: None,
            application_name: None,
            options: None,
            parameters: Vec::new(),
            tls: Tls::default(),
            session_attrs: SessionAttrs::Default,
            connect_timeout: Duration::from_secs(5),
            tcp: TcpSettings::default(),
            pool_size: 10,
            prepare: true,
        }
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.hosts.len())
            .field("ssl_mode", &self.tls.mode)
            .field("pool_size", &self.pool_size)
            .field("prepare", &self.prepare)
            .finish_non_exhaustive()
    }
}

impl PostgresConfig {
    /// The session's settings by name, those of `options` among them, in the order in which they count. `None` if
    /// `options` asks for something else.
    pub(super) fn settings(&self) -> Option<Vec<(String, String)>> {
        let mut settings = options::settings(self.options.as_deref().unwrap_or_default())?;
        settings.extend(self.parameters.iter().cloned());
        Some(settings)
    }

    /// Checks what can be checked without a server.
    pub(super) fn validate(&self) -> Result<(), Error> {
        let password = match &self.password {
            Password::Text(password) => Some(password.as_str()),
            _ => None,
        };
        check_login(self.user.as_deref(), password, self.database.as_deref())?;
        check_text("application_name", self.application_name.as_deref())?;
        check_text("options", self.options.as_deref())?;
        if self.pool_size == 0 {
            return Err(Error::invalid("poolSize must be at least 1"));
        }
        if self.connect_timeout.is_zero() {
            return Err(Error::invalid("connectTimeout must be above zero"));
        }
        if self.hosts.iter().any(|host| host.name.is_empty()) {
            return Err(Error::invalid("host must not be empty"));
        }
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            return Err(Error::invalid("sslcert and sslkey must be given together"));
        }
        for (name, value) in &self.parameters {
            check_text("connection", Some(value))?;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
            if name.is_empty() || !name.bytes().all(plain) {
                return Err(Error::invalid(
                    "connection parameters must be named by letters, digits, underscores and dots",
                ));
            }
        }
        Ok(())
    }
}

/// Refuses what can be no login, whoever gave it.
pub(super) fn check_login(
    user: Option<&str>,
    password: Option<&str>,
    database: Option<&str>,
) -> Result<(), Error> {
    for (name, text) in [
        ("user", user),
        ("password", password),
        ("database", database),
    ] {
        check_secret(name, text)?;
        check_text(name, text)?;
    }
    Ok(())
}

/// Refuses U+0000, at which the protocol ends a text.
fn check_text(name: &str, text: Option<&str>) -> Result<(), Error> {
    match text {
        Some(text) if text.contains('\0') => Err(Error::invalid(format!(
            "{name} must not contain U+0000, which texts of PostgreSQL cannot hold: leave it out"
        ))),
        _ => Ok(()),
    }
}

/// TCP settings, which the operating system carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSettings {
    /// Whether idle connections are kept alive with TCP keepalive, which also finds those that are gone.
    pub keepalive: bool,
    /// How long a connection may be idle before the first keepalive probe is sent. A session that was idle for longer,
    /// or for five seconds, has to answer a query before it is used again.
    pub keepalive_idle: Duration,
    /// The time between two probes.
    pub keepalive_interval: Duration,
    /// After how many unanswered probes the connection counts as gone.
    pub keepalive_count: u32,
    /// How long sent data may stay unacknowledged. Default: the operation timeout. Linux only.
    pub user_timeout: Option<Duration>,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            keepalive: true,
            keepalive_idle: Keepalive::DEFAULT.idle,
            keepalive_interval: Keepalive::DEFAULT.interval,
            keepalive_count: Keepalive::DEFAULT.count,
            user_timeout: None,
        }
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name, an address, or the folder of a unix socket (starting with `/`).
    pub name: String,
    /// Its port, also part of the name of a unix socket.
    pub port: u16,
}

impl Host {
    /// Whether it is the folder of a unix socket.
    pub fn is_unix_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    /// Where it listens, as error messages name it.
    pub(super) fn endpoint(&self) -> String {
        let Self { name, port } = self;
        if self.is_unix_socket() {
            format!("{name}/.s.PGSQL.{port}")
        } else if name.contains(':') {
            format!("[{name}]:{port}")
        } else {
            format!("{name}:{port}")
        }
    }
}

/// How a role authenticates.
#[derive(Clone, Default)]
pub enum Password {
    /// Without a password.
    #[default]
    None,
    /// With this password.
    Text(String),
    /// With a login that is requested for each new connection, such as a token that expires.
    Source(Arc<dyn LoginSource>),
}

impl Password {
    /// The login for a new connection.
    pub(super) async fn get(&self) -> Result<Login, Error> {
        match self {
            Self::None => Ok(Login::default()),
            Self::Text(text) => Ok(Login {
                password: Some(text.clone()),
                ..Login::default()
            }),
            Self::Source(source) => source.login().await,
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Text(_) => "Text(…)",
            Self::Source(_) => "Source(…)",
        })
    }
}

/// Whether to encrypt, and who has to present which certificates.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Whether to encrypt, and whether to check the server.
    pub mode: SslMode,
    /// Certificates of the authorities to trust, instead of [`default_roots`](Self::default_roots).
    pub root: Option<Pem>,
    /// Which authorities to trust without [`root`](Self::root), in the modes that then check the server.
    pub default_roots: DefaultRoots,
    /// The client's certificate.
    pub certificate: Option<Pem>,
    /// Its private key, not encrypted.
    pub key: Option<Pem>,
    /// The name to expect in the server's certificate, instead of the host's.
    pub server_name: Option<String>,
    /// Whether authentication must be bound to the encrypted channel.
    pub channel_binding: ChannelBinding,
}

impl Tls {
    /// The files that certificates and keys are read from.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let given = [&self.root, &self.certificate, &self.key].into_iter();
        given.flatten().filter_map(|pem| match pem {
            Pem::File(path) => Some(path.as_path()),
            Pem::Text(_) => None,
        })
    }
}

/// Whether SCRAM authentication is bound to the encrypted channel, so that somebody in between cannot relay it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server can.
    #[default]
    Prefer,
    /// Always; a server that cannot do it is refused.
    Require,
}

/// Whether to encrypt, and whether to check the server: the modes of libpq. Unix sockets are never
/// encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never encrypt.
    Disable,
    /// Encrypt if the server insists.
    Allow,
    /// Encrypt if the server can.
    #[default]
    Prefer,
    /// Encrypt; check the server's certificate only if authorities are given.
    Require,
    /// Encrypt, and check that the server's certificate is from a trusted authority.
    VerifyCa,
    /// The same, and check that it is for this host.
    VerifyFull,
}

/// Certificates or a key in PEM form.
#[derive(Clone)]
pub enum Pem {
    /// In a file, read when the first connection is opened.
    File(PathBuf),
    /// As text.
    Text(String),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File(…)",
            Self::Text(_) => "Text(…)",
        })
    }
}

/// Which servers to accept. Locks need one that accepts writes, so libpq's other values are not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionAttrs {
    /// With several hosts, one that accepts writes; a single host without a check.
    #[default]
    Default,
    /// The first one that can be reached.
    Any,
    /// One that accepts writes.
    ReadWrite,
}
