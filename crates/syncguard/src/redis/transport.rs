//! The way to a server, whoever drives it.

use std::fmt;

use async_trait::async_trait;

use super::call::Call;
use super::plan::Plan;
use super::reply::Reply;
use crate::error::Error;

/// Runs scripts in a Redis server.
///
/// An implementation sends a plan at most once. When it may have reached the server and its answer
/// is lost, the error says so ([`Error::with_unknown_outcome`]). Futures may be dropped at any point.
/// Connections of its own end when it is dropped.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Runs it and gives the server's reply.
    async fn run(&self, plan: Plan) -> Result<Reply, Error>;

    /// Sends it from the calling thread, if that needs no waiting, and tells `call` how that went. Gives
    /// whether it is kept until more is sent, or until [`flush`](Self::flush).
    fn send(&self, plan: &Plan, call: Call) -> bool {
        let _ = plan;
        call.not_sent();
        false
    }

    /// Sends what is kept.
    fn flush(&self) {}

    /// Why calls cannot be carried to the server at this moment, if that is known.
    fn trouble(&self) -> Option<Error> {
        None
    }
}
