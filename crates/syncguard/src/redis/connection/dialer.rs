//! Makes connections.
//!
//! None is ever made again: when one is lost, all that is under way on it fails, and [`Link`](super::link::Link)
//! asks for another.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::link::Dial;
use super::script_connection::ScriptConnection;
use super::target::Target;
use crate::error::Error;
use crate::event_loop::EventLoop;

/// Makes connections that live on tokio, or on the event loop.
pub(in crate::redis) struct Dialer {
    pub(super) target: Arc<Target>,
    pub(super) event_loop: Option<Arc<dyn EventLoop>>,
}

#[async_trait]
impl Dial for Dialer {
    type Connection = ScriptConnection;

    async fn dial(&self) -> Result<ScriptConnection, Error> {
        let target = Arc::clone(&self.target);
        let config = target.config().current().await?;
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
