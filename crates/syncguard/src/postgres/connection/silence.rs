//! Finds sessions that have gone silent, as when a firewall has dropped them.
//!
//! On the client's side, a statement that waits for another's row lock looks the same as one whose session is gone, and
//! TCP takes a quarter of an hour to notice. So when a statement has had no answer for a while, the server is asked over
//! another connection. If it is not working on the statement, the session is cut off, and other sessions on which nothing
//! has arrived since then are replaced before they are used. No statement is repeated, because it may still arrive.
//! Whoever waits for it gets an error early enough for another attempt.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};

use super::connect::{Connection, Connector};
use crate::mutex::lock;

/// The longest time that a statement may go without an answer before the server is asked about it.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Asks whether this server process is running a statement.
const IS_WORKING: &str =
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND state IS DISTINCT FROM 'idle')";

/// Why a session was ended from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum End {
    /// It got no answer although the server could be reached.
    Silent,
    /// A reply was too large.
    Oversized,
}

/// What has arrived on a session.
pub(in crate::postgres) struct Arrivals {
    last: Mutex<Instant>,
    /// Bytes that have arrived of the current reply.
    received: AtomicUsize,
    end: OnceLock<End>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            received: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    /// Notes that the bytes from now on are another reply: something was sent, or a notification has arrived.
    pub(in crate::postgres) fn expect_reply(&self) {
        self.received.store(0, Relaxed);
    }

    /// Notes that bytes have arrived. Gives how many there are of the current reply.
    pub(super) fn receive(&self, count: usize) -> usize {
        *lock(&self.last) = Instant::now();
        self.received.fetch_add(count, Relaxed) + count
    }

    /// When bytes last arrived.
    pub(super) fn last(&self) -> Instant {
        *lock(&self.last)
    }

    /// Notes why the session ends.
    pub(super) fn finish(&self, end: End) {
        let _ = self.end.set(end);
    }

    pub(in crate::postgres) fn end(&self) -> Option<End> {
        self.end.get().copied()
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

type Witness = tokio::sync::Mutex<Option<Connection>>;

impl Silences {
    /// Notes that a session was found gone on which nothing had arrived since then.
    pub(super) fn found(&self, since: Instant) {
        let mut lost = lock(&self.lost_since);
        *lost = (*lost).max(Some(since));
    }

    /// Whether an idle session has to be replaced, because others were found gone.
    pub(super) fn is_suspect(&self, session: &Connection) -> bool {
        lock(&self.lost_since).is_some_and(|since| session.arrivals.last() <= since)
    }

    fn witness(&self) -> Arc<Witness> {
        let mut current = lock(&self.witness);
        current.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *current = Arc::downgrade(&new);
            new
        })
    }
}

impl Connector {
    /// How long a session may be silent before it is suspected.
    pub(super) fn patience(&self) -> Duration {
        (self.operation_timeout() / 5).min(MOST_PATIENCE)
    }

    /// The answer to a statement that is sent now; `None` if the session turns out to be gone.
    ///
    /// `process` is the server process of the session. Behind a pooler it is not known, and the server cannot tell. There,
    /// a session without an answer is given up at half of the limit, to leave the other half for another attempt.
    pub(super) async fn unless_silent<T>(
        &self,
        arrivals: &Arrivals,
        process: Option<i32>,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        let begun = Instant::now();
        let patience = match process {
            Some(_) => self.patience(),
            None => self.operation_timeout() / 2,
        };
        let mut due = begun + patience;
        let mut witness = None;
        loop {
            if let Ok(answer) = timeout_at(due, &mut answer).await {
                return Some(answer);
            }
            let silent_since = arrivals.last().max(begun);
            due = silent_since + patience;
            if due > Instant::now() {
                continue;
            }
            let witness = witness.get_or_insert_with(|| self.silences().witness());
            // Boxed because it is large and rare: otherwise the future of every operation would be as large.
            let is_working = Box::pin(self.is_working(witness, process.unwrap_or(0)));
            tokio::select! {
                answer = &mut answer => return Some(answer),
                // Only if nothing has arrived while the server was asked.
                is_working = is_working => {
                    if is_working == Some(false) && arrivals.last() <= silent_since {
                        self.silences().found(begun);
                        return None;
                    }
                }
            }
            due = Instant::now() + patience;
        }
    }

    /// Whether the server works for a process; `None` if it does not answer on another connection either, so that
    /// replacing the session would not help.
    async fn is_working(&self, witness: &Witness, process: i32) -> Option<bool> {
        let mut witness = witness.lock().await;
        let limit = self.patience() * 2;
        // Taken out, so that nobody asks anything else over it when this is given up halfway.
        let connection = match witness.take() {
            Some(connection) => connection,
            None => timeout(limit, self.connect()).await.ok()?.ok()?,
        };
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(&process, Type::INT4)];
        let answer = connection.client.query_typed(IS_WORKING, &params);
        match timeout(limit, answer).await {
            Ok(Ok(rows)) => {
                *witness = Some(connection);
                rows.first()?.try_get(0).ok()
            }
            // What the server refuses to tell proves nothing.
            _ => {
                connection.cut_off();
                None
            }
        }
    }
}
