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
//! let guard = lock(&backend, &Key::new("account:4711")?, &LockOptions::default()).await?;
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
//! entry that leads from its lock id to it, and its fence counter, which stays. A fourth, which stays too, says for which
//! period something was done last ([`once`](crate::once)). The store is one server, with or
//! without replicas, or a Redis Cluster ([`RedisServer::Cluster`]).
//!
//! Several locks are acquired, extended or freed by one script, too, however many they are. A slot of a key is a lock under a
//! name of its own, which the script makes of the key's: it finds the free ones where they are.
//!
//! In a cluster, what belongs to a lock is in one hash slot, and so are all slots of a key. Locks in several shards take a script
//! for each shard. An acquisition takes the shards one after the other, in the same order in every process, and frees again
//! what it has taken when it finds a lock that is held: others may see locks held for a moment that are not granted then. An
//! extension extends the locks of each shard for themselves: if one is gone, those of other shards may last longer all the
//! same. With a hash tag in the key prefix, all locks are in one place, and everything is one step.
//!
//! In a cluster, scripts touch only the keys that they are given, and slots of these keys. So a
//! release or an extension of a lock that another backend took begins with a look at where the lock is, and a lock
//! id must fit its key ([`Backend::prepare`](crate::Backend::prepare)). Calls follow hash slots that move, and are sent again only when a node has
//! said that it has not run them. Replication is asynchronous: a primary that fails may take locks with
//! it that its replica has not got. Fences go on rising.
//!
//! Who waits for a lock hears of its release on a channel with the name of the lock's key (Pub/Sub), over a
//! second connection, which is there only while somebody waits; in a cluster, on one to each node with such a lock.
//!
//! With [`RedisLocks::replicas`], a lock counts as granted once so many replicas have it (`WAIT`, behind the script), and an
//! extension counts once they have that. If they do not have it in time, a lock is released again, and an extension has failed.
//! Acquisitions have a connection of their own then, because the server runs nothing else of one that waits, and extensions
//! another one.
//!
//! With Sentinels ([`RedisServer::Sentinel`]), each is subscribed to from the first connection on. When one of them names another
//! primary, all connections to the former one end, and locks that extend themselves are extended at once at the new one; so
//! they are when a node of a cluster has taken over the hash slots of another.
//!
//! The lock on a shared key is the group of its readers. Each reader has a lock of its own as well, named after the key. A sorted set beside
//! the key has the end of each reader, so that the last one to leave is known.
//!
//! An ACL user needs access to the keys that start with the prefix, and the commands
//! `+eval +evalsha +get +set +del +time +ping`; for shared locks also `+zadd +zrem +zrevrange +zremrangebyscore +pexpire`; to hear and tell of releases also access to the channels
//! that start with the prefix, and `+publish +subscribe +unsubscribe`; with replicas also `+wait`, with a database number also `+select`, with Sentinels
//! also `+role` (and from these `+sentinel|get-master-addr-by-name +sentinel|master +subscribe` on the channels
//! `+switch-master` and `+promoted-slave`), in a cluster also `+asking +cluster|slots`, and from Redis 7 on `+spublish +ssubscribe +sunsubscribe`
//! there.
//!
//! While the server refuses connections, a call waits for up to a second, in case it is restarting, and then
//! fails with `ServiceUnavailable`. While the server does not answer, a call fails with `NetworkTimeout` when
//! [`RedisLocks::operation_timeout`] is over. A wrong password, missing rights or a wrong database number
//! fails at once. When a connection falls silent, a second one is opened to test the server. If only the second
//! gets answers, it takes the place of the first, within about a second, and sooner where a lock that extends itself would end;
//! if neither does, the first is replaced after a little more than a timeout. A connection on which nothing was heard for five seconds has to answer a `PING` before it is sent anything
//! else; without an answer, calls go to a new one. An idle backend does nothing, but its connections have TCP keepalive.
//!
//! A client may put a prefix of its own before every key that it sends ([`RedisConfig::client_key_prefix`],
//! ioredis' `keyPrefix`). Libraries that share a store through such clients exclude each other. Our index
//! entries hold the lock's name with that prefix; entries of a library that leaves it out are understood too.

// Files depend in one direction, without circles: names, plan, callers, reply, answer and settings; connection/ (socket, stream, term,
// limited, connect, session, sentinel/, target, pipeline, reading, link, script_connection, cluster/); wakeups/; transport/;
// backend; operations/.
mod answer;
mod backend;
mod callers;
mod config;
mod connection;
mod declaring;
mod error;
mod hash_slots;
mod known;
mod names;
mod nat_map;
mod operations;
mod plan;
mod replication;
mod reply;
mod transport;
mod url;
mod wakeups;

pub use crate::network::switches::SwitchListener;
pub use backend::RedisBackend;
pub use config::{
    FewSentinels, FewSentinelsHook, RedisCluster, RedisConfig, RedisLocks, RedisSentinel,
    RedisServer,
};
pub use connection::tls::RedisTls;
pub use error::{Cause, classify, reply_code, to_error, to_error_hiding};
pub use hash_slots::key_slot;
pub use names::{ClientPrefix, KEYS, Names};
pub use nat_map::NatMap;
pub use operations::{
    acquire, extend, force_release, holder, is_locked, locate, lookup, record, release,
};
pub use plan::{Plan, Script};
pub use reply::Reply;
pub use transport::Transport;
pub use transport::shared::RedisConnection;
