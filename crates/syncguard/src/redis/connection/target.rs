//! Knows which server to connect to, and opens streams to it.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connect;
use super::limited::Limited;
use super::sentinel::{Followed, Sentinels};
use super::session::{late, ready};
use super::tls::TlsContext;
use crate::mutex::lock;
use crate::network::losses::Losses;
use crate::network::switches::Switches;
use crate::redis::config::{RedisConfig, RedisServer};
use crate::redis::error::{Cause, to_error};
use crate::text::error::Error;

/// The shortest time between two questions whether a server is still the primary.
const DOUBT_PAUSE: Duration = Duration::from_millis(250);

/// How long an unused stream is kept.
const KEPT: Duration = Duration::from_secs(1);

/// A stream that is ready for scripts.
pub(super) struct Opened {
    pub(super) stream: Limited,
    /// The user's name and password with which it was opened.
    pub(super) login: Vec<String>,
    /// How long it took to open.
    pub(super) took: Duration,
}

/// The server to connect to, and how.
#[derive(Clone)]
pub(in crate::redis) struct Target {
    config: RedisConfig,
    tls: Option<TlsContext>,
    /// The Sentinels that say which server is the primary. They are followed as long as the second half exists.
    sentinels: Option<(Arc<Sentinels>, Followed)>,
    /// Called when a connection is lost, or has been silent for so long that it may be.
    on_trouble: Option<Arc<dyn Fn() + Send + Sync>>,
    /// When somebody last doubted that a server is the primary.
    doubted_at: Arc<Mutex<Option<Instant>>>,
    /// A stream that is open already, for whoever needs the next one.
    kept: Arc<Mutex<Option<Opened>>>,
    /// The connections to the server that were lost.
    losses: Arc<Losses>,
}

impl Target {
    /// Does no I/O.
    pub(in crate::redis) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let tls = config.tls.as_ref().map(|tls| tls.read()).transpose()?;
        let sentinels = match &config.server {
            RedisServer::Sentinel(set) => {
                let sentinels = Arc::new(Sentinels::new(config, set, tls.as_ref()));
                let followed = sentinels.followed();
                Some((sentinels, followed))
            }
            _ => None,
        };
        Ok(Self {
            config: config.clone(),
            tls,
            sentinels,
            on_trouble: None,
            doubted_at: Arc::default(),
            kept: Arc::default(),
            losses: Arc::default(),
        })
    }

    /// The target of another server with the same settings.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let mut other = self.clone();
        other.kept = Arc::default();
        other.losses = Arc::new(self.losses.of_another());
        other.config.server = RedisServer::Tcp {
            host: host.to_owned(),
            port,
        };
        other
    }

    /// Calls `on_trouble` when a connection is lost, or silent for so long that it may be.
    pub(super) fn with_trouble(mut self, on_trouble: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_trouble = Some(Arc::new(on_trouble));
        self
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.config
    }

    pub(super) fn tls(&self) -> Option<&TlsContext> {
        self.tls.as_ref()
    }

    pub(super) fn trouble(&self) {
        if let Some(on_trouble) = &self.on_trouble {
            on_trouble();
        }
    }

    /// Notes that a server does not do what a primary does, so that it may be a former one. Asks others about it, but not too often.
    pub(super) fn doubt(&self) {
        {
            let mut doubted_at = lock(&self.doubted_at);
            if doubted_at.is_some_and(|at| at.elapsed() < DOUBT_PAUSE) {
                return;
            }
            *doubted_at = Some(Instant::now());
        }
        match &self.sentinels {
            Some((sentinels, _)) => sentinels.ask_soon(),
            None => self.trouble(),
        }
    }

    /// How often another server has become the primary.
    pub(super) fn switch_count(&self) -> u64 {
        let sentinels = self.sentinels.as_ref();
        sentinels.map_or(0, |(sentinels, _)| sentinels.switch_count())
    }

    /// Completes when another server becomes the primary. Never completes without Sentinels, because nobody tells then.
    pub(super) async fn moved(&self) {
        match &self.sentinels {
            Some((sentinels, _)) => sentinels.moved().await,
            None => pending().await,
        }
    }

    /// Those who hear that another server has become the primary. `None` without Sentinels.
    pub(in crate::redis) fn switches(&self) -> Option<&Switches> {
        Some(self.sentinels.as_ref()?.0.switches())
    }

    /// The connections to the server that were lost. The first that is made after that may lead to another server, or to the same one
    /// without its data.
    pub(in crate::redis) fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// Gives the kept stream, unless it leads to a former primary, or else opens one.
    pub(super) async fn next(&self) -> Result<Opened, Error> {
        let kept = lock(&self.kept).take();
        let is_current =
            |opened: &Opened| opened.stream.term().is_none_or(|term| term.is_current());
        match kept.filter(is_current) {
            Some(opened) => Ok(opened),
            None => self.open_now().await,
        }
    }

    /// Opens a stream.
    pub(super) async fn open_now(&self) -> Result<Opened, Error> {
        let config = self.config.current().await?;
        let start = Instant::now();
        let stream = self.open_with(&config).await?;
        let login = [&config.username, &config.password];
        Ok(Opened {
            stream,
            login: login.into_iter().flatten().cloned().collect(),
            took: start.elapsed(),
        })
    }

    /// Keeps an open stream for a moment, for whoever needs the next one.
    pub(super) fn keep(&self, opened: Opened) {
        let kept = Arc::clone(&self.kept);
        *lock(&kept) = Some(opened);
        tokio::spawn(async move {
            sleep(KEPT).await;
            lock(&kept).take();
        });
    }

    /// Opens a stream that is ready for scripts. If that takes a while, a second attempt runs beside the first, because packets may
    /// be lost for one connection and not for the next.
    pub(in crate::redis) async fn open(&self) -> Result<Limited, Error> {
        self.open_with(&*self.config.current().await?).await
    }

    async fn open_with(&self, config: &RedisConfig) -> Result<Limited, Error> {
        let open = || self.open_once(config);
        let mut first = pin!(open());
        if let Ok(answer) = timeout(self.config.connect_timeout / 4, &mut first).await {
            return answer;
        }
        let mut second = pin!(open());
        tokio::select! {
            answer = &mut first => match answer {
                Err(error) if error.kind().is_transient() => second.await,
                answer => answer,
            },
            answer = &mut second => match answer {
                Err(error) if error.kind().is_transient() => first.await,
                answer => answer,
            },
        }
    }

    async fn open_once(&self, config: &RedisConfig) -> Result<Limited, Error> {
        // The search by Sentinels has a time limit for each of its steps, so it needs none here.
        if let Some((sentinels, _)) = &self.sentinels {
            return sentinels.open(config).await;
        }
        let open = async {
            let stream = match &config.server {
                RedisServer::Tcp { host, port } => {
                    connect::tcp(host, *port, self.tls.as_ref()).await?
                }
                RedisServer::Unix(path) => connect::unix(path).await?,
                // A cluster makes a target of its own for each node.
                _ => return Err(to_error(Cause::Settings, false)),
            };
            ready(stream, config).await
        };
        let opened = timeout(config.connect_timeout, open).await;
        opened.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::sync::watch;

    use super::super::stream::ServerEndpoint;
    use super::super::term::{Named, Term};
    use super::*;

    #[tokio::test]
    async fn a_kept_stream_is_used_while_its_server_is_the_primary() {
        let at = |port| Named {
            address: ("h".to_owned(), port),
            epoch: 0,
        };
        // No other stream is to be had.
        let server = RedisServer::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let config = RedisConfig {
            server,
            ..RedisConfig::default()
        };
        let target = Target::new(&config).unwrap();
        let primary = watch::Sender::new(Some(at(1)));
        let keep = || {
            let endpoint = ServerEndpoint::Unix("here".to_owned());
            let term = Term::new(at(1).address, primary.subscribe());
            target.keep(Opened {
                stream: Limited::new(Box::new(duplex(64).0), endpoint).with_term(term),
                login: Vec::new(),
                took: Duration::ZERO,
            });
        };
        keep();
        assert!(target.next().await.is_ok());
        keep();
        primary.send_replace(Some(at(2)));
        assert!(target.next().await.is_err());
    }
}
