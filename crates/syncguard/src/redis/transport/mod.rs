//! How scripts get to a server: over a connection of our own, or through the caller's client.

pub(super) mod client;
mod cluster;
mod direct;
pub(super) mod shared;

use std::fmt;
use std::sync::Weak;

use async_trait::async_trait;

use super::plan::Plan;
use super::reply::Reply;
use crate::network::event_loop::Lane;
use crate::network::switches::SwitchListener;
use crate::text::error::Error;
use crate::waiting::wakeups::Watch;

/// Runs scripts in a Redis server.
///
/// An implementation sends a plan at most once. When a plan may have reached the server and its answer is lost,
/// the error says so ([`Error::with_unknown_outcome`]). Futures may be dropped at any point. Connections that
/// the transport has made itself end when it is dropped.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Runs the script and gives the server's reply.
    async fn run(&self, plan: Plan) -> Result<Reply, Error>;

    /// Whether it leads to a Redis Cluster: then the names of each lock share a slot, and scripts touch only the
    /// keys of their plans.
    fn is_cluster(&self) -> bool {
        false
    }

    /// Whether somebody may look at the calls, such as the mock of a client in a test of its user's. Then they have the keys
    /// that they have always had, as long as the server takes that.
    fn has_fixed_calls(&self) -> bool {
        false
    }

    /// Whether it waits until replicas have a grant, where a plan asks for that.
    fn waits_for_replicas(&self) -> bool {
        false
    }

    /// The node of a cluster that has the key; `None` where there is only one.
    async fn node_of(&self, key: &str) -> Result<Option<String>, Error> {
        let _ = key;
        Ok(None)
    }

    /// The lane of calls that are made here and now: those that concern one lock are carried out in the order in which
    /// they are made in it, but for acquisitions that wait for replicas. `None`: they may be carried out in any order.
    fn lane(&self) -> Option<Lane> {
        None
    }

    /// Hears when the lock with that key is freed: the name under which the server knows it. `None`: this
    /// transport cannot, and whoever waits asks again from time to time.
    fn watch(&self, lock_key: &str) -> Option<Watch> {
        let _ = lock_key;
        None
    }

    /// Calls `listener`, for as long as it lives, each time that another server has become the primary of locks. What the
    /// former one was told last may be unknown there.
    fn on_switch(&self, listener: Weak<SwitchListener>) {
        let _ = listener;
    }

    /// Why nothing can be sent to the server at this moment, if that is known.
    fn trouble(&self) -> Option<Error> {
        None
    }
}
