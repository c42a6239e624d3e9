//! Finds out which session keeps an acquisition waiting for the advisory lock of a key.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::names;
use super::runner::StatementRunner;
use super::statement::{Param, Statement};
use super::tables::Tables;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::request::Limit;
use crate::sending::Sending;

/// How long a look may take.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Looks at what acquisitions wait for.
#[derive(Debug)]
pub(super) struct Blocked {
    statement: Statement,
    /// One look at a time: many acquisitions may be late at once, and then the server has enough to do.
    looking: Semaphore,
}

impl Blocked {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            statement: Statement::new(include_str!("blocked.sql"), tables, &["process"]),
            looking: Semaphore::new(1),
        }
    }

    /// The answer of `attempt` to take what is claimed. When most of its time is over, or the server has ended it, a look
    /// is taken at what it waits for: see [`Limit::waits_for`]. The look changes nothing but the words of an error.
    pub(super) async fn watch<T>(
        &self,
        runner: &StatementRunner,
        claims: &[Claim],
        limit: &Limit,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut attempt = pin!(attempt);
        let patience = limit.at.saturating_duration_since(Instant::now()) * 3 / 4;
        // Boxed because they are rare: otherwise the future of every acquisition would be as large. What a look sends is not
        // the acquisition, which the server may carry out while the look waits for a connection.
        let look = || Box::pin(Sending::default().of(self.look(runner, claims, limit)));
        let answer = match timeout(patience, &mut attempt).await {
            Ok(answer) => answer,
            Err(_) => tokio::select! {
                answer = &mut attempt => answer,
                () = look() => attempt.await,
            },
        };
        match answer {
            Err(error) if error.kind() == ErrorKind::NetworkTimeout => {
                if limit.waits_for.get().is_none() {
                    look().await;
                }
                Err(match limit.waits_for.get() {
                    Some(what) => error.followed_by(what),
                    None => error,
                })
            }
            answer => answer,
        }
    }

    async fn look(&self, runner: &StatementRunner, claims: &[Claim], limit: &Limit) {
        let Ok(_permit) = self.looking.try_acquire() else {
            return;
        };
        let locks = claims.iter().flat_map(names::all_of).collect::<Vec<_>>();
        let locks = Value::from(locks).to_string();
        let plan = self.statement.bind(vec![Param::Text(&locks)]);
        let until = limit.at.min(Instant::now() + LONGEST_LOOK);
        let found = timeout_at(until, runner.connections.transport.run(&plan)).await;
        if let Ok(Ok(Some(row))) = found
            && let Some(Some(process)) = row.first()
        {
            let _ = limit.waits_for.set(format!(
                "the server process {process} holds the advisory lock that acquisitions of this key take one after the \
                 other; if it is another application's, see docs/postgres.md, \"Advisory locks\""
            ));
        }
    }
}
