//! Opens sessions on a server that accepts writes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::config::ChannelBinding as Binding;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};

use super::arrivals::Arrivals;
use super::era::{ERA, Era};
use super::primaries::Primaries;
use super::session::{self, Session, Silences};
use super::stream::SessionStream;
use super::tls;
use crate::network::dial::Refusal;
use crate::network::loaded::Reloaded;
use crate::network::losses::Losses;
use crate::postgres::config::{
    ChannelBinding, DEFAULT_PORT, Host, PostgresConfig, SessionAttrs, SslMode, check_login,
};
use crate::postgres::error::{Failure, failure_to_connect};
use crate::postgres::fault::Fault;
use crate::postgres::options;
use crate::postgres::product;
use crate::text::error::{Error, ErrorKind};

/// A session that was idle for longer has to answer a query before it is used again. Networks forget connections after
/// minutes, and a frozen process comes back after any time.
const MOST_IDLE: Duration = Duration::from_secs(5);

/// Settings for sessions that are ours alone. Lock tables change so fast that the planner's statistics are
/// often out of date, while using an index is always right.
const SESSION: &str = "-c default_transaction_isolation=read\\ committed -c enable_seqscan=off \
                       -c jit=off -c plan_cache_mode=force_generic_plan";

/// Asks whether one of the settings above is in force (a pooler may have dropped it), whether the server accepts
/// writes, which server process serves the session, the server's version, and which server it is.
const PROBE: &str = "SELECT current_setting('enable_seqscan') = 'off', \
                     current_setting('transaction_read_only') = 'on', pg_backend_pid(), \
                     current_setting('server_version_num')::integer, version()";

/// The first major version that understands the statements (docs/postgres.md, "Versions").
const FIRST_VERSION: i32 = 12;

/// What follows the words of a pooler that passes none of the user's settings on.
const SETTINGS_REFUSED: &str = "a pooler refuses settings at the start of a session: leave out options, search_path, \
                                statement_timeout and lock_timeout, or let the pooler pass them";

/// What a session is started with. Servers and poolers may refuse settings that they do not know, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Our own settings and the user's.
    Own = 0,
    /// The user's alone. Then the session may be a pooler's, which others use too.
    Users = 1,
    /// Without settings. The user's are set once it has started.
    Nothing = 2,
}

/// What a session is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Statements.
    Work,
    /// To listen; the channels of notifications go there.
    Listen(&'a UnboundedSender<String>),
    /// To see what kind of server it is: one that accepts no writes will do.
    Look,
}

type TlsConnect = <tls::TlsUpgrade as MakeTlsConnect<SessionStream>>::TlsConnect;

/// Opens sessions.
pub(in crate::postgres) struct Connector {
    pub(super) config: PostgresConfig,
    operation_timeout: Duration,
    silences: Silences,
    losses: Arc<Losses>,
    /// `None` unless there are several hosts, of which one is to accept writes.
    primaries: Option<Primaries>,
    /// The index of the host to try first: the one that answered last.
    pub(super) first: AtomicUsize,
    /// Whether the last attempt failed on all hosts.
    pub(super) is_failing: AtomicBool,
    /// What sessions can be started with: a [`Start`].
    start: AtomicU8,
    tls: Reloaded<tls::TlsUpgrade>,
}

impl Connector {
    pub(super) fn new(
        mut config: PostgresConfig,
        operation_timeout: Duration,
    ) -> Result<Self, Error> {
        config.validate()?;
        if config.hosts.is_empty() {
            config.hosts.push(Host {
                name: "localhost".to_owned(),
                port: DEFAULT_PORT,
            });
        }
        let is_one_of_several = config.hosts.len() > 1 && needs_writes(&config);
        let primaries = is_one_of_several.then(|| Primaries::of(&config.hosts));
        let tls = Reloaded::of(config.tls.files().map(Path::to_owned).collect());
        Ok(Self {
            config,
            operation_timeout,
            silences: Silences::default(),
            losses: Arc::default(),
            primaries,
            first: AtomicUsize::new(0),
            is_failing: AtomicBool::new(false),
            start: AtomicU8::new(Start::Own as u8),
            tls,
        })
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.config.hosts
    }

    pub(super) fn primaries(&self) -> Option<&Primaries> {
        self.primaries.as_ref()
    }

    /// See [`MOST_IDLE`]. Whoever wants keepalive sooner knows a network that forgets sooner.
    pub(super) fn most_idle(&self) -> Duration {
        self.config.tcp.keepalive_idle.min(MOST_IDLE)
    }

    pub(super) fn silences(&self) -> &Silences {
        &self.silences
    }

    pub(in crate::postgres) fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// How long one operation may take.
    pub(in crate::postgres) fn operation_timeout(&self) -> Duration {
        self.operation_timeout
    }

    /// Whether sessions have turned out to be shared with others.
    pub(in crate::postgres) fn is_shared(&self) -> bool {
        self.start() != Start::Own
    }

    /// Called when sessions turn out to be shared with others, by a pooler.
    pub(super) fn share(&self) {
        self.start_with(Start::Users);
    }

    fn start(&self) -> Start {
        match self.start.load(Ordering::Relaxed) {
            0 => Start::Own,
            1 => Start::Users,
            _ => Start::Nothing,
        }
    }

    /// Called when sessions can be started with no more than that.
    fn start_with(&self, start: Start) {
        self.start.fetch_max(start as u8, Ordering::Relaxed);
    }

    /// Asks the server to cancel what `client`'s session is doing. The server does not say whether it did.
    pub(super) async fn cancel(&self, client: &Client, host: &Host) {
        let arrivals = Arc::new(Arrivals::new());
        if let (Ok(tls), Ok(stream)) = (self.tls_to(host).await, self.stream(host, arrivals).await)
        {
            let _ = client.cancel_token().cancel_query_raw(stream, tls).await;
        }
    }

    async fn stream(&self, host: &Host, arrivals: Arc<Arrivals>) -> Result<SessionStream, Failure> {
        let opened =
            SessionStream::open(host, &self.config.tcp, self.operation_timeout, arrivals).await;
        opened.map_err(|refusal| match refusal {
            Refusal::Unknown(error) => Failure::to_connect(Fault::UnknownHost, host, error),
            Refusal::Failed(error) => Failure::to_connect(Fault::Io(error.kind()), host, error),
        })
    }

    async fn tls_to(&self, host: &Host) -> Result<TlsConnect, Failure> {
        // Less than there is for the host, so that the error says what took so long.
        let limit = self.time_for_one() * 9 / 10;
        let settings = self.config.tls.clone();
        let read = move || tls::TlsUpgrade::new(&settings);
        let connector = self.tls.get("the certificates for TLS", limit, read);
        let mut connector = connector.await.map_err(Failure::other)?;
        // Unix sockets are not encrypted, and a folder is not a name that a certificate could have.
        let name = if host.is_unix_socket() {
            "localhost"
        } else {
            host.name.as_str()
        };
        MakeTlsConnect::<SessionStream>::make_tls_connect(&mut connector, name)
            .map_err(|error| Failure::to_connect(Fault::Tls, host, error))
    }

    pub(super) async fn open(&self, host: &Host, purpose: Purpose<'_>) -> Result<Session, Failure> {
        let first = match self.start() {
            Start::Own if !self.config.prepare => Start::Users,
            start => start,
        };
        let mut start = first;
        loop {
            match self.open_with(host, start, purpose).await {
                Err(failure) if failure.may_be_about_settings() => {
                    start = self.less_than(start, failure)?;
                }
                opened => {
                    if opened.is_ok() && start != first {
                        self.start_with(start);
                    }
                    return opened;
                }
            }
        }
    }

    /// What to start a session with after one with `start` was refused for `failure`, which may or may not be about the
    /// settings.
    fn less_than(&self, start: Start, failure: Failure) -> Result<Start, Failure> {
        let users = self.config.settings();
        match (start, users) {
            (Start::Own, Some(users)) if users.is_empty() => Ok(Start::Nothing),
            (Start::Own, _) => Ok(Start::Users),
            // PgBouncer, which gives what is set in one client's session to other clients.
            (Start::Users, Some(users))
                if failure.state() == Some(&SqlState::PROTOCOL_VIOLATION) && !users.is_empty() =>
            {
                let (kind, words) = (ErrorKind::InvalidArgument, failure.error().message());
                let error = Error::new(kind, format!("{words}; {SETTINGS_REFUSED}"));
                Err(Failure::other(error))
            }
            (Start::Users, Some(_)) => Ok(Start::Nothing),
            (Start::Users, None) | (Start::Nothing, _) => Err(failure),
        }
    }

    async fn open_with(
        &self,
        host: &Host,
        start: Start,
        purpose: Purpose<'_>,
    ) -> Result<Session, Failure> {
        use tokio_postgres::config::SslMode as Mode;
        let mode = match self.config.tls.mode {
            _ if host.is_unix_socket() => Mode::Disable,
            SslMode::Disable | SslMode::Allow => Mode::Disable,
            SslMode::Prefer => Mode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Mode::Require,
        };
        match self.session(host, start, mode, purpose).await {
            Err(failure)
                if self.config.tls.mode == SslMode::Allow
                    && !host.is_unix_socket()
                    && failure.class() == Some("28") =>
            {
                self.session(host, start, Mode::Require, purpose).await
            }
            opened => opened,
        }
    }

    /// Says who it is that asks for the session.
    async fn log_in(&self, settings: &mut tokio_postgres::Config) -> Result<(), Failure> {
        let login = self.config.password.get().await.map_err(Failure::other)?;
        check_login(
            login.user.as_deref(),
            login.password.as_deref(),
            login.database.as_deref(),
        )
        .map_err(Failure::other)?;
        if let Some(user) = login.user {
            settings.user(user);
        }
        if let Some(password) = login.password {
            settings.password(password);
        }
        if let Some(database) = login.database {
            settings.dbname(database);
        }
        Ok(())
    }

    async fn session(
        &self,
        host: &Host,
        start: Start,
        mode: tokio_postgres::config::SslMode,
        purpose: Purpose<'_>,
    ) -> Result<Session, Failure> {
        let mut settings = self.settings(start);
        settings.ssl_mode(mode);
        settings.channel_binding(match self.config.tls.channel_binding {
            ChannelBinding::Disable => Binding::Disable,
            ChannelBinding::Prefer => Binding::Prefer,
            ChannelBinding::Require => Binding::Require,
        });
        self.log_in(&mut settings).await?;
        let tls = self.tls_to(host).await?;
        let arrivals = Arc::new(Arrivals::new());
        let stream = self.stream(host, Arc::clone(&arrivals)).await?;
        let refused = |error| failure_to_connect(error, host, arrivals.end());
        let (client, mut connection) = settings.connect_raw(stream, tls).await.map_err(refused)?;
        let (losses, its) = (Arc::clone(&self.losses), Arc::clone(&arrivals));
        // An error also reaches whoever waits for an answer.
        let driver = match purpose {
            Purpose::Work => tokio::spawn(async move {
                ended((&mut connection).await, &its, &losses);
                // Only now does whoever waits for an answer hear that there is none.
                drop(connection);
            }),
            Purpose::Look => tokio::spawn(async move { drop(connection.await) }),
            Purpose::Listen(to) => {
                let to = to.clone();
                tokio::spawn(async move {
                    ended(session::drive(connection, to, &its).await, &its, &losses);
                })
            }
        };
        // In one round trip.
        let (row, era) = tokio::join!(client.query_typed(PROBE, &[]), self.era(&client));
        let row = row.map_err(refused)?;
        let flag = |column| {
            let flag = row.first().map(|row| row.try_get::<_, bool>(column));
            flag.and_then(Result::ok)
                .ok_or_else(|| Failure::new(Fault::Malformed))
        };
        let (in_force, read_only) = (flag(0)?, flag(1)?);
        let version = row.first().and_then(|row| row.try_get(3).ok());
        check_version(version.ok_or_else(|| Failure::new(Fault::Malformed))?)?;
        let words = row.first().and_then(|row| row.try_get(4).ok());
        product::check(words.unwrap_or_default()).map_err(Failure::other)?;
        let may_prepare = start == Start::Own && in_force;
        // Behind a pooler, the process serves other clients too, so its number says nothing about us.
        let process = row.first().filter(|_| may_prepare);
        let process = process.and_then(|row| row.try_get(2).ok());
        let may_be_standby = matches!(purpose, Purpose::Look);
        if read_only && needs_writes(&self.config) && !may_be_standby {
            return Err(Failure::new(Fault::State(
                SqlState::READ_ONLY_SQL_TRANSACTION.code(),
            )));
        }
        if start == Start::Nothing {
            for (name, value) in self.config.settings().unwrap_or_default() {
                let set = "SELECT set_config($1, $2, false)";
                let params: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&name, Type::TEXT), (&value, Type::TEXT)];
                client.query_typed(set, &params).await.map_err(refused)?;
            }
        }
        Ok(Session {
            client,
            host: host.clone(),
            era,
            process,
            arrivals,
            driver,
            may_prepare,
            prepared: Vec::new(),
        })
    }

    /// Since when the server is the primary, if that matters and it says so.
    async fn era(&self, client: &Client) -> Option<Era> {
        self.primaries.as_ref()?;
        Era::of(&client.query_typed(ERA, &[]).await.ok()?)
    }

    fn settings(&self, start: Start) -> tokio_postgres::Config {
        let config = &self.config;
        let mut settings = tokio_postgres::Config::new();
        settings.application_name(config.application_name.as_deref().unwrap_or("syncguard"));
        if let Some(user) = &config.user {
            settings.user(user);
        }
        if let Some(database) = &config.database {
            settings.dbname(database);
        }
        let options = self.options(start);
        if !options.is_empty() {
            settings.options(options);
        }
        settings
    }

    /// The last setting of a name wins, so the user's settings come after our defaults.
    fn options(&self, start: Start) -> String {
        let mut options = Vec::new();
        if start == Start::Nothing {
            return String::new();
        }
        if start == Start::Own {
            let limit = self.operation_timeout.as_millis();
            options.push(format!("-c statement_timeout={limit}"));
        }
        options.extend(self.config.options.clone());
        let parameters = self.config.parameters.iter();
        options.extend(
            parameters.map(|(name, value)| format!("-c {name}={}", options::escaped(value))),
        );
        if start == Start::Own {
            options.push(SESSION.to_owned());
        }
        options.join(" ")
    }
}

/// Notes how a session has ended that was not ended from this side.
fn ended(end: Result<(), tokio_postgres::Error>, arrivals: &Arrivals, losses: &Arc<Losses>) {
    if let Err(error) = end
        && !Failure::is_of_idleness(&error)
        && arrivals.lose()
    {
        losses.lost(Instant::now());
    }
}

/// Whether a server will not do that accepts no writes.
fn needs_writes(config: &PostgresConfig) -> bool {
    match config.session_attrs {
        SessionAttrs::Any => false,
        SessionAttrs::ReadWrite => true,
        SessionAttrs::Default => config.hosts.len() > 1,
    }
}

/// Refuses a server that does not understand the statements; `number` is its `server_version_num`.
fn check_version(number: i32) -> Result<(), Failure> {
    let major = number / 10_000;
    if major >= FIRST_VERSION {
        return Ok(());
    }
    let words =
        format!("the server is PostgreSQL {major}, and version {FIRST_VERSION} or later is needed");
    Err(Failure::other(Error::invalid(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_named() {
        for number in [120_000, 150_008, 180_001] {
            assert!(check_version(number).is_ok());
        }
        for (number, words) in [(110_022, "PostgreSQL 11,"), (90_624, "PostgreSQL 9,")] {
            let failure = check_version(number).unwrap_err();
            assert_eq!(failure.error().kind(), ErrorKind::InvalidArgument);
            assert!(failure.error().message().contains(words));
        }
    }

    #[test]
    fn settings_come_after_the_users_and_defaults_before() {
        let config = PostgresConfig {
            options: Some("-c statement_timeout=1".to_owned()),
            parameters: vec![("search_path".to_owned(), "a, b\\".to_owned())],
            ..PostgresConfig::default()
        };
        let connector = Connector::new(config, Duration::from_secs(5)).unwrap();
        assert_eq!(
            connector.options(Start::Own),
            format!(
                "-c statement_timeout=5000 -c statement_timeout=1 -c search_path=a,\\ b\\\\ {SESSION}"
            )
        );
        assert_eq!(
            connector.options(Start::Users),
            "-c statement_timeout=1 -c search_path=a,\\ b\\\\"
        );
        assert_eq!(connector.options(Start::Nothing), "");
    }
}
