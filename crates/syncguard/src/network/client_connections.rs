//! Connections of a client that the caller brings, as far as it shows them.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::losses::Losses;
use super::switches::SwitchListener;

/// What a client of the caller's shows of its connections. Once it has one again after it has lost one, all that is held over it is
/// asked after: another server may be there by then, or the same one without what it had.
///
/// The operations of the backend show it, too. Whoever hears more from the client, by its events, says so here, inside of a tokio
/// runtime. Clones share what is known.
#[derive(Clone, Default)]
pub struct ClientConnections(Arc<Losses>);

impl ClientConnections {
    /// The client has lost a connection.
    pub fn lost(&self) {
        self.0.lost(Instant::now());
    }

    /// The client has a connection, which it may have made anew.
    pub fn made(&self) {
        self.0.made();
    }

    /// Tells `listener` for as long as it lives.
    pub(crate) fn add(&self, listener: Weak<SwitchListener>) {
        self.0.add(listener);
    }

    /// A call that began then was answered. A connection that was lost meanwhile may have been another one.
    pub(crate) fn answered(&self, begun: Instant) {
        self.0.made_after(begun);
    }
}
