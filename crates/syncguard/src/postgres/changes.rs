//! Changes tables that are in use, without getting in anybody's way.
//!
//! A change has to wait until everybody who has the table open has ended their transaction, and whoever comes after that waits
//! behind it: while a report or a backup reads the table, all locks would stand still. So a change waits for a moment
//! only, it is not tried at all while a transaction that lasts has the table open, and it is tried again until
//! the time for it is over.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use super::error::Failure;
use super::reply;
use super::statement::{Param, Statement, Transport};
use super::tables::Tables;
use crate::random;
use crate::text::error::{Error, ErrorKind};

/// Makes the rest of a transaction wait for locks for no longer than a heartbeat can do without its answer.
const IN_SHORT: &str = "SELECT set_config('lock_timeout', '200ms', true);";

/// The pause before the tables are looked at again. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a change is tried.
const TIME: Duration = Duration::from_secs(55);

/// Whom a change has to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitsFor {
    /// Those who write, as a new index does.
    Writers,
    /// All who have the table open, as a new column does.
    All,
}

/// The changes that somebody makes, one after the other.
pub(super) struct TableChanges<'a> {
    transport: &'a dyn Transport,
    users: Statement,
    names: &'a [String],
    until: Instant,
    pause: Duration,
    /// The transactions that had the tables open when they were looked at last.
    seen: String,
    /// What is known of one of them that has stayed.
    blocker: Option<String>,
}

impl<'a> TableChanges<'a> {
    /// `names` are the quoted names of the tables, before any others.
    pub(super) fn new(transport: &'a dyn Transport, tables: &Tables, names: &'a [String]) -> Self {
        let columns = &["present", "stayed"];
        Self {
            transport,
            users: Statement::new(include_str!("changes_users.sql"), tables, columns),
            names,
            until: Instant::now() + TIME,
            pause: FIRST_PAUSE,
            seen: String::new(),
            blocker: None,
        }
    }

    /// Runs `sql` as one transaction, if nobody is in its way. If somebody is, it waits a while and gives `false`: then
    /// the caller looks whether the change is still to be made.
    ///
    /// # Errors
    /// Those of the statements; `NetworkTimeout` when the time is over, which names who is in the way.
    pub(super) async fn make(&mut self, sql: &str, waits_for: WaitsFor) -> Result<bool, Failure> {
        let is_first = self.seen.is_empty();
        let (present, stayed) = self.users(waits_for).await?;
        // Whoever has just come may be gone in a moment, as operations on locks are.
        if present.is_empty() || (stayed.is_none() && !is_first) {
            match self.transport.batch(&format!("{IN_SHORT}\n{sql}")).await {
                Err(failure) if failure.state() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
                done => return done.map(|()| true),
            }
        }
        self.blocker = stayed.or(self.blocker.take());
        self.seen = present;
        if Instant::now() >= self.until {
            return Err(Failure::other(self.timed_out()));
        }
        // Several processes that start together should not take turns in the others' way.
        let scatter = 0.75 + random::unit().unwrap_or(0.5) / 2.0;
        sleep(self.pause.mul_f64(scatter)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(false)
    }

    /// The transactions that are in the way, and what is known of one that was when they were looked at before.
    async fn users(&self, waits_for: WaitsFor) -> Result<(String, Option<String>), Failure> {
        let [locks, fences, ..] = self.names else {
            return Ok((String::new(), None));
        };
        let params = vec![
            Param::Text(locks),
            Param::Text(fences),
            Param::Text(&self.seen),
            Param::Text(match waits_for {
                WaitsFor::Writers => "writers",
                WaitsFor::All => "all",
            }),
        ];
        let row = self.transport.run(&self.users.bind(params)).await?;
        let column = |column| reply::optional(row.as_ref(), column).map_err(Failure::other);
        let present = column(0)?.unwrap_or_default().to_owned();
        Ok((present, column(1)?.map(str::to_owned)))
    }

    fn timed_out(&self) -> Error {
        let Some(blocker) = &self.blocker else {
            return timed_out();
        };
        Error::new(
            ErrorKind::NetworkTimeout,
            format!(
                "setupSchema could not finish: {blocker} has a lock table open, and a change has to wait until that \
                 transaction ends; locks go on as before, so end it or call setupSchema again later"
            ),
        )
    }
}

/// The error where nobody in particular is in the way.
pub(super) fn timed_out() -> Error {
    Error::new(
        ErrorKind::NetworkTimeout,
        "setupSchema took too long: another session may hold the tables",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::postgres::statement::{Plan, Row};

    /// Somebody has the tables open for so many looks.
    #[derive(Debug)]
    struct Server {
        looks: Mutex<u32>,
        batches: Mutex<u32>,
    }

    #[async_trait]
    impl Transport for Server {
        async fn run(&self, plan: &Plan<'_>) -> Result<Option<Row>, Failure> {
            let mut looks = self.looks.lock().unwrap();
            if *looks == 0 {
                return Ok(Some(vec![None, None]));
            }
            *looks -= 1;
            let has_seen = plan.params[2] == Param::Text("7/1");
            let stayed = has_seen.then(|| "the server process 42 (\"report\", active)".to_owned());
            Ok(Some(vec![Some("7/1".to_owned()), stayed]))
        }

        async fn batch(&self, sql: &str) -> Result<(), Failure> {
            assert!(sql.starts_with("SELECT set_config('lock_timeout'"), "{sql}");
            *self.batches.lock().unwrap() += 1;
            Ok(())
        }
    }

    async fn change(looks: u32) -> (Result<(), Failure>, u32) {
        let server = Server {
            looks: Mutex::new(looks),
            batches: Mutex::default(),
        };
        let names = ["locks", "fences"].map(str::to_owned);
        let mut changes = TableChanges::new(&server, &Tables::default(), &names);
        let made = loop {
            match changes.make("ALTER TABLE", WaitsFor::All).await {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(failure) => break Err(failure),
            }
        };
        let batches = *server.batches.lock().unwrap();
        (made, batches)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_tried_while_somebody_stays() {
        for looks in [0, 1, 10] {
            let (made, batches) = change(looks).await;
            assert!(made.is_ok());
            assert_eq!(batches, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_in_the_way_all_the_time_is_named() {
        let (made, batches) = change(1000).await;
        let error = Error::from(made.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
        assert!(
            error
                .message()
                .contains("process 42 (\"report\", active) has a lock table open")
        );
        assert_eq!(batches, 0);
    }
}
