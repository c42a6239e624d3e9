//! Makes connections.
//!
//! None is ever made again: when one is lost, all that is under way on it fails, and [`Link`](super::link::Link)
//! asks for another.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};

use super::limited::Limited;
use super::link::Dial;
use super::script_connection::ScriptConnection;
use super::session;
use super::tls::TlsContext;
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::redis::config::{RedisConfig, RedisServer};

/// Makes connections that live on tokio, or on the event loop.
pub(in crate::redis) struct Dialer {
    pub(super) target: Arc<Target>,
    pub(super) event_loop: Option<Arc<dyn EventLoop>>,
}

/// What to connect to.
#[derive(Clone)]
pub(in crate::redis) struct Target {
    config: RedisConfig,
    tls: Option<TlsContext>,
    /// Is called when a connection is lost, or silent for so long that it may be.
    on_trouble: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[async_trait]
impl Dial for Dialer {
    type Connection = ScriptConnection;

    async fn dial(&self) -> Result<ScriptConnection, Error> {
        let target = Arc::clone(&self.target);
        let config = target.config.current().await?;
        let start = Instant::now();
        let stream = target.open_with(&config).await?;
        let login = [&config.username, &config.password];
        let login = login.into_iter().flatten().cloned().collect();
        let took = start.elapsed();
        let event_loop = self.event_loop.as_ref();
        Ok(ScriptConnection::start(
            stream, login, took, target, event_loop,
        ))
    }
}

impl Target {
    /// Does no I/O.
    pub(in crate::redis) fn new(config: &RedisConfig) -> Result<Self, Error> {
        Ok(Self {
            config: config.clone(),
            tls: config.tls.as_ref().map(|tls| tls.read()).transpose()?,
            on_trouble: None,
        })
    }

    /// Another server, which is reached in the same way.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let mut other = self.clone();
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

    /// A stream that is ready for scripts. When none is to be had for a while, another attempt runs
    /// beside the first: packets may be lost for one connection and not for the next.
    pub(in crate::redis) async fn open(&self) -> Result<Limited, Error> {
        self.open_with(&*self.config.current().await?).await
    }

    async fn open_with(&self, config: &RedisConfig) -> Result<Limited, Error> {
        let open = || session::open(config, self.tls.as_ref());
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
}
