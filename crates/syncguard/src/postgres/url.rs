//! Settings from a URL and from the environment, as libpq reads them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::config::{
    ChannelBinding, DEFAULT_PORT, Host, Password, Pem, PostgresConfig, SessionAttrs, SslMode,
    TcpSettings, Tls,
};
use super::url_names as names;
use crate::text::error::Error;
use crate::text::login::{check_login, check_secret};

/// libpq's environment variables, and the URL parameter for which each is the default.
const VARIABLES: [(&str, &str); 13] = [
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGDATABASE", "dbname"),
    ("PGAPPNAME", "application_name"),
    ("PGOPTIONS", "options"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
];

impl PostgresConfig {
    /// Reads `postgres://user:password@host:port,host2:port2/database?parameter=value`. What the URL does not
    /// say is taken from the environment, see [`from_env`](Self::from_env).
    ///
    /// Parameters: host, port, user, password, dbname, application_name, options, sslmode,
    /// sslrootcert, sslcert, sslkey, channel_binding, connect_timeout (seconds), target_session_attrs,
    /// keepalives, keepalives_idle, keepalives_interval (seconds), keepalives_count,
    /// tcp_user_timeout (milliseconds); statement_timeout, lock_timeout and search_path, for the
    /// session. Parameters of other clients are ignored where that does no harm.
    ///
    /// # Errors
    /// `InvalidArgument` that names the part that cannot be read, and never quotes its value.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Self::from_url_and(url, |name| std::env::var(name).ok())
    }

    /// Reads PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE, PGAPPNAME, PGOPTIONS, PGSSLMODE,
    /// PGSSLROOTCERT, PGSSLCERT, PGSSLKEY, PGCONNECT_TIMEOUT and PGTARGETSESSIONATTRS.
    ///
    /// # Errors
    /// `InvalidArgument` that names what cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        Parameters::default().finish(|name| std::env::var(name).ok())
    }

    fn from_url_and(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        Parameters::parse(url)?.finish(variable)
    }
}

/// Parameters by name, before they mean anything.
#[derive(Default)]
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn parse(url: &str) -> Result<Self, Error> {
        check_secret("url", Some(url))?;
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or_else(|| Error::invalid("url must start with postgres:// or postgresql://"))?;
        check_login(rest, names::is_known)?;
        let mut parts = Self::default();
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.split_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        parts.add("user", decode("user", user)?);
        parts.add("password", decode("password", password)?);
        parts.add("dbname", decode("database", database)?);
        parts.add_hosts(hosts)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode("parameter", name)?;
            let value = decode("parameter", &value.replace('+', "%20"))?;
            names::check(&name, &value)?;
            parts.add(&name, value);
        }
        Ok(parts)
    }

    fn add_hosts(&mut self, hosts: &str) -> Result<(), Error> {
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for host in hosts.split(',') {
            // The colons of an IPv6 address are inside brackets.
            let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let (name, port) = match bracketed {
                Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or(rest)),
                None => host.split_once(':').unwrap_or((host, "")),
            };
            names.push(decode("host", name)?);
            ports.push(port);
        }
        self.add("host", names.join(","));
        self.add("port", ports.join(","));
        Ok(())
    }

    /// Adds a parameter. The last of several with one name counts, and an empty one counts as absent.
    fn add(&mut self, name: &str, value: String) {
        if value.bytes().any(|byte| byte != b',') {
            self.0.push((name.to_owned(), value));
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    fn finish(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<PostgresConfig, Error> {
        for (variable_name, name) in VARIABLES {
            if self.get(name).is_none()
                && let Some(value) = variable(variable_name)
            {
                self.add(name, value);
            }
        }
        let text = |name| self.get(name).map(str::to_owned);
        let mut config = PostgresConfig {
            hosts: self.hosts()?,
            user: text("user"),
            password: text("password").map_or(Password::None, Password::Text),
            database: text("dbname").or_else(|| text("database")),
            application_name: text("application_name"),
            options: text("options"),
            ..PostgresConfig::default()
        };
        self.tls(&mut config.tls)?;
        self.tcp(&mut config.tcp)?;
        if let Some(attrs) = self.get("target_session_attrs") {
            config.session_attrs = attrs.parse()?;
        }
        // In libpq, zero means to wait forever. Here the time limit of the operation still applies.
        if let Some(seconds) = self.number("connect_timeout", "a number of seconds")? {
            config.connect_timeout = Duration::from_secs(seconds);
        }
        for name in ["statement_timeout", "lock_timeout", "search_path"] {
            let value = text(name).map(|value| (name.to_owned(), value));
            config.parameters.extend(value);
        }
        config.validate()?;
        Ok(config)
    }

    fn tls(&self, tls: &mut Tls) -> Result<(), Error> {
        let file = |name| self.get(name).map(|path| Pem::File(PathBuf::from(path)));
        let is_system = self.get("sslrootcert") == Some("system");
        if let Some(mode) = self.get("sslmode").or_else(|| self.get("ssl")) {
            tls.mode = mode.parse()?;
        } else if is_system {
            // As in libpq: public authorities certify anybody, so the name has to be checked.
            tls.mode = SslMode::VerifyFull;
        }
        if is_system && tls.mode != SslMode::VerifyFull {
            let words = "sslmode must be verify-full with sslrootcert=system";
            return Err(Error::invalid(words));
        }
        tls.root = file("sslrootcert").filter(|_| !is_system);
        tls.certificate = file("sslcert");
        tls.key = file("sslkey");
        if let Some(binding) = self.get("channel_binding") {
            tls.channel_binding = binding.parse()?;
        }
        Ok(())
    }

    fn tcp(&self, tcp: &mut TcpSettings) -> Result<(), Error> {
        let number = |name| self.number::<u32>(name, "a whole number");
        let seconds = |name| number(name).map(|it| it.map(|it| Duration::from_secs(it.into())));
        tcp.keepalive = match self.get("keepalives") {
            None | Some("1") => true,
            Some("0") => false,
            Some(_) => return Err(Error::invalid("keepalives must be 0 or 1")),
        };
        tcp.keepalive_idle = seconds("keepalives_idle")?.unwrap_or(tcp.keepalive_idle);
        tcp.keepalive_interval = seconds("keepalives_interval")?.unwrap_or(tcp.keepalive_interval);
        tcp.keepalive_count = number("keepalives_count")?.unwrap_or(tcp.keepalive_count);
        let timeout = number("tcp_user_timeout")?.map(u64::from);
        tcp.user_timeout = timeout.map(Duration::from_millis);
        Ok(())
    }

    /// As in libpq, zero leaves a setting to the default.
    fn number<N>(&self, name: &str, kind: &str) -> Result<Option<N>, Error>
    where
        N: FromStr + Default + PartialEq,
    {
        let number = self.get(name).map(str::parse).transpose();
        let number = number.map_err(|_| Error::invalid(format!("{name} must be {kind}")))?;
        Ok(number.filter(|number| *number != N::default()))
    }

    fn hosts(&self) -> Result<Vec<Host>, Error> {
        let list = |name| self.get(name).unwrap_or_default().split(',');
        let (names, ports) = (list("host"), list("port"));
        if ports.clone().count() > 1 && ports.clone().count() != names.clone().count() {
            let words = "port must be one for all hosts or one for each";
            return Err(Error::invalid(words));
        }
        let hosts = names.zip(ports.cycle()).map(|(name, port)| {
            let name = if name.is_empty() { "localhost" } else { name };
            let default = port.is_empty().then_some(DEFAULT_PORT);
            let port = default.or_else(|| port.parse().ok());
            Ok(Host {
                name: name.to_owned(),
                port: port
                    .ok_or_else(|| Error::invalid("port must be a number from 0 to 65535"))?,
            })
        });
        hosts.collect()
    }
}

/// As in `sslmode`, also in the words of other clients.
impl FromStr for SslMode {
    type Err = Error;

    fn from_str(mode: &str) -> Result<Self, Error> {
        match mode {
            "disable" | "false" | "0" => Ok(Self::Disable),
            "allow" => Ok(Self::Allow),
            "prefer" => Ok(Self::Prefer),
            "require" | "no-verify" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" | "true" | "1" => Ok(Self::VerifyFull),
            _ => Err(Error::invalid(
                "sslmode must be disable, allow, prefer, require, verify-ca or verify-full",
            )),
        }
    }
}

/// As in `channel_binding`.
impl FromStr for ChannelBinding {
    type Err = Error;

    fn from_str(binding: &str) -> Result<Self, Error> {
        match binding {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            _ => Err(Error::invalid(
                "channel_binding must be disable, prefer or require",
            )),
        }
    }
}

/// As in `target_session_attrs`.
impl FromStr for SessionAttrs {
    type Err = Error;

    fn from_str(attrs: &str) -> Result<Self, Error> {
        match attrs {
            "any" => Ok(Self::Any),
            "read-write" | "primary" => Ok(Self::ReadWrite),
            _ => Err(Error::invalid(
                "target_session_attrs must be any, read-write or primary: locks need a server that accepts writes",
            )),
        }
    }
}

fn decode(part: &str, text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| Error::invalid(format!("{part} in url is not UTF-8")))?;
    if decoded.contains('\0') {
        return Err(Error::invalid(format!(
            "{part} in url contains a zero byte"
        )));
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn parse(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::from_url_and(url, |_| None)
    }

    fn hosts(config: &PostgresConfig) -> Vec<(&str, u16)> {
        let hosts = config.hosts.iter();
        hosts.map(|host| (host.name.as_str(), host.port)).collect()
    }

    fn password(config: &PostgresConfig) -> &str {
        match &config.password {
            Password::Text(text) => text,
            _ => panic!("no password"),
        }
    }

    #[test]
    fn a_url_says_where_and_who() {
        let config = parse(
            "postgres://us%40er:p%3Aw:x@db.example:6432/my%20db?sslmode=verify-full&application_name=a+b\
             &options=-c%20search_path%3Dx&sslrootcert=/ca.pem&connect_timeout=3&schema=public",
        )
        .unwrap();
        assert_eq!(hosts(&config), [("db.example", 6432)]);
        assert_eq!(config.user.as_deref(), Some("us@er"));
        assert_eq!(password(&config), "p:w:x");
        assert_eq!(config.database.as_deref(), Some("my db"));
        assert_eq!(config.application_name.as_deref(), Some("a b"));
        assert_eq!(config.options.as_deref(), Some("-c search_path=x"));
        assert_eq!(config.tls.mode, SslMode::VerifyFull);
        assert!(matches!(&config.tls.root, Some(Pem::File(path)) if path.ends_with("ca.pem")));
        assert_eq!(config.connect_timeout, Duration::from_secs(3));
    }

    #[test]
    fn there_may_be_several_hosts_and_unix_sockets() {
        let config = parse("postgresql://a:1,b,[::1]:3/d?target_session_attrs=read-write").unwrap();
        assert_eq!(hosts(&config), [("a", 1), ("b", 5432), ("::1", 3)]);
        assert_eq!(config.session_attrs, SessionAttrs::ReadWrite);
        let config = parse("postgres:///d?host=/run/pg&port=6000").unwrap();
        assert_eq!(hosts(&config), [("/run/pg", 6000)]);
        assert!(config.hosts[0].is_unix_socket());
        let config = parse("postgres://%2Frun%2Fpg/d").unwrap();
        assert_eq!(hosts(&config), [("/run/pg", 5432)]);
        assert_eq!(hosts(&parse("postgres://").unwrap()), [("localhost", 5432)]);
        let config = parse("postgres://?host=a,b&port=7").unwrap();
        assert_eq!(hosts(&config), [("a", 7), ("b", 7)]);
        let config = parse("postgres://a:1,b:2/?port=7,").unwrap();
        assert_eq!(hosts(&config), [("a", 7), ("b", 5432)]);
        let config = parse("postgres://?host=::1,b").unwrap();
        assert_eq!(hosts(&config), [("::1", 5432), ("b", 5432)]);
    }

    /// Where `tokio_postgres` would take a part of the password, or a parameter, for the host.
    #[test]
    fn an_at_sign_that_is_not_encoded_leads_to_no_other_host() {
        for url in ["postgres://u:p@s3cret@h/d", "postgres://u:p@s3cret/t@h/d"] {
            let error = parse(url).unwrap_err();
            assert!(error.message().contains("@ as %40"), "{error}");
            assert!(!error.message().contains("s3cret"), "{error}");
        }
        let error = parse("postgres://u:p@h/s3cret\n").unwrap_err();
        assert!(
            error.message().starts_with("url ends with a line break"),
            "{error}"
        );
        let config = parse("postgres://h/d?application_name=me@home").unwrap();
        assert_eq!(hosts(&config), [("h", 5432)]);
        assert_eq!(config.application_name.as_deref(), Some("me@home"));
    }

    #[test]
    fn connections_are_looked_after_as_the_url_says() {
        assert_eq!(parse("postgres://h/").unwrap().tcp, TcpSettings::default());
        let config = parse(
            "postgres://h/?keepalives=0&keepalives_idle=5&keepalives_interval=2&keepalives_count=7\
             &tcp_user_timeout=900&channel_binding=require&search_path=a&statement_timeout=100",
        )
        .unwrap();
        let tcp = TcpSettings {
            keepalive: false,
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(2),
            keepalive_count: 7,
            user_timeout: Some(Duration::from_millis(900)),
        };
        assert_eq!(config.tcp, tcp);
        assert_eq!(config.tls.channel_binding, ChannelBinding::Require);
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let parameters = [named("statement_timeout", "100"), named("search_path", "a")];
        assert_eq!(config.parameters, parameters);
        let config = parse("postgres://h/?keepalives_idle=0&tcp_user_timeout=0").unwrap();
        assert_eq!(config.tcp, TcpSettings::default());
    }

    #[test]
    fn the_roots_of_the_system_go_with_the_check_of_the_name() {
        for url in [
            "postgres://h/?sslrootcert=system",
            "postgres://h/?sslrootcert=system&sslmode=verify-full",
        ] {
            let tls = parse(url).unwrap().tls;
            assert_eq!(tls.mode, SslMode::VerifyFull);
            assert!(tls.root.is_none());
        }
    }

    #[test]
    fn the_environment_fills_gaps() {
        let variable = |name: &str| {
            let value = match name {
                "PGHOST" => "h",
                "PGPORT" => "99",
                "PGUSER" => "u",
                "PGPASSWORD" => "secret",
                "PGDATABASE" => "d",
                "PGSSLMODE" => "require",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let config = PostgresConfig::from_url_and("postgres://me@there/", variable).unwrap();
        assert_eq!(hosts(&config), [("there", 99)]);
        assert_eq!(config.user.as_deref(), Some("me"));
        assert_eq!(password(&config), "secret");
        assert_eq!(config.database.as_deref(), Some("d"));
        assert_eq!(config.tls.mode, SslMode::Require);
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn bad_parts_are_named_and_not_quoted() {
        for (url, field) in [
            ("mysql://secret@h/", "url must start"),
            ("postgres://h:secret/", "port"),
            ("postgres://a:1,b:2/?port=1,2,3", "port"),
            ("postgres://::1/secret", "port"),
            ("postgres://[::1]secret/", "port"),
            ("postgres://[::1/secret", "port"),
            ("postgres://h/?sslmode=secret", "sslmode"),
            (
                "postgres://h/?target_session_attrs=standby",
                "target_session_attrs",
            ),
            ("postgres://h/?connect_timeout=secret", "connect_timeout"),
            (
                "postgres://h/?sslmode=require&sslrootcert=system",
                "sslmode",
            ),
            ("postgres://h/?sslcert=secret", "sslcert and sslkey"),
            ("postgres://h/?keepalives=secret", "keepalives"),
            ("postgres://h/?keepalives_idle=secret", "keepalives_idle"),
            ("postgres://h/?tcp_user_timeout=-1", "tcp_user_timeout"),
            ("postgres://h/?channel_binding=secret", "channel_binding"),
            ("postgres://h/?sslcrl=secret", "sslcrl"),
            ("postgres://h/?secret", "the url's query holds an unknown"),
            ("postgres://u:pa?secret=x@h/d", "the url has a /, #, ? or @"),
            ("postgres://u:pa?secret@h/d", "the url has a /, #, ? or @"),
            ("postgres://u:%FFsecret@h/", "password"),
            ("postgres://u:%00secret@h/", "password"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(field), "{error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
