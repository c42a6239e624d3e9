//! Finds out which session keeps an operation waiting in the server.

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::quota::Subject;
use super::names;
use super::runner::StatementRunner;
use super::statement::{Param, Statement};
use super::tables::Tables;
use crate::asking::limit::Limit;
use crate::text::error::{Error, ErrorKind};
use crate::values::claim::Claim;

/// How long a look may take, with those before it.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// What is said of a process that has committed, and whose commit no standby confirms.
const SYNC_REP: &str = "has written this lock and waits for a synchronous standby to confirm it (wait_event SyncRep): see \
                        synchronous_standby_names, and pg_stat_replication for who is connected";

/// Looks at what operations wait for.
#[derive(Debug)]
pub(super) struct Blocked {
    keys: ObstacleQuery,
    rows: ObstacleQuery,
    /// One look after the other: many operations may be late at once, and then the server has enough to do.
    looking: Semaphore,
}

/// A look at one kind of obstacle.
#[derive(Debug)]
struct ObstacleQuery {
    /// Takes a JSON array of names, and gives the number of a server process, and what it waits for itself.
    statement: Statement,
    /// What is said of that process.
    words: &'static str,
}

impl Blocked {
    pub(super) fn new(tables: &Tables) -> Self {
        let statement = |sql| Statement::new(sql, tables, &["process", "wait_event"]);
        Self {
            keys: ObstacleQuery {
                statement: statement(include_str!("blocked.sql")),
                words: "holds the advisory lock that acquisitions of this key take one after the other; if it is another \
                        application's, see docs/postgres.md, \"Advisory locks\"",
            },
            rows: ObstacleQuery {
                statement: statement(include_str!("blocked_row.sql")),
                words: "has locked the lock's row: with a guard, in a transaction that has not ended (docs/guards.md), or \
                        with a statement of its own",
            },
            looking: Semaphore::new(1),
        }
    }

    /// The answer of `attempt` to acquire what is claimed. When most of its time is over, or the server has ended it, a look
    /// is taken at what it waits for: see [`Limit::waits_for`]. The look changes nothing but the words of an error.
    pub(super) async fn watch<T>(
        &self,
        runner: &StatementRunner,
        claims: &[Claim],
        limit: &Limit,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let names = || claims.iter().flat_map(names::all_of).collect();
        self.watch_for(runner, &self.keys, names, limit, attempt)
            .await
    }

    /// As [`watch_rows`](Self::watch_rows), for what has `time`: shortly before that is over, an error says what it waits for, if a
    /// look has found that.
    pub(super) async fn watch_rows_for<T>(
        &self,
        runner: &StatementRunner,
        rows: &[Subject<'_>],
        time: Duration,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit = Limit::after(time - time / 16);
        let watched = self.watch_rows(runner, rows, &limit, attempt);
        let late = async {
            sleep_until(limit.at).await;
            match limit.waits_for.get() {
                Some(what) => Error::new(ErrorKind::NetworkTimeout, "no answer in time")
                    .with_unknown_outcome()
                    .followed_by(what),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = watched => answer,
            error = late => Err(error),
        }
    }

    /// As [`watch`](Self::watch), for what changes these rows.
    pub(super) async fn watch_rows<T>(
        &self,
        runner: &StatementRunner,
        rows: &[Subject<'_>],
        limit: &Limit,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let names = || rows.iter().map(|row| row.name().to_owned()).collect();
        self.watch_for(runner, &self.rows, names, limit, attempt)
            .await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is watched, and how to look at it"
    )]
    async fn watch_for<T>(
        &self,
        runner: &StatementRunner,
        look: &ObstacleQuery,
        names: impl Fn() -> Vec<String>,
        limit: &Limit,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut attempt = pin!(attempt);
        let patience = limit.at.saturating_duration_since(Instant::now()) * 3 / 4;
        // Boxed because they are rare: otherwise the future of every operation would be as large.
        let take = || Box::pin(self.take(runner, look, names(), limit));
        let answer = match timeout(patience, &mut attempt).await {
            Ok(answer) => answer,
            Err(_) => tokio::select! {
                answer = &mut attempt => answer,
                () = take() => attempt.await,
            },
        };
        match answer {
            Err(error) if error.kind() == ErrorKind::NetworkTimeout => {
                if limit.waits_for.get().is_none() {
                    take().await;
                }
                Err(limit.explain(error))
            }
            answer => answer,
        }
    }

    async fn take(
        &self,
        runner: &StatementRunner,
        look: &ObstacleQuery,
        names: Vec<String>,
        limit: &Limit,
    ) {
        let names = Value::from(names).to_string();
        let plan = look.statement.bind(vec![Param::Text(&names)]);
        let looking = async {
            let _permit = self.looking.acquire().await;
            // The connections of the pool may all be taken by what is late.
            runner.connections.transport.run_beside(&plan).await
        };
        let found = timeout(LONGEST_LOOK, looking).await;
        if let Ok(Ok(Some(row))) = found
            && let Some(Some(process)) = row.first()
        {
            let words = match row.get(1) {
                Some(Some(event)) if event == "SyncRep" => SYNC_REP,
                _ => look.words,
            };
            let _ = limit
                .waits_for
                .set(format!("the server process {process} {words}"));
        }
    }
}
