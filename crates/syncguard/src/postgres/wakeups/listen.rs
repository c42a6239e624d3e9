//! Hears of freed locks: NOTIFY, and the session that listens for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::notify::{channel, with_hash};
use crate::postgres::connection::connect::Connector;
use crate::postgres::connection::session::Session;
use crate::postgres::error::{Failure, failure};
use crate::postgres::fault::Fault;
use crate::text::error::{Error, ErrorKind};
use crate::waiting::listener::{ANSWER, Listen, Listener, StoreMessage};

/// The most names in one statement, which keeps its answer small.
const MOST: usize = 1000;
/// Asks which server process answers, and for how many locks it listens.
const TEST: &str = "SELECT pg_backend_pid(), (SELECT count(*) FROM pg_listening_channels())";

/// Opens sessions that listen, beside those of the pool and in the same way.
pub(in crate::postgres) struct Notifications(Arc<Connector>);

impl Notifications {
    pub(in crate::postgres) fn new(connector: Arc<Connector>) -> Self {
        Self(connector)
    }
}

#[async_trait]
impl Listen for Notifications {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        if self.0.is_shared() {
            return Err(shared());
        }
        let (connection, channels) = self.0.connect_to_listen().await?;
        if !connection.may_prepare {
            return Err(shared());
        }
        Ok(Box::new(ListeningSession {
            connector: Arc::clone(&self.0),
            process: connection.process,
            connection,
            channels,
            hashes: HashMap::new(),
            names: HashMap::new(),
            heard: VecDeque::new(),
        }))
    }
}

fn shared() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a pooler gives its sessions to others, so notifications do not arrive",
    )
}

/// A session that listens.
struct ListeningSession {
    connection: Session,
    connector: Arc<Connector>,
    /// The server process at its start.
    process: Option<i32>,
    /// The channels of the notifications that have arrived.
    channels: UnboundedReceiver<String>,
    hashes: HashMap<Arc<str>, i64>,
    /// The names by their channels.
    names: HashMap<String, Arc<str>>,
    /// What this side has to tell.
    heard: VecDeque<StoreMessage>,
}

#[async_trait]
impl Listener for ListeningSession {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        let with = |wanted| {
            let names = names
                .iter()
                .filter(move |(_, is_wanted)| *is_wanted == wanted);
            let mut names: Vec<_> = names.map(|(name, _)| Arc::clone(name)).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        for unwanted in with(false).chunks(MOST) {
            self.leave(unwanted).await?;
        }
        for wanted in with(true).chunks(MOST) {
            self.enter(wanted).await?;
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        if self.connector.is_former(&self.connection) {
            return Err(Failure::new(Fault::FormerPrimary).into());
        }
        let limit = ANSWER.min(self.connector.operation_timeout());
        let row = self.within(limit, self.connection.client.query_typed(TEST, &[]));
        let row = row.await?.into_iter().next().ok_or_else(malformed)?;
        let (process, channels) = (row.try_get(0).ok(), row.try_get::<_, i64>(1).ok());
        self.check(process)?;
        if channels != i64::try_from(self.names.len()).ok() {
            return Err(shared());
        }
        self.heard.push_back(StoreMessage::Alive);
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Ok(heard);
            }
            let Some(channel) = self.channels.recv().await else {
                return Err(Failure::new(Fault::Closed).into());
            };
            if let Some(name) = self.names.get(&channel) {
                return Ok(StoreMessage::Freed(name.to_string()));
            }
        }
    }
}

impl ListeningSession {
    /// Notices a pooler that hides itself: another process has answered, or other sessions have been mixed up.
    fn check(&self, process: Option<i32>) -> Result<(), Error> {
        if process != self.process || self.connector.is_shared() {
            return Err(shared());
        }
        Ok(())
    }

    /// Listens for these locks. One for which it listens already is told of once more, because somebody new
    /// waits for it.
    async fn enter(&mut self, names: &[Arc<str>]) -> Result<(), Error> {
        let is_new = |name: &&Arc<str>| !self.hashes.contains_key(*name);
        let new: Vec<_> = names.iter().filter(is_new).collect();
        if !new.is_empty() {
            let hashes = self.mark(&new).await?;
            let channels = hashes.iter().map(|(_, hash)| channel(*hash));
            self.each("LISTEN", channels).await?;
            for (name, hash) in hashes {
                self.names.insert(channel(hash), Arc::clone(&name));
                self.hashes.insert(name, hash);
            }
        }
        let listening = names.iter().filter(|name| self.hashes.contains_key(*name));
        let listening = listening.map(|name| StoreMessage::Listening(name.to_string()));
        self.heard.extend(listening);
        Ok(())
    }

    /// Marks locks as ones for which somebody waits. Gives their hashes.
    async fn mark(&self, names: &[&Arc<str>]) -> Result<Vec<(Arc<str>, i64)>, Error> {
        let parts = names.iter().filter_map(|name| name.split_once(' '));
        let (tables, keys): (Vec<_>, Vec<_>) = parts.unzip();
        let sql = with_hash(include_str!("listen.sql"));
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&tables, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
        let rows = self.in_time(self.connection.client.query_typed(&sql, &params));
        let mut hashes = Vec::new();
        for row in rows.await? {
            let number: i64 = row.try_get("number").map_err(|_| malformed())?;
            let hash: Option<i64> = row.try_get("hash").map_err(|_| malformed())?;
            self.check(row.try_get("process").ok())?;
            let name = usize::try_from(number)
                .ok()
                .and_then(|at| names.get(at))
                .ok_or_else(malformed)?;
            hashes.extend(hash.map(|hash| (Arc::clone(name), hash)));
        }
        Ok(hashes)
    }

    /// Listens for these locks no longer.
    async fn leave(&mut self, names: &[Arc<str>]) -> Result<(), Error> {
        let hashes: Vec<_> = names
            .iter()
            .filter_map(|name| self.hashes.remove(name))
            .collect();
        if hashes.is_empty() {
            return Ok(());
        }
        for hash in &hashes {
            self.names.remove(&channel(*hash));
        }
        self.each("UNLISTEN", hashes.iter().map(|hash| channel(*hash)))
            .await?;
        let sql = with_hash(include_str!("unlisten.sql"));
        let params = [(&hashes as _, Type::INT8_ARRAY)];
        self.in_time(self.connection.client.query_typed(&sql, &params))
            .await?;
        Ok(())
    }

    /// Runs a command for each of these channels, in one round trip. Commands take no parameters.
    async fn each(
        &self,
        command: &str,
        channels: impl Iterator<Item = String>,
    ) -> Result<(), Error> {
        let sql: String = channels
            .map(|channel| format!("{command} \"{channel}\";"))
            .collect();
        self.in_time(self.connection.client.batch_execute(&sql))
            .await
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.within(self.connector.operation_timeout(), answer)
            .await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        match timeout(limit, answer).await {
            Ok(answer) => {
                answer.map_err(|error| failure(&error, self.connection.arrivals.end()).into())
            }
            Err(_) => {
                self.connection.cut_off();
                self.connector.losses().lost(begun);
                Err(Failure::new(Fault::Silent).into())
            }
        }
    }
}

fn malformed() -> Error {
    Failure::new(Fault::Malformed).into()
}
