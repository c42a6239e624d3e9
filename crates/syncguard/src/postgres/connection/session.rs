//! A session, and what all sessions of a pool know of silence.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Client, Statement};

use super::arrivals::{Arrivals, SessionEnd};
use super::era::Era;
use super::stream::SessionStream;
use crate::mutex::lock;
use crate::postgres::config::Host;

/// A session.
pub(in crate::postgres) struct Session {
    pub(in crate::postgres) client: Client,
    /// The server that it is on.
    pub(super) host: Host,
    /// Since when that server is the primary, if there are several hosts and it says so.
    pub(super) era: Option<Era>,
    /// The server process of the session, if the session is ours alone.
    pub(in crate::postgres) process: Option<i32>,
    pub(in crate::postgres) arrivals: Arc<Arrivals>,
    /// The task that reads and writes the socket. It ends once the client is dropped and the last answer is
    /// there.
    pub(super) driver: JoinHandle<()>,
    /// Whether statements can be prepared in it.
    pub(in crate::postgres) may_prepare: bool,
    /// The prepared statements, by their slots.
    pub(super) prepared: Vec<Option<Statement>>,
}

impl Session {
    /// Ends a session that gives no answer. Whoever waits for one gets an error.
    pub(in crate::postgres) fn cut_off(&self) {
        self.arrivals.finish(SessionEnd::Silent);
        self.driver.abort();
    }
}

/// What all sessions of a pool know of silence.
#[derive(Default)]
pub(super) struct Silences {
    /// Sessions on which nothing has arrived since then may be gone.
    lost_since: Mutex<Option<Instant>>,
    /// The connection to ask over, as long as anybody waits.
    witness: Mutex<Weak<Witness>>,
}

pub(super) type Witness = tokio::sync::Mutex<Option<Session>>;

impl Silences {
    /// Notes that a session was found gone on which nothing had arrived since then.
    pub(super) fn found(&self, since: Instant) {
        let mut lost = lock(&self.lost_since);
        *lost = (*lost).max(Some(since));
    }

    /// Whether an idle session has to be replaced, because others were found gone.
    pub(super) fn is_suspect(&self, session: &Session) -> bool {
        lock(&self.lost_since).is_some_and(|since| session.arrivals.last() <= since)
    }

    pub(super) fn witness(&self) -> Arc<Witness> {
        let mut current = lock(&self.witness);
        current.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *current = Arc::downgrade(&new);
            new
        })
    }
}

/// Reads and writes the socket of a session that listens, until its end. Hands over the channels of notifications.
pub(super) async fn drive<T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: tokio_postgres::Connection<SessionStream, T>,
    channels: UnboundedSender<String>,
    arrivals: &Arrivals,
) -> Result<(), tokio_postgres::Error> {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message? {
            arrivals.expect_reply();
            // Fails when nobody listens any more. Then the session is about to end.
            let _ = channels.send(notification.channel().to_owned());
        }
    }
    Ok(())
}
