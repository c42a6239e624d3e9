//! A connection of our own, driven by fred.
//!
//! Each connection is a fred client of its own that never reconnects: when a connection is lost,
//! everything in flight fails at once, nothing is ever sent twice, and [`Link`] makes a new one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use fred::bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, Server, ServerConfig, TcpConfig, TlsConfig,
    TlsConnector, TlsHostMapping,
};
use fred::types::{ClusterHash, CustomCommand, Resp3Frame, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::config::{RedisConfig, RedisServer};
use super::error::{Cause, describe, reply_code, to_error};
use super::gate::Gate;
use super::link::{Connection, Dial, Link, closed};
use super::plan::Plan;
use super::reply::Reply;
use super::tls::Trust;
use super::transport::Transport;
use crate::error::Error;

/// The longest that calls wait for a server that refuses connections: it may be restarting.
const PATIENCE: Duration = Duration::from_secs(1);

/// Scripts over a native connection.
pub(super) struct FredTransport {
    link: Link<Dialer>,
    gate: Gate,
    operation_timeout: Duration,
}

impl FredTransport {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        let trust = config.tls.as_ref().map(|tls| tls.read()).transpose()?;
        let operation_timeout = config.locks.operation_timeout;
        let dialer = Dialer {
            config: config.clone(),
            trust,
        };
        Ok(Self {
            link: Link::new(dialer, PATIENCE.min(operation_timeout / 2)),
            gate: Gate::default(),
            operation_timeout,
        })
    }

    async fn call(
        &self,
        command: &'static str,
        script: &'static str,
        plan: &Plan,
    ) -> Result<Resp3Frame, Error> {
        let connection = self.link.get().await?;
        let frame = connection.call(command, arguments(script, plan)).await?;
        if let Some(text) = error_text(&frame)
            && matches!(reply_code(text), Some("READONLY" | "NOAUTH"))
        {
            // The server is not what it was when the connection was made: look for it anew.
            self.link.replace(&connection);
        }
        Ok(frame)
    }
}

#[async_trait]
impl Transport for FredTransport {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let _pass = self.gate.enter().ok_or_else(closed)?;
        let mut frame = self.call("EVALSHA", plan.script.sha(), &plan).await?;
        // It has lost its scripts, in a restart or a SCRIPT FLUSH, and has run nothing.
        if error_text(&frame).and_then(reply_code) == Some("NOSCRIPT") {
            frame = self.call("EVAL", plan.script.source(), &plan).await?;
        }
        reply(frame)
    }

    async fn close(&self) {
        // What was asked before gets its answer, within the time that it has.
        let _ = timeout(self.operation_timeout, self.gate.shut()).await;
        self.link.close();
    }
}

impl fmt::Debug for FredTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FredTransport").finish_non_exhaustive()
    }
}

/// The arguments as slices of one buffer: fred clones each of them, which costs an allocation for
/// every piece that has a buffer of its own.
fn arguments(script: &'static str, plan: &Plan) -> Vec<Value> {
    let texts = || plan.keys.iter().chain(&plan.args);
    let mut buffer = Vec::with_capacity(texts().map(|text| text.len()).sum());
    texts().for_each(|text| buffer.extend_from_slice(text.as_bytes()));
    let mut rest = Bytes::from(buffer);
    let mut values = Vec::with_capacity(2 + plan.keys.len() + plan.args.len());
    values.push(Value::Bytes(Bytes::from_static(script.as_bytes())));
    values.push(Value::Bytes(match plan.keys.len() {
        1 => Bytes::from_static(b"1"),
        count => Bytes::from(count.to_string()),
    }));
    values.extend(texts().map(|text| Value::Bytes(rest.split_to(text.len()))));
    values
}

fn error_text(frame: &Resp3Frame) -> Option<&str> {
    match frame {
        Resp3Frame::SimpleError { data, .. } => Some(data),
        Resp3Frame::BlobError { data, .. } => std::str::from_utf8(data).ok(),
        _ => None,
    }
}

fn reply(frame: Resp3Frame) -> Result<Reply, Error> {
    if let Some(text) = error_text(&frame) {
        return Err(to_error(Cause::Reply(text), true));
    }
    Ok(match frame {
        Resp3Frame::Null => Reply::Nil,
        Resp3Frame::Number { data, .. } => Reply::Int(data),
        Resp3Frame::BlobString { data, .. } | Resp3Frame::SimpleString { data, .. } => {
            Reply::Bulk(data.to_vec())
        }
        Resp3Frame::Array { data, .. } => {
            Reply::Array(data.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        _ => return Err(to_error(Cause::Unreadable, true)),
    })
}

/// Makes connections.
struct Dialer {
    config: RedisConfig,
    trust: Option<Trust>,
}

#[async_trait]
impl Dial for Dialer {
    type Connection = FredConnection;

    async fn dial(&self) -> Result<FredConnection, Error> {
        let config = &self.config;
        let tls = match &self.trust {
            Some(trust) => Some(TlsConfig {
                connector: TlsConnector::from(trust.client_config()?),
                hostnames: TlsHostMapping::None,
            }),
            None => None,
        };
        let settings = Config {
            fail_fast: true,
            username: config.username.clone(),
            password: config.password.clone(),
            server: server(config),
            database: (config.database > 0).then_some(config.database),
            tls,
            ..Config::default()
        };
        let connection = ConnectionConfig {
            connection_timeout: config.connect_timeout,
            internal_command_timeout: config.connect_timeout,
            max_command_attempts: 1,
            disable_cluster_health_check: true,
            tcp: TcpConfig {
                nodelay: Some(true),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let client = Client::new(
            settings,
            Some(PerformanceConfig::default()),
            Some(connection),
            None,
        );
        let task = client
            .init()
            .await
            .map_err(|error| to_error(describe(&error), false))?;
        let connection =
            FredConnection::start(client, task.abort_handle(), config.locks.operation_timeout);
        if let Some(name) = &config.connection_name {
            let arguments = vec!["SETNAME".into(), name.as_str().into()];
            // A refusal, as of a user who may not, is no reason not to serve.
            connection.call("CLIENT", arguments).await?;
        }
        Ok(connection)
    }
}

fn server(config: &RedisConfig) -> ServerConfig {
    match &config.server {
        RedisServer::Tcp { host, port } => {
            let name = config.tls.as_ref().and_then(|tls| tls.servername.clone());
            ServerConfig::Centralized {
                server: Server::new_with_tls(host.clone(), *port, name),
            }
        }
        RedisServer::Unix(path) => ServerConfig::Unix { path: path.clone() },
        RedisServer::Sentinel(sentinel) => ServerConfig::Sentinel {
            hosts: sentinel
                .nodes
                .iter()
                .map(|(host, port)| Server::new(host.clone(), *port))
                .collect(),
            service_name: sentinel.name.clone(),
            username: sentinel.username.clone(),
            password: sentinel.password.clone(),
        },
    }
}

/// One connection. It ends when this is dropped.
pub(super) struct FredConnection {
    client: Client,
    task: AbortHandle,
    pulse: Arc<Pulse>,
    watch: AbortHandle,
}

impl FredConnection {
    fn start(client: Client, task: AbortHandle, operation_timeout: Duration) -> Self {
        let pulse = Arc::new(Pulse::default());
        let watch = tokio::spawn(watch(
            client.clone(),
            task.clone(),
            Arc::clone(&pulse),
            operation_timeout / 2,
        ));
        Self {
            client,
            task,
            pulse,
            watch: watch.abort_handle(),
        }
    }

    async fn call(
        &self,
        command: &'static str,
        arguments: Vec<Value>,
    ) -> Result<Resp3Frame, Error> {
        if !self.is_open() {
            return Err(to_error(Cause::Closed, false));
        }
        self.pulse.sent();
        let command = CustomCommand::new_static(command, ClusterHash::Random, false);
        let answer = self.client.custom_raw(command, arguments).await;
        self.pulse.answered();
        // What fred says of a broken connection it says of one that was never made, too.
        answer.map_err(|error| match describe(&error) {
            Cause::Unreachable | Cause::ConnectTimeout => to_error(Cause::Closed, true),
            cause => to_error(cause, true),
        })
    }
}

impl Connection for FredConnection {
    fn is_open(&self) -> bool {
        !self.task.is_finished()
    }

    fn close(&self) {
        self.task.abort();
    }
}

impl Drop for FredConnection {
    fn drop(&mut self) {
        self.task.abort();
        self.watch.abort();
    }
}

/// What goes over a connection, counted.
#[derive(Default)]
struct Pulse {
    sent: AtomicU64,
    answered: AtomicU64,
    watched: AtomicBool,
    wake: Notify,
}

impl Pulse {
    fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
        if !self.watched.load(Relaxed) && !self.watched.swap(true, Relaxed) {
            self.wake.notify_one();
        }
    }

    fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.answered.load(Relaxed))
    }
}

/// Ends a connection that gives no answers: a server that vanished without a word would keep calls
/// waiting for as long as TCP does, which is many minutes. Sleeps for as long as nothing is sent.
async fn watch(client: Client, task: AbortHandle, pulse: Arc<Pulse>, period: Duration) {
    loop {
        pulse.wake.notified().await;
        loop {
            let (sent, answered) = pulse.read();
            sleep(period).await;
            let now = pulse.read();
            if now == (sent, answered) {
                // Nothing moved. Calls that were given up are not counted as answered, so this
                // may be an idle connection.
                if sent != answered && !is_alive(&client, period).await {
                    task.abort();
                    return;
                }
                break;
            }
            if now.1 == answered && sent > answered && !is_alive(&client, period).await {
                task.abort();
                return;
            }
        }
        pulse.watched.store(false, Relaxed);
    }
}

async fn is_alive(client: &Client, patience: Duration) -> bool {
    let ping = CustomCommand::new_static("PING", ClusterHash::Random, false);
    matches!(
        timeout(patience, client.custom_raw(ping, Vec::<Value>::new())).await,
        Ok(Ok(_))
    )
}
