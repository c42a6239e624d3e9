//! Finds sessions that have gone silent, as when a firewall has dropped them.
//!
//! On the client's side, a statement that waits for another's row lock looks the same as one whose session is gone, and
//! TCP takes a quarter of an hour to notice. So when a statement has had no answer for a while, the server is asked over
//! another connection. If it is not working on the statement, twice in a row, the session is cut off, and other sessions on which nothing
//! has arrived since then are replaced before they are used. No statement is repeated, because it may still arrive.
//! Whoever waits for it gets an error early enough for another attempt.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};

use super::arrivals::Arrivals;
use super::connect::Connector;
use super::session::Witness;

/// The longest time that a statement may go without an answer before the server is asked about it.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Asks whether this server process is running a statement.
const IS_WORKING: &str =
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND state IS DISTINCT FROM 'idle')";

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
        // A pooler says the same each time.
        let is_pooled = process.is_none();
        let mut is_suspected = is_pooled;
        let mut witness = None;
        loop {
            if let Ok(answer) = timeout_at(due, &mut answer).await {
                return Some(answer);
            }
            let silent_since = arrivals.last().max(begun);
            due = silent_since + patience;
            if due > Instant::now() {
                is_suspected = is_pooled;
                continue;
            }
            let witness = witness.get_or_insert_with(|| self.silences().witness());
            // Boxed because it is large and rare: otherwise the future of every operation would be as large.
            let is_working = Box::pin(self.is_working(witness, process.unwrap_or(0)));
            tokio::select! {
                answer = &mut answer => return Some(answer),
                // Only if nothing has arrived while the server was asked.
                is_working = is_working => {
                    let is_silent = is_working == Some(false) && arrivals.last() <= silent_since;
                    if is_silent && is_suspected {
                        self.silences().found(begun);
                        // Behind a pooler, the statement may only take long.
                        if !is_pooled {
                            self.losses().lost(begun);
                        }
                        return None;
                    }
                    is_suspected = is_silent;
                }
            }
            // The statement may have ended just then: a busy process reads its answer later than the witness's.
            due = Instant::now() + if is_suspected { patience / 4 } else { patience };
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
