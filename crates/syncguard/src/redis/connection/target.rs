//! What to connect to, and how a stream to it is opened.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::limited::Limited;
use super::session::{late, ready};
use super::tls::TlsContext;
use super::{connect, sentinel};
use crate::error::Error;
use crate::redis::config::{RedisConfig, RedisServer};
use crate::redis::error::{Cause, to_error};

/// What to connect to.
#[derive(Clone)]
pub(in crate::redis) struct Target {
    config: RedisConfig,
    tls: Option<TlsContext>,
    /// Is called when a connection is lost, or silent for so long that it may be.
    on_trouble: Option<Arc<dyn Fn() + Send + Sync>>,
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

    pub(super) async fn open_with(&self, config: &RedisConfig) -> Result<Limited, Error> {
        let open = || open(config, self.tls.as_ref());
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

/// A stream to the configured server that is ready for scripts.
async fn open(config: &RedisConfig, tls: Option<&TlsContext>) -> Result<Limited, Error> {
    // It has a time limit for each of its steps.
    if let RedisServer::Sentinel(set) = &config.server {
        return sentinel::open(config, set, tls).await;
    }
    let open = async {
        let stream = match &config.server {
            RedisServer::Tcp { host, port } => connect::tcp(host, *port, tls).await?,
            RedisServer::Unix(path) => connect::unix(path).await?,
            // Each of a cluster's nodes is a server of its own.
            _ => return Err(to_error(Cause::Settings, false)),
        };
        ready(stream, config).await
    };
    let opened = timeout(config.connect_timeout, open).await;
    opened.unwrap_or_else(|_| Err(late()))
}
