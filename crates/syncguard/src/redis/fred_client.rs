//! Connections by fred. All that knows fred is here and in `error.rs`.
//!
//! Each connection is a fred client of its own that never reconnects: when it is lost, everything in
//! flight fails at once, and nothing is ever sent twice.

use std::sync::Arc;
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
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::config::{RedisConfig, RedisServer};
use super::error::{Cause, describe, to_error};
use super::link::{Connection, Dial};
use super::native::{Answer, Evaluate, Form};
use super::plan::Plan;
use super::pulse::Pulse;
use super::reply::Reply;
use super::tls::Trust;
use crate::error::Error;

/// The arguments of `EVALSHA` or `EVAL` as slices of one buffer: fred clones each of them, which costs an allocation for
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

fn answer(frame: Resp3Frame) -> Result<Answer, Error> {
    Ok(match frame {
        Resp3Frame::SimpleError { data, .. } => Answer::Refused(data.to_string()),
        Resp3Frame::BlobError { data, .. } => {
            Answer::Refused(String::from_utf8_lossy(&data).into_owned())
        }
        frame => Answer::Reply(reply(frame)?),
    })
}

fn reply(frame: Resp3Frame) -> Result<Reply, Error> {
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
pub(super) struct FredDialer {
    config: RedisConfig,
    trust: Option<Trust>,
}

impl FredDialer {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        Ok(Self {
            config: config.clone(),
            trust: config.tls.as_ref().map(|tls| tls.read()).transpose()?,
        })
    }
}

#[async_trait]
impl Dial for FredDialer {
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
            // A call that is alone leaves at once all the same. Those that come while others are on
            // their way leave together when a reply arrives: half the CPU time for client and server,
            // for at most one round trip more, and one server answers one after the other anyway.
            tcp: TcpConfig {
                nodelay: Some(false),
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
        let (patience, own, end) = (operation_timeout / 2, client.clone(), task.clone());
        let watched = Arc::clone(&pulse);
        let watch = tokio::spawn(async move {
            watched.stops(patience, || is_alive(&own, patience)).await;
            end.abort();
        });
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

#[async_trait]
impl Evaluate for FredConnection {
    async fn evaluate(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        let (command, script) = match form {
            Form::Hash => ("EVALSHA", plan.script.sha()),
            Form::Source => ("EVAL", plan.script.source()),
        };
        answer(self.call(command, arguments(script, plan)).await?)
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

async fn is_alive(client: &Client, patience: Duration) -> bool {
    let ping = CustomCommand::new_static("PING", ClusterHash::Random, false);
    matches!(
        timeout(patience, client.custom_raw(ping, Vec::<Value>::new())).await,
        Ok(Ok(_))
    )
}
