//! Locks in a Redis server.
//!
//! ```no_run
//! # async fn do_the_work(_: syncguard::Fence) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), syncguard::Error> {
//! use std::sync::Arc;
//! use syncguard::redis::{RedisBackend, RedisConfig};
//! use syncguard::{Backend, Key, LockOptions, lock};
//!
//! let config = RedisConfig::from_url("redis://localhost:6379")?;
//! let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config)?);
//! let guard = lock(&backend, &Key::new("nightly-report")?, &LockOptions::default()).await?;
//! do_the_work(guard.fence()).await;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Every operation is one script that the server runs atomically, by its own clock, made of files `.lua`. Beside
//! them, in Rust, is the pure half of the operation: what to send ([`plan`](acquire::plan)) and what the reply
//! means ([`outcome`](acquire::outcome)). [`RedisBackend::new`] makes a connection of its own,
//! [`RedisBackend::on`] shares one with other backends, and [`RedisBackend::over`] takes any [`Transport`]. The crate
//! `syncguard-clients` has those over fred and redis-rs.
//!
//! Under names that start with the key prefix, three things are stored: the lock as a JSON object, an index
//! entry that leads from its lock id to it, and its fence counter, which stays. The store is one server, with or
//! without replicas, or a Redis Cluster ([`RedisServer::Cluster`]).
//!
//! Several locks are taken, extended or freed by one script, too, however many they are. A slot of a key is a lock under a
//! name of its own, which the script makes of the key's: it finds the free ones where they are.
//!
//! In a cluster, what belongs to a lock is in one hash slot, and so are all slots of a key. Locks in several shards take a script
//! for each shard. An acquisition takes the shards one after the other, in the same order in every process, and frees again
//! what it has taken when it finds a lock that is held: others may see locks held for a moment that are not granted then. An
//! extension extends the locks of each shard for themselves: if one is gone, those of other shards may last longer all the
//! same. With a hash tag in the key prefix, all locks are in one place, and everything is one step.
//!
//! In a cluster, scripts touch only the keys that they are given, and slots of these. So a
//! release or an extension of a lock that another backend took begins with a look at where the lock is, and a lock
//! id must fit its key ([`Backend::prepare`]). Calls follow slots that move, and are sent again only when a node has
//! said that it has not run them. Replication is asynchronous: a primary that fails may take locks with
//! it that its replica has not got. Fences go on rising.
//!
//! Who waits for a lock hears of its release on a channel with the name of the lock's key (Pub/Sub), over a
//! second connection, which is there only while somebody waits; in a cluster, on one to each node with such a lock.
//!
//! With [`RedisLocks::replicas`], a lock counts as granted once so many replicas have it (`WAIT`, behind the script); if they
//! do not have it in time, it is released again. Acquisitions have a connection of their own then, because the server
//! runs nothing else of one that waits.
//!
//! An ACL user needs access to the keys that start with the prefix, and the commands
//! `+eval +evalsha +get +set +del +time +ping`; to hear and tell of releases also access to the channels
//! that start with the prefix, and `+publish +subscribe +unsubscribe`; with replicas also `+wait`, with a database number also `+select`, with Sentinels
//! also `+role`, in a cluster also `+asking +cluster|slots`, and from Redis 7 on `+spublish +ssubscribe +sunsubscribe`
//! there.
//!
//! While the server refuses connections, a call waits for up to a second, in case it is restarting, and then
//! fails with `ServiceUnavailable`. While the server does not answer, a call fails with `NetworkTimeout` when
//! [`RedisLocks::operation_timeout`] is over. A wrong password, missing rights or a wrong database number
//! fails at once. When a connection falls silent, a second one is opened to test the server. If only the second
//! gets answers, the first is replaced, within about a second; if neither does, after one and a half
//! timeouts. A connection on which nothing was heard for five seconds has to answer a `PING` before it is sent anything
//! else; without an answer, calls go to a new one. An idle backend does nothing, but its connections have TCP keepalive.
//!
//! A client may put a prefix of its own before every key that it sends ([`RedisConfig::client_key_prefix`],
//! ioredis' `keyPrefix`). Libraries that share a store through such clients exclude each other. Our index
//! entries hold the lock's name with that prefix; entries of a library that leaves it out are understood too.

// Files depend in one direction, without circles: names, plan, reply, answer and settings; connection/ (socket, stream, limited,
// connect, session, sentinel, target, pipeline, script_connection, link, connections, cluster/); wakeups/; transport/;
// runner; operations/; and this.
mod answer;
mod config;
mod connection;
mod error;
mod known;
mod names;
mod nat_map;
mod operations;
mod plan;
mod replication;
mod reply;
mod runner;
mod slots;
mod transport;
mod url;
mod wakeups;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use config::{RedisCluster, RedisConfig, RedisLocks, RedisSentinel, RedisServer};
pub use connection::tls::RedisTls;
pub use error::{Cause, classify, reply_code, to_error, to_error_hiding};
pub use names::{ClientPrefix, KEYS, Names};
pub use nat_map::NatMap;
pub use operations::{
    acquire, extend, force_release, holder, is_locked, locate, lookup, record, release,
};
pub use plan::{Plan, Script};
pub use reply::Reply;
pub use slots::key_slot;
pub use transport::Transport;
pub use transport::shared::RedisConnection;

use crate::backend::{Backend, Capabilities};
use crate::claim::Claim;
use crate::error::Error;
use crate::event_loop::Lane;
use crate::outcome::Outcome;
use crate::request::{AcquireRequest, Operation};
use crate::time::TimeAuthority;
use crate::waiting::wakeups::Watch;
use crate::work::Work;
use runner::Runner;

/// Locks in a Redis server.
pub struct RedisBackend {
    runner: Runner,
    work: Work,
}

impl RedisBackend {
    /// A backend with a connection of its own. It connects at the first operation, and again when the
    /// connection is lost.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting.
    pub fn new(config: RedisConfig) -> Result<Self, Error> {
        let names = config.validate()?;
        Ok(Self::with(
            transport::shared::to(&config, None)?,
            names,
            &config.locks,
        ))
    }

    /// A backend on a connection that other backends may share.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(connection: &RedisConnection, locks: &RedisLocks) -> Result<Self, Error> {
        let transport = connection.transport()?;
        let names = locks.validate(connection.client_prefix(), transport.is_cluster())?;
        Ok(Self::with(transport, names, locks))
    }

    /// A backend over any transport, such as the caller's own client.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
        transport: Arc<dyn Transport>,
        client_prefix: ClientPrefix,
        locks: &RedisLocks,
    ) -> Result<Self, Error> {
        if locks.replicas > 0 && !transport.waits_for_replicas() {
            return Err(Error::invalid(
                "replicas needs a connection of its own: it cannot be asked for through a client, whose other \
                 calls would wait as well",
            ));
        }
        let names = locks.validate(client_prefix, transport.is_cluster())?;
        Ok(Self::with(transport, names, locks))
    }

    fn with(transport: Arc<dyn Transport>, names: Names, locks: &RedisLocks) -> Self {
        Self {
            runner: Runner::new(transport, names, locks),
            work: Work::default(),
        }
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("transport", &self.runner.transport)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "redis",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    fn operation_timeout(&self) -> Duration {
        self.runner.operation_timeout
    }

    fn trouble(&self) -> Option<Error> {
        self.runner.transport.get().ok()?.trouble()
    }

    fn heartbeats_at_once(&self) -> usize {
        // They share packets, so that many take hardly more round trips than one.
        1024
    }

    fn lane(&self) -> Option<Lane> {
        // Acquisitions that wait for replicas have a connection of their own.
        match self.runner.replication.is_some() {
            true => None,
            false => self.runner.transport.get().ok()?.lane(),
        }
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        let channel = self.runner.names.channel(claim).ok()?;
        self.runner.transport.get().ok()?.watch(&channel)
    }

    fn prepare(&self, request: &mut AcquireRequest) {
        // A key that has no name is refused later.
        for claim in &mut request.claims {
            if let Ok(Some(shard)) = self.runner.names.claimed_shard(claim) {
                claim.lock_id = claim.lock_id.clone().with_first_byte(shard);
            }
        }
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        let runner = &self.runner;
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(runner.acquire(request).await?),
            Operation::Release(lock_ids) => Outcome::Release(runner.release(lock_ids).await?),
            Operation::Extend(extension) => Outcome::Extend(runner.extend(extension).await?),
            Operation::IsLocked(key) => Outcome::IsLocked(runner.is_locked(key).await?),
            Operation::Lookup(lookup) => Outcome::Lookup(runner.lookup(lookup).await?),
            Operation::ForceRelease(key) => Outcome::ForceRelease(runner.force_release(key).await?),
            Operation::List(page) => Outcome::List(runner.list(page).await?),
            Operation::Facts => Outcome::Facts(runner.facts().await?),
        })
    }

    async fn shut_down(&self) {
        self.runner.transport.end();
    }
}
