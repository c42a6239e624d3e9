//! The store's end of a connection on which it tells of locks that were freed.

use std::collections::BTreeSet;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::text::error::Error;
use crate::waiting::listener::StoreMessage;

/// The store's end of a connection.
pub(super) struct Connection {
    pub(super) process: usize,
    pub(super) sender: UnboundedSender<Result<StoreMessage, Error>>,
    pub(super) names: BTreeSet<String>,
    /// Nothing comes through any more, and neither end knows it.
    pub(super) is_silent: bool,
    /// When the last message arrives that is on its way, in either direction: none overtakes another.
    pub(super) last_up: Instant,
    pub(super) last_down: Instant,
}
